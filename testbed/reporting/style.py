"""How figures look: one style for all, legible at the width of a paper's column.

Figures are built through matplotlib's object-oriented API, so nothing here touches
``pyplot`` or a window system, and rendered to the same bytes from the same input: no
dates, no version strings.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import cycle
from typing import Any

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from testbed.reporting.names import label, order

COLUMN = 3.5  # inches, of a journal with two columns
PAGE = 7.16
_DPI = 200
TEXT = 8  # points
_RC: dict[str, Any] = {
    "font.size": TEXT,
    "axes.titlesize": TEXT,
    "axes.labelsize": TEXT,
    "xtick.labelsize": TEXT,
    "ytick.labelsize": TEXT,
    "legend.fontsize": TEXT,
    "legend.title_fontsize": TEXT,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.5,
    "pdf.fonttype": 42,  # fonts are embedded as TrueType, editable and searchable
    "text.usetex": False,
    "savefig.dpi": _DPI,
    "figure.dpi": _DPI,
}
_METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "ModDate": None, "Creator": None, "Producer": None},
}


@dataclass(frozen=True)
class Look:
    """How one method is drawn; lines differ without colour, too."""

    color: str
    dashes: Any
    marker: str


# Colours of Okabe and Ito, told apart with any colour vision.
_BLUE, _VERMILLION, _GREEN, _BLACK = "#0072B2", "#D55E00", "#009E73", "#000000"
_PURPLE, _ORANGE, _SKY = "#CC79A7", "#E69F00", "#56B4E9"
_LOOKS = {
    "fsosa": Look(_BLUE, "-", "o"),
    "retrain": Look(_VERMILLION, (0, (4, 1.5)), "s"),
    "finetune": Look(_GREEN, (0, (1, 1)), "^"),
    "federaser": Look(_PURPLE, (0, (5, 1.5, 1, 1.5)), "D"),
    "fedrr": Look(_ORANGE, (0, (7, 2)), "v"),
    "fats-cu": Look(_SKY, (0, (3, 1, 1, 1, 1, 1)), "P"),
}
_CYCLE = (
    Look(_PURPLE, (0, (5, 1.5, 1, 1.5)), "D"),
    Look(_ORANGE, (0, (7, 2)), "v"),
    Look(_SKY, (0, (3, 1, 1, 1, 1, 1)), "P"),
    Look(_BLACK, (0, (1, 2.5)), "X"),
    Look(_GREEN, (0, (2, 1)), "<"),
    Look(_PURPLE, "-", ">"),
    Look(_ORANGE, (0, (1, 1)), "h"),
    Look(_SKY, (0, (4, 1.5)), "*"),
    Look(_BLACK, (0, (6, 1, 1, 1)), "p"),
)


def looks(methods: Iterable[str]) -> dict[str, Look]:
    """Return how each method is drawn, in display order; unknown ones take turns."""
    methods = order(methods)
    known = {method: _LOOKS[method] for method in methods if method in _LOOKS}
    turns = cycle(look for look in _CYCLE if look not in known.values())
    return {method: known.get(method) or next(turns) for method in methods}


@contextmanager
def styled() -> Iterator[None]:
    """Apply the style within the block, whatever the user's own matplotlib settings are."""
    with matplotlib.style.context(_RC, after_reset=True):
        yield


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of `width` x `height` inches whose parts never overlap."""
    return Figure(figsize=(width, height), layout="constrained")


def legend_above(figure: Figure, axes: Axes, columns: int = 3, title: str = "") -> None:
    """Put one legend for the whole `figure` above its axes, with the entries of `axes`."""
    handles, labels = axes.get_legend_handles_labels()
    _above(figure, handles, labels, columns, title)


def legend_of(figure: Figure, methods: Iterable[str], title: str = "") -> None:
    """Put a legend of `methods` above all axes, whichever of them each panel shows."""
    shown = looks(methods)
    handles = [
        Line2D([], [], color=look.color, linestyle=look.dashes, marker=look.marker)
        for look in shown.values()
    ]
    columns = 3 if figure.get_figwidth() <= COLUMN else 6
    _above(figure, handles, [label(method) for method in shown], columns, title)


def _above(
    figure: Figure, handles: Sequence[Any], labels: Sequence[str], columns: int, title: str
) -> None:
    legend = figure.legend(
        handles,
        labels,
        loc="outside upper center",
        ncols=min(columns, len(labels)),
        title=title or None,
        columnspacing=1.2,
    )
    legend.get_title().set_multialignment("center")


def render(figure: Figure, kind: str) -> bytes:
    """Return the figure as a ``"png"`` or ``"pdf"`` file; the same figure, the same bytes."""
    stream = BytesIO()
    with styled():
        figure.savefig(stream, format=kind, metadata=_METADATA[kind])
    return stream.getvalue()
