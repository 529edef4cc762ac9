"""Utility against cost: what a method reaches and spends as the sampling ratio grows."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.experiments.rundir import Run
from testbed.reporting.comparison import by_method, column
from testbed.reporting.figures import measured
from testbed.reporting.intervals import Interval, mean
from testbed.reporting.lines import over, ticks
from testbed.reporting.panels import ROWS, clear, columns, name_row, row_names, seeds, tall
from testbed.reporting.paper.axis import RHO
from testbed.reporting.paper.quantities import QUANTITIES
from testbed.reporting.settings import grouped, too_many, varying
from testbed.reporting.style import PAGE, legend_of, looks, new_figure, styled

_LEAST, _MOST = 1.0, 5.5  # points a marker is wide
Point = tuple[float, Interval, Sequence[Interval]]  # ρ, quality, each kind of cost


def tradeoff(runs: Sequence[Run], width: float = PAGE) -> Figure:
    """Draw final quality over cumulative cost, a line per method and a point per ρ.

    Raises
    ------
    ResultsError
        If nothing was trained, ρ does not vary or there is no room.
    """
    by = measured(runs)
    key = RHO.key(runs, "tradeoff")
    others = varying(runs, first=[key])[1:]
    rows = grouped(runs, others)
    across = columns(width, wide=len(QUANTITIES))
    down = -(-len(QUANTITIES) // across) if len(rows) == 1 else len(rows)
    if down > ROWS or (len(rows) > 1 and across < len(QUANTITIES)):
        raise too_many(runs, others, "tradeoff", wider=len(rows) <= ROWS)
    lines = [_lines(group, key, by.column) for group in rows.values()]
    height = tall(1.8, down)
    beside = row_names(runs, others, "tradeoff", height, down)
    with styled():
        figure = new_figure(width, height)
        grid = figure.subplots(
            down, across, sharex="col" if len(rows) > 1 else "none", sharey=True, squeeze=False
        )
        for place, quantity in enumerate(QUANTITIES):
            unit = quantity.unit(
                max(
                    float(cost[place].high)
                    for row in lines
                    for line in row.values()
                    for _, _, cost in line
                )
            )
            for row, values in enumerate(rows):
                axes = grid.flat[row * len(QUANTITIES) + place]
                _draw(axes, lines[row], place, unit.size)
                if row == len(rows) - 1:
                    axes.set_xlabel(f"{quantity.name}, {unit.name}")
                if len(rows) > 1 and place == len(QUANTITIES) - 1:
                    name_row(axes, beside[values])
        # Only now, as a limit that is set ends the scaling of all panels that share the axis.
        for axes in grid.flat[: len(rows) * len(QUANTITIES)]:
            axes.set_xlim(left=0)
        clear(grid, len(rows) * len(QUANTITIES))
        figure.supylabel(f"final {by.name} (%)", fontsize="medium")
        (least, *_), (most, *_) = (tuple(grouped(runs, [key]))[end] for end in (0, -1))
        growing = f"the larger a marker the larger ρ, from {least:g} to {most:g}"
        legend_of(figure, by_method(runs), f"{seeds(runs, 'bars')}\n{growing}")
    return figure


def _lines(runs: Sequence[Run], key: str, name: str) -> dict[str, list[Point]]:
    """Return each method's points, in order of ρ."""
    found: dict[str, list[Point]] = {}
    for (rho,), group in grouped(runs, [key]).items():
        for method, own in by_method(group).items():
            reached = mean([100 * column(run, name)[-1] for run in own])
            spent = [mean([quantity.total(run) for run in own]) for quantity in QUANTITIES]
            found.setdefault(method, []).append((float(rho), reached, spent))
    return found


def _draw(axes: Axes, lines: dict[str, list[Point]], place: int, size: float) -> None:
    largest = max(rho for line in lines.values() for rho, _, _ in line)
    for position, (method, look) in enumerate(looks(lines).items()):
        line, zorder = lines[method], over(position / len(lines))
        x = [cost[place].scaled(1 / size) for _, _, cost in line]
        y = [reached for _, reached, _ in line]
        axes.errorbar(
            [float(one.mean) for one in x],
            [float(one.mean) for one in y],
            xerr=_around(x),
            yerr=_around(y),
            color=look.color,
            linestyle=look.dashes,
            elinewidth=0.6,
            zorder=zorder,
        )
        for (rho, _, _), across, up in zip(line, x, y, strict=True):
            axes.plot(
                [float(across.mean)],
                [float(up.mean)],
                color=look.color,
                marker=look.marker,
                markersize=_LEAST + (_MOST - _LEAST) * rho / largest,
                zorder=zorder,
            )
    axes.xaxis.set_major_locator(ticks(whole=False))
    axes.yaxis.set_major_locator(ticks(whole=False))


def _around(values: Sequence[Interval]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return how far the intervals reach below and above their means; (2, points)."""
    return np.array(
        [
            [float(one.mean - one.low) for one in values],
            [float(one.high - one.mean) for one in values],
        ]
    )
