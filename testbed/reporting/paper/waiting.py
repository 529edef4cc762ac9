"""Time to forget and time to include, as distributions."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.errors import ResultsError
from testbed.experiments.rundir import Run
from testbed.reporting.comparison import by_method
from testbed.reporting.intervals import Series
from testbed.reporting.lines import over, ticks
from testbed.reporting.panels import ROWS, name_row, row_names, tall
from testbed.reporting.settings import grouped, too_many, varying
from testbed.reporting.style import COLUMN, legend_of, looks, new_figure, styled
from testbed.reporting.units import Unit, range_text, time_unit

_KINDS = {"leave": ("time to forget", "leaves"), "join": ("time to include", "joins")}
_MOST = 99  # percentile of the slowest method at which the axis ends ...
_LONG = 2.0  # ... where somebody waits so many times as long


def waits(run: Run, kind: str) -> Series:
    """Return the seconds from each leave or join to the release that follows from it."""
    some = run.metrics[run.metrics["kind"] == kind]
    return np.asarray((some["t_end"] - some["t"]).round(6), dtype=np.float64)


def waiting(runs: Sequence[Run], width: float = COLUMN) -> Figure:
    """Draw the share of leaves, and of joins, that were answered within a time.

    Requests of all seeds count together, n for each line; each setting is a row of panels.

    Raises
    ------
    ResultsError
        If nobody left or joined, or there are too many settings.
    """
    kinds = [kind for kind in _KINDS if any(waits(run, kind).size for run in runs)]
    if not kinds:
        raise ResultsError(
            "waiting needs requests, and these runs have none; raise editing.requests"
        )
    keys = varying(runs)
    rows = grouped(runs, keys)
    if len(rows) > ROWS:
        raise too_many(runs, keys, "waiting")
    height = tall(1.9 if len(rows) < ROWS / 2 else 1.4, len(rows))
    beside = row_names(runs, keys, "waiting", height, len(rows))
    with styled():
        figure = new_figure(width, height)
        grid = figure.subplots(len(rows), len(kinds), sharex="col", sharey=True, squeeze=False)
        for place, kind in enumerate(kinds):
            end, later = _end(runs, kind)
            unit = time_unit(end)
            name, counted = _KINDS[kind]
            for row, (values, group) in enumerate(rows.items()):
                axes = grid[row, place]
                _draw(axes, group, kind, unit)
                if place == len(kinds) - 1 and keys:
                    name_row(axes, beside[values])
            n = range_text(
                sum(len(waits(run, kind)) for run in several)
                for group in rows.values()
                for several in by_method(group).values()
            )
            beyond = f"\n{later} of them later" if later else ""
            grid[0, place].set_title(f"{counted}, n = {n}{beyond}")
            grid[-1, place].set_xlabel(f"{name} ({unit.name})")
            shown = end / unit.size
            grid[0, place].set_xlim(-0.03 * shown, 1.05 * shown or 1.0)
        grid[0, 0].set_ylim(0, 103)
        figure.supylabel("share answered (%)", fontsize="medium")
        legend_of(figure, by_method(runs))
    return figure


def _end(runs: Sequence[Run], kind: str) -> tuple[float, int]:
    """Return the seconds at which the axis ends, and how many requests wait longer.

    It ends at the longest wait, unless a few waits are so long that the others would not show.
    """
    lines = [
        np.concatenate([waits(run, kind) for run in own])
        for group in grouped(runs, varying(runs)).values()
        for own in by_method(group).values()
    ]
    slowest = max(float(np.percentile(line, _MOST)) for line in lines if line.size)
    longest = max(float(line.max()) for line in lines if line.size)
    end = longest if longest <= _LONG * slowest else slowest
    return end, sum(int((line > end).sum()) for line in lines)


def _draw(axes: Axes, runs: Sequence[Run], kind: str, unit: Unit) -> None:
    methods = by_method(runs)
    for position, (method, look) in enumerate(looks(methods).items()):
        seconds = np.sort(np.concatenate([waits(run, kind) for run in methods[method]]))
        if not seconds.size:
            continue
        share = 100 * np.arange(1, seconds.size + 1) / seconds.size
        axes.step(
            np.concatenate([[0.0], seconds]) / unit.size,
            np.concatenate([[0.0], share]),
            where="post",
            color=look.color,
            linestyle=look.dashes,
            marker=look.marker,
            markevery=0.2,
            zorder=over(position / len(methods)),
        )
    # Few, as the last one ends where the next panel begins.
    axes.xaxis.set_major_locator(ticks(whole=False, intervals=3))
