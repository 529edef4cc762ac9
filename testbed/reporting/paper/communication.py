"""What the bytes are: broadcasts, models, and Fisher information."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.experiments.rundir import Run
from testbed.ledger import TARIFFS, LedgerRow
from testbed.reporting.comparison import by_method, remembered
from testbed.reporting.names import label
from testbed.reporting.panels import TALLEST, seeds
from testbed.reporting.paper.quantities import need_reference, pairs
from testbed.reporting.settings import grouped, too_many, varying
from testbed.reporting.style import COLUMN, PAGE, legend_above, new_figure, styled
from testbed.reporting.table import REFERENCE
from testbed.reporting.units import bytes_text
from testbed.reporting.wording import names

PARTS = {
    # Name, colour and hatch; the first one is at the left of a bar.
    "broadcast": ("#56B4E9", ""),
    "model": ("#E69F00", "/////"),
    "Fisher": ("#009E73", "....."),
}
_MOST = 40  # bars
_HEIGHT = 0.135  # inches of one
_GAP = 0.4  # bars between settings
_MARGIN, _EDGE = 0.35, 0.04  # of the longest bar, behind it with its number and without
_SMALL = 7  # points
_NAMED = 0.38  # of the width, for the names of settings


@remembered
def breakdown(run: Run) -> Mapping[str, Mapping[str, float]]:
    """Return by tariff, then by part, the bytes of all requests; parts add up to the tariff.

    ``broadcast`` is the released model sent to everybody, ``model`` what clients download and
    upload of weights, ``Fisher`` the rest of their uploads.
    """
    model, whole = 0.0, {False: 0, True: 0}
    for row in _answers(run):
        if row.phase == "broadcast":
            model = max(model, row.bytes_down / row.population)
        elif row.phase == "upload":
            whole[row.round > 0] = max(whole[row.round > 0], row.bytes_up)
    share = {
        in_rounds: min(1.0, model / largest) if largest else 0.0
        for in_rounds, largest in whole.items()
    }
    totals = {name: dict.fromkeys(PARTS, 0.0) for name in TARIFFS}
    for _, rows in groupby(_answers(run), key=lambda row: row.request):
        ordered = sorted(rows, key=lambda row: row.round > 0)
        for in_rounds, group in groupby(ordered, key=lambda row: row.round > 0):
            billed = list(group)
            for name, parts in totals.items():
                sent = _priced(name, billed, "upload")
                parts["broadcast"] += _priced(name, billed, "broadcast")
                parts["model"] += _priced(name, billed, "download") + share[in_rounds] * sent
                parts["Fisher"] += (1 - share[in_rounds]) * sent
    return totals


def _answers(run: Run) -> Iterator[LedgerRow]:
    """Yield the rows of all requests, the initial training left out."""
    return (row for row in run.ledger if row.request > 0)


def _priced(tariff: str, rows: Sequence[LedgerRow], phase: str) -> int:
    return TARIFFS[tariff]([row for row in rows if row.phase == phase]).total


@dataclass(frozen=True)
class Bar:
    """One bar of a panel.

    Attributes
    ----------
    y : float
        Where it lies, in bars from the top.
    name : str
        Of its method.
    pairs : list of (Run, Run)
        Its runs and those of Retrain with the same seeds.
    """

    y: float
    name: str
    pairs: Sequence[tuple[Run, Run]]

    def lengths(self, tariff: str) -> Mapping[str, float]:
        """Return the percentage of Retrain's bytes that each part is."""
        whole = sum(sum(breakdown(other)[tariff].values()) for _, other in self.pairs)
        return {
            part: 100 * sum(breakdown(run)[tariff][part] for run, _ in self.pairs) / whole
            if whole
            else 0.0
            for part in PARTS
        }

    def total(self, tariff: str) -> float:
        """Return the mean bytes of a run."""
        return fmean(sum(breakdown(run)[tariff].values()) for run, _ in self.pairs)


def communication(runs: Sequence[Run], width: float = PAGE) -> Figure:
    """Draw the parts of each method's bytes, as shares of what Retrain moves; by tariff.

    The settings, as a rule data sets, lie one below the other.

    Raises
    ------
    ResultsError
        If there is no Retrain to compare with, or there are too many settings.
    """
    need_reference(runs, "communication")
    keys = varying(runs)
    bars: list[Bar] = []
    heads: list[tuple[float, str]] = []
    heading = names(runs, keys, "communication", _NAMED * width, weight="bold")
    y = 0.0
    for values, group in grouped(runs, keys).items():
        methods = by_method(group)
        if keys:
            extra = heading[values].count("\n")
            heads.append((y + extra / 2, heading[values]))
            y += 1 + extra
        for method, own in methods.items():
            if both := pairs(own, methods.get(REFERENCE, ())):
                bars.append(Bar(y, label(method), both))
                y += 1
        y += _GAP
    height = _HEIGHT * y + 1.0
    if len(bars) > _MOST or height > TALLEST:
        raise too_many(runs, keys, "communication")
    with styled():
        figure = new_figure(width, height)
        panels = figure.subplots(1, len(TARIFFS), sharex=True, sharey=True)
        for axes, tariff in zip(panels, TARIFFS, strict=True):
            _draw(axes, bars, tariff, totals=width > COLUMN)
            axes.set_title(f"tariff: {tariff}" if width > COLUMN else tariff)
        panels[0].set_yticks(
            [*(bar.y for bar in bars), *(at for at, _ in heads)],
            [*(bar.name for bar in bars), *(name for _, name in heads)],
        )
        for name in panels[0].get_yticklabels()[len(bars) :]:
            name.set_weight("bold")
            name.set_multialignment("right")
        panels[0].set_ylim(y - _GAP / 2 - 0.5, -0.6)
        figure.supxlabel("bytes (% of Retrain)", fontsize="medium")
        legend_above(figure, panels[0], title=seeds(runs).partition(",")[0])
    return figure


def _draw(axes: Axes, bars: Sequence[Bar], tariff: str, totals: bool) -> None:
    """Draw one tariff's panel; `totals` are written behind the bars."""
    left = np.zeros(len(bars))
    y = [bar.y for bar in bars]
    lengths = [bar.lengths(tariff) for bar in bars]
    for part, (color, hatch) in PARTS.items():
        long = np.array([own[part] for own in lengths])
        axes.barh(
            y, long, 0.8, left, color=color, hatch=hatch, edgecolor="white", linewidth=0.3,
            label=part,
        )  # fmt: skip
        left += long
    if totals:
        for bar, end in zip(bars, left, strict=True):
            axes.annotate(
                bytes_text(bar.total(tariff)), (end, bar.y), (3, 0), va="center",
                textcoords="offset points", fontsize=_SMALL,
            )  # fmt: skip
    longest = float(left.max()) * (1 + (_MARGIN if totals else _EDGE))
    axes.set_xlim(0, max(longest, axes.get_xlim()[1]))
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
