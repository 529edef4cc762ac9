"""Quantities against a key: a row of panels per setting of the other keys that vary."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from testbed.experiments.rundir import Run
from testbed.reporting.comparison import by_method
from testbed.reporting.intervals import Interval
from testbed.reporting.lines import over, ticks
from testbed.reporting.panels import ROWS, clear, columns, name_row, row_names, seeds, tall
from testbed.reporting.paper.axis import Axis
from testbed.reporting.settings import grouped, too_many, varying
from testbed.reporting.style import legend_of, looks, new_figure, styled
from testbed.reporting.table import REFERENCE
from testbed.reporting.units import Unit

_WIDE = 8.0  # a range of that factor and more is shown on a logarithmic axis
_APART = 0.2  # share of such an axis between values, so that each can have its number
_BELOW = 0.04  # share of an axis from zero that lies below it, so that markers show whole
_PERCENT = Unit("%", 1.0)


@dataclass(frozen=True)
class Measured:
    """One column of panels.

    Attributes
    ----------
    title : str
    label : str
        Of the y axis; ``{}`` stands for the unit.
    estimate : callable
        (runs of a method, runs of Retrain) -> the value, or None where there is none.
    unit : callable
        The unit for values up to the given one.
    from_zero : bool
        The y axis begins at zero.
    """

    title: str
    label: str
    estimate: Callable[[Sequence[Run], Sequence[Run]], Interval | None]
    unit: Callable[[float], Unit] = lambda largest: _PERCENT
    from_zero: bool = False


Line = tuple[list[float], list[Interval]]


def draw_against(
    runs: Sequence[Run], axis: Axis, measures: Sequence[Measured], width: float, what: str
) -> Figure:
    """Draw `measures` of every method along an axis.

    Raises
    ------
    ResultsError
        If nothing along the axis varies, or there is no room.
    """
    key = axis.key(runs, what)
    others = varying(runs, first=[key])[1:]
    rows = grouped(runs, others)
    across = min(len(measures), columns(width, wide=len(measures)))
    down = -(-len(measures) // across) if len(rows) == 1 else len(rows)
    if down > ROWS or (len(rows) > 1 and across < len(measures)):
        raise too_many(runs, others, what, wider=len(rows) <= ROWS)
    lines = [
        [_lines(group, key, axis, measure) for measure in measures] for group in rows.values()
    ]
    units = [
        measure.unit(max(_largest(row[place]) for row in lines))
        for place, measure in enumerate(measures)
    ]
    alike = len({measure.label for measure in measures}) == 1 and "{}" not in measures[0].label
    height = tall(1.75 if down < ROWS / 2 else 1.4, down)
    beside = row_names(runs, others, what, height, down)
    with styled():
        figure = new_figure(width, height)
        grid = figure.subplots(
            down, across, sharex=True, sharey="col" if len(rows) > 1 else "none", squeeze=False
        )
        for row, values in enumerate(rows):
            for place, (measure, unit) in enumerate(zip(measures, units, strict=True)):
                axes = grid.flat[row * len(measures) + place]
                _draw(axes, lines[row][place], unit)
                if row == 0:
                    axes.set_title(measure.title)
                if not alike:
                    axes.set_ylabel(measure.label.format(unit.name))
            if len(rows) > 1:
                name_row(grid[row, -1], beside[values])
        # Only now, as a limit that is set ends the scaling of all rows that share the axis.
        for place in range(len(rows) * len(measures)):
            if measures[place % len(measures)].from_zero:
                low, high = grid.flat[place].get_ylim()
                grid.flat[place].set_ylim(min(low, -_BELOW * high), high)
        clear(grid, len(rows) * len(measures))
        _scale(grid[0, 0], [x for row in lines for line in row[0].values() for x in line[0]])
        figure.supxlabel(axis.label, fontsize="medium")
        if alike:
            figure.supylabel(measures[0].label, fontsize="medium")
        legend_of(figure, by_method(runs), seeds(runs))
    return figure


def _lines(runs: Sequence[Run], key: str, axis: Axis, measure: Measured) -> Mapping[str, Line]:
    """Return the line of each method: places along the axis, and values there."""
    found: dict[str, Line] = {}
    for group in grouped(runs, [key]).values():
        methods = by_method(group)
        for method, own in methods.items():
            value = measure.estimate(own, methods.get(REFERENCE, ()))
            if value is not None:
                places, values = found.setdefault(method, ([], []))
                places.append(axis.place(group))
                values.append(value)
    return found


def _largest(lines: Mapping[str, Line]) -> float:
    return max((float(v.high) for _, values in lines.values() for v in values), default=0.0)


def _draw(axes: Axes, lines: Mapping[str, Line], unit: Unit) -> None:
    for position, (method, look) in enumerate(looks(lines).items()):
        places, values = lines[method]
        order = np.argsort(places)
        x = np.array(places)[order]
        mid, low, high = (
            np.array([float(getattr(values[i], part)) for i in order]) / unit.size
            for part in ("mean", "low", "high")
        )
        axes.plot(
            x,
            mid,
            color=look.color,
            linestyle=look.dashes,
            marker=look.marker,
            zorder=over(position / len(lines)),
        )
        axes.fill_between(x, low, high, color=look.color, alpha=0.2, linewidth=0)
    axes.yaxis.set_major_locator(ticks(whole=False))


def _scale(axes: Axes, places: Sequence[float]) -> None:
    """Choose the scale of the shared x axis: a wide range is logarithmic."""
    if places and min(places) > 0 and max(places) / min(places) >= _WIDE:
        axes.set_xscale("log")
        marks = sorted(set(places))
        gaps = np.diff(np.log(marks)) / np.log(marks[-1] / marks[0])
        axes.xaxis.set_major_locator(
            FixedLocator(marks) if gaps.min() >= _APART else LogLocator(subs=(1, 2, 5))
        )
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    else:
        axes.xaxis.set_major_locator(ticks(whole=False))
