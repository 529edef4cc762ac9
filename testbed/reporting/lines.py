"""The parts figures are drawn from: step lines with bands, and strips of events."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from testbed.reporting.comparison import Curve
from testbed.reporting.intervals import Series
from testbed.reporting.names import label
from testbed.reporting.style import Look, looks

_MARKERS = 6  # per line, so that lines stay lines
_EVENTS = (
    # Row of the strip, its name, its colour: bluish green, vermillion, blue.
    ("join", "joins", "#009E73"),
    ("leave", "leaves", "#D55E00"),
    ("edit", "edits", "#0072B2"),
)


def draw_curves(axes: Axes, curves: Mapping[str, Curve]) -> None:
    """Draw the curve of every method over the requests, with its band."""
    for position, (method, look) in enumerate(looks(tuple(curves)).items()):
        _draw_one(axes, method, curves[method], look, position / len(curves))
    longest = float(max(one.requests[-1] for one in curves.values()))
    axes.set_xlim(0, longest + _tail(longest))
    axes.xaxis.set_major_locator(ticks(whole=True))
    axes.yaxis.set_major_locator(ticks(whole=False))


def _draw_one(axes: Axes, method: str, one: Curve, look: Look, offset: float) -> None:
    points, values = len(one.requests), one.values
    x = np.append(one.requests, one.requests[-1] + _tail(one.requests[-1]))
    every = max(1, (points - 1) // _MARKERS)
    axes.step(
        x,
        held(values.mean),
        where="post",
        color=look.color,
        linestyle=look.dashes,
        marker=look.marker,
        # Lines that coincide carry their markers at different requests.
        markevery=range(int(offset * every), points, every),
        label=label(method),
        zorder=over(offset),
    )
    if not np.array_equal(values.low, values.high):
        axes.fill_between(
            x,
            held(values.low),
            held(values.high),
            step="post",
            color=look.color,
            alpha=0.2,
            linewidth=0,
        )


def over(offset: float) -> float:
    """Return the height of a line above others; methods listed first lie on top."""
    return 3 - offset


def _tail(last: float) -> float:
    """How far beyond the last request its value is drawn, so that the last step shows."""
    return max(0.5, last / 100)


def held(values: Series) -> Series:
    """Repeat the last value, for the end of the last step."""
    return np.append(values, values[-1])


def ticks(*, whole: bool, intervals: int = 5) -> MaxNLocator:
    """Return a locator of round ticks, at most so many `intervals` apart."""
    return MaxNLocator(intervals, steps=[1, 2, 5, 10], integer=whole)


def draw_strip(axes: Axes, times: Mapping[str, Series]) -> None:
    """Mark joins, leaves and edits, each in a row of its own, at their `times`."""
    rows = range(len(_EVENTS))[::-1]
    busiest = max(len(seconds) for seconds in times.values())
    axes.eventplot(
        [times[kind] for kind, _, _ in _EVENTS],
        lineoffsets=list(rows),
        linelengths=0.7,
        linewidths=1.0 if busiest < 200 else 0.4,
        colors=[color for _, _, color in _EVENTS],
    )
    axes.set_yticks(list(rows), [name for _, name, _ in _EVENTS])
    axes.set_ylim(-0.6, len(_EVENTS) - 0.4)
    axes.grid(visible=False)
    axes.tick_params(axis="y", length=0)
