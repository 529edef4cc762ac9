"""The figures of a comparison: each a function from runs to a matplotlib figure.

Values hold until the next request changes them, so lines are steps.  With several seeds
the line is their mean and the band reaches from the least to the largest.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from testbed.errors import ResultsError
from testbed.experiments.rundir import Run
from testbed.ledger import TARIFFS, RequestCost
from testbed.reporting.comparison import Curve, by_method, column, cumulative, curve, load
from testbed.reporting.lines import draw_curves, draw_strip, held, ticks
from testbed.reporting.names import label
from testbed.reporting.output import save
from testbed.reporting.quality import measure
from testbed.reporting.style import COLUMN, PAGE, legend_above, new_figure, render, styled
from testbed.reporting.units import byte_unit, time_unit

_LEAST_SPAN = 1.0  # percentage points on the axis of quality, so that noise looks like noise


def quality(runs: Sequence[Run]) -> Figure:
    """Draw the test accuracy or mAP of the released model over the requests.

    Raises
    ------
    ResultsError
        If nothing was trained.
    """
    by = measure(runs)
    if by is None:
        raise ResultsError("these runs trained nothing, so there is no quality to draw")
    curves = {
        method: curve(100 * column(run, by.column) for run in group)
        for method, group in by_method(runs).items()
    }
    figure = _over_requests(curves, f"test {by.name} (%)")
    low, high = figure.axes[0].get_ylim()
    missing = max(0.0, _LEAST_SPAN - (high - low)) / 2
    figure.axes[0].set_ylim(low - missing, high + missing)
    return figure


def cumulative_time(runs: Sequence[Run]) -> Figure:
    """Draw the simulated time spent on requests so far; the initial training is left out."""
    curves = _cumulative(runs, lambda cost: cost.seconds)
    unit = time_unit(_largest(curves))
    figure = _over_requests(_scaled(curves, unit.size), f"cumulative time ({unit.name})")
    figure.axes[0].set_ylim(bottom=0)
    return figure


def cumulative_bytes(runs: Sequence[Run]) -> Figure:
    """Draw the serialised bytes moved for requests so far, priced by every tariff."""
    tariffs = {name: _cumulative(runs, _price(name)) for name in TARIFFS}
    unit = byte_unit(max(_largest(curves) for curves in tariffs.values()))
    with styled():
        figure = new_figure(PAGE, 2.4)
        panels = np.atleast_1d(figure.subplots(1, len(tariffs), sharey=True))
        for axes, (name, curves) in zip(panels, tariffs.items(), strict=True):
            draw_curves(axes, _scaled(curves, unit.size))
            axes.set_title(f"tariff: {name}")
            axes.set_xlabel("request")
        panels[0].set_ylim(bottom=0)
        panels[0].set_ylabel(f"cumulative serialised\nbytes ({unit.name})")
        legend_above(figure, panels[0])
    return figure


def population(runs: Sequence[Run]) -> Figure:
    """Draw M and P over simulated time, and below it when joins, leaves and edits happened.

    Shown is the first method's run with the lowest seed.  Joins and leaves stand at the
    second at which they were requested, edits at the second their model was released.
    """
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
        figure = new_figure(PAGE, 2.6)
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
        draw_strip(strip, {kind: seconds / unit.size for kind, seconds in times.items()})
        strip.set_xlabel(f"simulated time ({unit.name}); {label(method)}, seed {run.seed}")
        legend_above(figure, upper)
    return figure


def figures(runs: Sequence[Run]) -> Mapping[str, Callable[[Sequence[Run]], Figure]]:
    """Return the figures that can be drawn of these runs, by name."""
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
        save(folder, f"figures/{name}.{kind}", render(figure, kind))
        for name, function in figures(runs).items()
        for figure in [function(runs)]
        for kind in ("pdf", "png")
    )


def _price(tariff: str) -> Callable[[RequestCost], float]:
    return lambda cost: cost.bytes[tariff].total


def _cumulative(runs: Sequence[Run], value: Callable[[RequestCost], float]) -> Mapping[str, Curve]:
    return {
        method: curve(cumulative(run, value) for run in group)
        for method, group in by_method(runs).items()
    }


def _largest(curves: Mapping[str, Curve]) -> float:
    return max(float(values.high.max()) for values in curves.values())


def _scaled(curves: Mapping[str, Curve], size: float) -> Mapping[str, Curve]:
    return {
        method: Curve(values.mean / size, values.low / size, values.high / size)
        for method, values in curves.items()
    }


def _over_requests(curves: Mapping[str, Curve], ylabel: str) -> Figure:
    with styled():
        figure = new_figure(COLUMN, 2.4)
        axes = figure.subplots()
        draw_curves(axes, curves)
        axes.set_xlabel("request")
        axes.set_ylabel(ylabel)
        legend_above(figure, axes)
    return figure
