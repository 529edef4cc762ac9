"""Paired differences: what a method does to the same requests that Retrain answers."""

from collections.abc import Callable, Mapping, Sequence

from matplotlib.figure import Figure

from testbed.experiments.rundir import Run
from testbed.reporting.comparison import Curve, by_method, column, cumulative, curve
from testbed.reporting.intervals import Series
from testbed.reporting.lines import draw_curves
from testbed.reporting.panels import clear, columns, seeds
from testbed.reporting.paper.quantities import QUANTITIES, need_reference, pairs
from testbed.reporting.quality import measure
from testbed.reporting.settings import one_setting
from testbed.reporting.style import PAGE, legend_of, new_figure, styled
from testbed.reporting.table import REFERENCE
from testbed.reporting.units import Unit
from testbed.reporting.wording import broken

_POINTS = Unit("points", 1.0)
_BESIDE = 0.5  # inches of a column of panels that are not the panel


def difference(runs: Sequence[Run], width: float = PAGE) -> Figure:
    """Draw method minus Retrain after each request, in quality and in every kind of cost.

    Seeds are paired: both answered the same requests.  Costs are cumulative, so that the
    slope of a line is the difference per request.

    Raises
    ------
    ResultsError
        If there is no Retrain to compare with, or there are several settings.
    """
    need_reference(runs, "difference")
    one_setting(runs, "difference")
    drawn: list[tuple[str, Mapping[str, Curve], Unit]] = []
    by = measure(runs)
    if by:
        name = by.column
        drawn.append((by.name, differences(runs, lambda run: 100 * column(run, name)), _POINTS))
    for quantity in QUANTITIES:
        curves = differences(runs, lambda run, of=quantity.of: cumulative(run, of))  # type: ignore[misc]
        drawn.append((quantity.name, curves, quantity.unit(_largest(curves))))
    across = columns(width, wide=3)
    down = -(-len(drawn) // across)
    with styled():
        figure = new_figure(width, 1.6 * down + 0.7)
        grid = figure.subplots(down, across, sharex=True, squeeze=False)
        for axes, (name, curves, unit) in zip(grid.flat, drawn, strict=False):
            axes.axhline(0, color="0.4", linewidth=0.8)
            draw_curves(axes, _in(unit, curves))
            axes.set_title(broken(f"{name}, {unit.name}", width / across - _BESIDE))
        clear(grid, len(drawn))
        figure.supxlabel("request", fontsize="medium")
        figure.supylabel("difference to Retrain", fontsize="medium")
        legend_of(figure, drawn[-1][1], seeds(runs))
    return figure


def differences(runs: Sequence[Run], series: Callable[[Run], Series]) -> Mapping[str, Curve]:
    """Return method minus Retrain after each request, for every method with common seeds."""
    methods = dict(by_method(runs))
    reference = methods.pop(REFERENCE)
    found = {}
    for method, group in methods.items():
        both = [(series(own), series(other)) for own, other in pairs(group, reference)]
        if both:
            found[method] = curve(own[: len(other)] - other[: len(own)] for own, other in both)
    return found


def _largest(curves: Mapping[str, Curve]) -> float:
    return max(float(abs(one.values.mean).max()) for one in curves.values())


def _in(unit: Unit, curves: Mapping[str, Curve]) -> Mapping[str, Curve]:
    return {
        method: Curve(one.requests, one.values.scaled(1 / unit.size))
        for method, one in curves.items()
    }
