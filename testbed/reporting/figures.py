"""The figures of a comparison over its requests: functions from runs to a matplotlib figure.

Values hold until the next request changes them, so lines are steps.  With several seeds
the line is their mean and the band its 95 % interval.  Runs of several settings get a panel
each.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from testbed.errors import ResultsError
from testbed.experiments.rundir import Run
from testbed.ledger import TARIFFS, RequestCost
from testbed.reporting.comparison import Curve, by_method, column, cumulative, curve, load
from testbed.reporting.intervals import Series
from testbed.reporting.lines import draw_curves, draw_strip, held, ticks
from testbed.reporting.names import label
from testbed.reporting.output import save
from testbed.reporting.panels import (
    ROWS,
    name_axes,
    name_row,
    panels,
    row_names,
    seeds,
    tall,
)
from testbed.reporting.quality import Measure, measure
from testbed.reporting.settings import grouped, one_setting, too_many, varying
from testbed.reporting.style import (
    COLUMN,
    PAGE,
    legend_above,
    legend_of,
    new_figure,
    render,
    styled,
)
from testbed.reporting.units import byte_unit, time_unit
from testbed.reporting.wording import broken, names

Curves = Mapping[str, Curve]

_LEAST_SPAN = 1.0  # percentage points on the axis of quality, so that noise looks like noise
_MARGIN = 0.8  # inches of a figure's width beside its panel


def measured(runs: Sequence[Run]) -> Measure:
    """Return what the runs measure of a model.

    Raises
    ------
    ResultsError
        If nothing was trained, or some runs measure something else.
    """
    by = measure(runs)
    if by is None:
        raise ResultsError(
            "these runs trained nothing, or not the same kind of model, so there is no quality "
            "to draw; run them with fidelity=train"
        )
    return by


def quality(runs: Sequence[Run], width: float | None = None) -> Figure:
    """Draw the test accuracy or mAP of the released model over the requests.

    Raises
    ------
    ResultsError
        If nothing was trained.
    """
    by = measured(runs)
    figure = _over_requests(
        runs,
        width,
        lambda group: _curves(group, lambda run: 100 * column(run, by.column)),
        lambda _: (f"test {by.name} (%)", 1.0),
    )
    low, high = figure.axes[0].get_ylim()
    missing = max(0.0, _LEAST_SPAN - (high - low))
    below = min(missing / 2, max(0.0, low))  # there is no quality below 0
    figure.axes[0].set_ylim(low - below, high + missing - below)
    return figure


def cumulative_time(runs: Sequence[Run], width: float | None = None) -> Figure:
    """Draw the simulated time spent on requests so far; the initial training is left out."""

    def scale(largest: float) -> tuple[str, float]:
        unit = time_unit(largest)
        return f"cumulative time ({unit.name})", unit.size

    figure = _over_requests(
        runs,
        width,
        lambda group: _curves(group, lambda run: cumulative(run, lambda cost: cost.seconds)),
        scale,
    )
    figure.axes[0].set_ylim(bottom=0)
    return figure


def cumulative_bytes(runs: Sequence[Run], width: float = PAGE) -> Figure:
    """Draw the serialised bytes moved for requests so far, priced by every tariff.

    Each setting is a row of panels, or, at the width of a column, all panels are one below
    the other.

    Raises
    ------
    ResultsError
        If there are too many settings.
    """
    keys = varying(runs)
    groups = grouped(runs, keys)
    wide = width > COLUMN
    rows = len(groups) if wide else len(groups) * len(TARIFFS)
    if rows > ROWS:
        raise too_many(runs, keys, "bytes", wider=len(groups) <= ROWS)
    height = tall(1.5, rows, 0.9)
    named = (
        row_names(runs, keys, "bytes", height, rows)
        if wide
        else names(runs, keys, "bytes", width - _MARGIN, most=2)
    )
    shown = [
        (named[values], name, _curves(group, _spent(name)))
        for values, group in groups.items()
        for name in TARIFFS
    ]
    unit = byte_unit(max(_largest(curves) for _, _, curves in shown))
    with styled():
        figure = new_figure(width, height)
        grid = figure.subplots(
            rows,
            len(TARIFFS) if wide else 1,
            sharex=True,
            sharey="row" if wide else "all",
            squeeze=False,
        )
        for axes, (setting, name, curves) in zip(grid.flat, shown, strict=True):
            draw_curves(axes, _scaled(curves, unit.size))
            if not wide and setting:
                axes.set_title(broken(f"{setting}, tariff: {name}", width - _MARGIN))
            elif not wide or axes in grid[0]:
                axes.set_title(f"tariff: {name}")
            if wide and setting and axes in grid[:, -1]:
                name_row(axes, setting)
        # Only now, as a limit that is set ends the scaling of all panels that share the axis.
        for axes in grid.flat:
            axes.set_ylim(bottom=0)
        for axes in grid[-1]:
            axes.set_xlabel("request")
        label_y = f"cumulative serialised\nbytes ({unit.name})"
        if rows == 1:
            grid[0, 0].set_ylabel(label_y)
        else:
            figure.supylabel(label_y.replace("\n", " "), fontsize="medium")
        legend_of(figure, by_method(runs), seeds(runs))
    return figure


def population(runs: Sequence[Run], width: float = PAGE) -> Figure:
    """Draw M and P over simulated time, and below it when joins, leaves and edits happened.

    Shown is the first method's run with the lowest seed.  Joins and leaves stand at the
    second at which they were requested, edits at the second their model was released.

    Raises
    ------
    ResultsError
        If the runs are of several settings.
    """
    one_setting(runs, "population")
    method, group = next(iter(by_method(runs).items()))
    run = min(group, key=lambda run: run.seed)
    kinds = run.metrics.sort_values("request")["kind"].to_numpy()
    t, t_end = column(run, "t"), column(run, "t_end")
    steps = np.select([kinds == "join", kinds == "leave"], [1.0, -1.0])
    times = {
        "join": t[kinds == "join"],
        "leave": t[kinds == "leave"],
        # The members of a batch share one release.
        "edit": np.unique(t_end[column(run, "triggered").astype(bool) & (kinds != "init")]),
    }
    end = max(t.max(), t_end.max())
    unit = time_unit(end)
    with styled():
        figure = new_figure(width, 2.6)
        upper, strip = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        x = np.append(t, end) / unit.size
        members = held(column(run, "population")[0] + np.cumsum(steps))
        upper.step(x, members, where="post", color="black", label="population M")
        subset = held(column(run, "subset"))
        if subset.any():
            upper.step(x, subset, where="post", color="0.5", ls="--", label="subset P")
        upper.set_ylim(bottom=0)
        upper.set_ylabel("clients")
        upper.yaxis.set_major_locator(ticks(whole=True))
        upper.xaxis.set_major_locator(ticks(whole=False))
        draw_strip(strip, {kind: seconds / unit.size for kind, seconds in times.items()})
        strip.set_xlabel(f"simulated time ({unit.name}); {label(method)}, seed {run.seed}")
        legend_above(figure, upper)
    return figure


def figures(runs: Sequence[Run]) -> Mapping[str, Callable[[Sequence[Run]], Figure]]:
    """Return the figures that are drawn of every comparison, by name."""
    by = measure(runs)
    return {
        **({by.figure: quality} if by else {}),
        "time": cumulative_time,
        "bytes": cumulative_bytes,
        "population": population,
    }


def draw(folder: Path) -> tuple[Path, ...]:
    """Write every figure of the runs below `folder` as PDF and PNG to ``figures/`` in it.

    Raises
    ------
    ResultsError
        If there are no comparable runs below it, or it cannot be written.
    """
    runs = load(folder)
    return tuple(
        path
        for name, function in figures(runs).items()
        for path in save_figure(folder, f"figures/{name}", function(runs))
    )


def save_figure(folder: Path, name: str, figure: Figure) -> tuple[Path, ...]:
    """Write a figure of the runs below `folder` as ``name.pdf`` and ``name.png`` in it."""
    return tuple(save(folder, f"{name}.{kind}", render(figure, kind)) for kind in ("pdf", "png"))


def _spent(tariff: str) -> Callable[[Run], Series]:
    def price(cost: RequestCost) -> float:
        return cost.bytes[tariff].total

    return lambda run: cumulative(run, price)


def _curves(runs: Sequence[Run], series: Callable[[Run], Series]) -> Curves:
    return {
        method: curve(series(run) for run in group) for method, group in by_method(runs).items()
    }


def _largest(curves: Curves) -> float:
    return max(float(one.values.high.max()) for one in curves.values())


def _scaled(curves: Curves, size: float) -> Curves:
    return {
        method: Curve(one.requests, one.values.scaled(1 / size)) for method, one in curves.items()
    }


def _over_requests(
    runs: Sequence[Run],
    width: float | None,
    curves: Callable[[Sequence[Run]], Curves],
    scale: Callable[[float], tuple[str, float]],
) -> Figure:
    """Draw curves in a panel per setting; `scale` names the axis and its unit's size."""
    with styled():
        figure, laid = panels(runs, width, "a figure over the requests")
        drawn = [curves(panel.runs) for panel in laid]
        name, size = scale(max(map(_largest, drawn)))
        for panel, lines in zip(laid, drawn, strict=True):
            draw_curves(panel.axes, _scaled(lines, size))
        name_axes(figure, laid, "request", name)
        legend_of(figure, by_method(runs), seeds(runs))
    return figure
