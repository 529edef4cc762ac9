"""The figure of ``testbed scenario inspect``: what traffic offers before any learning."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.mobility import MobilityEvent
from testbed.mobility.statistics import Series, population, stays
from testbed.reporting.lines import held, ticks
from testbed.reporting.style import PAGE, legend_above, new_figure, styled
from testbed.reporting.units import Unit, time_unit

_KINDS = (("join", "joins", "#009E73", "-"), ("leave", "leaves", "#D55E00", (0, (4, 1.5))))
_BAND = "#0072B2"
_QUANTILES = (10, 50, 90)
_MINUTE = 60.0


def traffic(events: Sequence[MobilityEvent], begin: float, warmup: float, end: float) -> Figure:
    """Draw members over time, joins and leaves per minute, and how long members stay.

    The shaded band is ``M0 / 2 <= M <= 2 M0`` from the end of the warm-up on, with M0 the
    members then (paper, section IV).

    Parameters
    ----------
    events : sequence of MobilityEvent
        In order of time.
    begin, warmup, end : float
        Simulated seconds, ``begin <= warmup < end``.
    """
    unit = time_unit(end - begin)
    with styled():
        figure = new_figure(PAGE, 3.8)
        panels = figure.subplot_mosaic([["members", "members"], ["changes", "stays"]])
        _draw_members(panels["members"], events, (begin, warmup, end), unit)
        _draw_changes(panels["changes"], events, (begin, end), unit)
        _draw_stays(panels["stays"], stays(events))
        legend_above(figure, panels["members"], columns=4)
    return figure


def _draw_members(
    axes: Axes,
    events: Sequence[MobilityEvent],
    seconds: tuple[float, float, float],
    unit: Unit,
) -> None:
    begin, warmup, end = seconds
    members = population(events)
    start = members.start(warmup)
    times, counts, _ = members.between(begin, end)
    x = np.append(times, end) / unit.size
    axes.fill_between(
        np.array([warmup, end]) / unit.size,
        start / 2,
        2 * start,
        color=_BAND,
        alpha=0.15,
        linewidth=0,
        label=f"M0/2 to 2 M0, M0 = {start}",
    )
    axes.step(x, held(counts.astype(float)), where="post", color="black", label="members M")
    if warmup > begin:
        axes.axvline(warmup / unit.size, color="0.4", ls=":", lw=1.0, label="warm-up ends")
    axes.set_xlim(begin / unit.size, end / unit.size)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(ticks(whole=True))
    axes.set_xlabel(f"simulated time ({unit.name})")
    axes.set_ylabel("members")


def _draw_changes(
    axes: Axes, events: Sequence[MobilityEvent], seconds: tuple[float, float], unit: Unit
) -> None:
    begin, end = seconds
    # Equal parts of about a minute, so that the last one is no shorter than the others.
    parts = max(1, round((end - begin) / _MINUTE))
    edges = np.linspace(begin, end, parts + 1)
    for kind, name, color, dashes in _KINDS:
        # Who is there from the beginning has not come.
        times = [event.time for event in events if event.kind == kind and event.time > begin]
        counts = np.histogram(times, edges)[0] * _MINUTE * parts / (end - begin)
        axes.step(
            edges / unit.size,
            held(counts),
            where="post",
            color=color,
            linestyle=dashes,
            label=name,
        )
    axes.set_xlim(begin / unit.size, end / unit.size)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(ticks(whole=False))
    axes.set_xlabel(f"simulated time ({unit.name})")
    axes.set_ylabel("per minute")
    # Above the axes, where no line can run through it.
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0)


def _draw_stays(axes: Axes, lasted: Series) -> None:
    axes.set_ylabel("visits no longer (%)")
    axes.set_ylim(0, 100)
    if not lasted.size:
        axes.set_xlabel("stay: no visit ended")
        axes.set_xticks([])
        return
    unit = time_unit(float(np.percentile(lasted, 99)))
    x = np.sort(lasted) / unit.size
    axes.step(
        np.append(0, x), np.linspace(0, 100, len(x) + 1), where="post", color="black", lw=1.0
    )
    marks = np.percentile(lasted, _QUANTILES) / unit.size
    axes.plot(marks, _QUANTILES, "o", color=_BAND)
    # A few visits last very long; the axis shows all but one in a hundred.
    axes.set_xlim(0, max(1.15 * float(np.percentile(x, 99)), marks[-1] * 1.2) or 1.0)
    axes.xaxis.set_major_locator(ticks(whole=False))
    told = (f"p{share} {mark:.3g}" for share, mark in zip(_QUANTILES, marks.tolist(), strict=True))
    axes.set_xlabel(f"stay ({unit.name}): {', '.join(told)}")
