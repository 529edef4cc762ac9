"""The claims as a figure: what the paper gives as a bar, what was measured as a point."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from testbed.claims.verdict import MET, Row, band
from testbed.config.cards import Card
from testbed.reporting.figures import save_figure
from testbed.reporting.style import PAGE, new_figure, styled

_UNITS = {"%": "percent", "points": "points"}
_LOOKS = {True: ("#0072B2", "o"), False: ("#D55E00", "s")}  # met: blue circle; not: red square
_HEIGHT = 0.155  # inches of a line


def draw(cards: Sequence[Card], rows: Sequence[Row]) -> Figure | None:
    """Draw what the paper gives in percent or in points; None where there is nothing.

    A row shows the band of the paper with its tolerance, and the measured value with its
    interval.  Bounds that are open to one side are left to the table.
    """
    bands = {(card.name, figure.name): band(figure) for card in cards for figure in card.figures}
    shown = [
        row
        for row in rows
        if row.value is not None and np.isfinite(bands[row.claim, row.figure]).all()
    ]
    groups = {unit: [row for row in shown if row.unit == unit] for unit in _UNITS}
    groups = {unit: some for unit, some in groups.items() if some}
    if not groups:
        return None
    longest = sum(map(len, groups.values()))
    with styled():
        figure = new_figure(PAGE, _HEIGHT * longest + 0.55 * len(groups) + 0.5)
        panels = figure.subplots(
            len(groups), 1, squeeze=False, height_ratios=[len(some) for some in groups.values()]
        )[:, 0]
        for axes, (unit, some) in zip(panels, groups.items(), strict=True):
            _draw(axes, some, bands)
            axes.set_xlabel(_UNITS[unit])
        figure.legend(
            handles=[
                Patch(color="0.8", label="paper, with tolerance"),
                *(
                    Line2D([], [], color=color, marker=marker, label=name)
                    for (color, marker), name in zip(
                        _LOOKS.values(), ("met", "missed"), strict=True
                    )
                ),
            ],
            title="measured: mean over seeds, bars: 95 % interval",
            loc="outside upper center",
            ncols=3,
        )
    return figure


def write(cards: Sequence[Card], rows: Sequence[Row], folder: Path) -> tuple[Path, ...]:
    """Draw the figure as PDF and PNG into a folder; return their paths."""
    figure = draw(cards, rows)
    return () if figure is None else save_figure(folder, "reproduction", figure)


def _draw(
    axes: Axes, rows: Sequence[Row], bands: dict[tuple[str, str], tuple[float, float]]
) -> None:
    values = [value for row in rows for value in (row.low, row.high) if value is not None]
    ends = [end for row in rows for end in bands[row.claim, row.figure]]
    low, high = min(values + ends), max(values + ends)
    slack = 0.04 * (high - low) or 1.0
    low, high = low - slack, high + slack
    for place, row in enumerate(rows):
        first, last = bands[row.claim, row.figure]
        axes.barh(place, last - first, left=first, height=0.7, color="0.8", linewidth=0)
        if first == last:
            axes.plot([first, last], [place - 0.35, place + 0.35], color="0.6", linewidth=1.2)
        color, marker = _LOOKS[row.verdict == MET]
        assert row.value is not None
        assert row.low is not None
        assert row.high is not None
        axes.errorbar(
            row.value,
            place,
            xerr=[[row.value - row.low], [row.high - row.value]],
            color=color,
            marker=marker,
            markersize=3.5,
            elinewidth=0.8,
        )
    axes.set_xlim(low, high)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)), [_name(row) for row in rows])


def _name(row: Row) -> str:
    setting = f", {row.setting}" if row.setting else ""
    return f"{row.claim}: {row.figure}{setting} ({row.scale})"
