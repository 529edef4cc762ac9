"""How figures look: one style for all, legible at the width of a paper's column.

Figures are built through matplotlib's object-oriented API, so nothing here touches
``pyplot`` or a window system, and rendered to the same bytes from the same input: no
dates, no version strings.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import cycle
from typing import Any

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.reporting.names import order

COLUMN = 3.5  # inches
PAGE = 7.0
_DPI = 200
_TEXT = 8  # points
_RC: dict[str, Any] = {
    "font.size": _TEXT,
    "axes.titlesize": _TEXT,
    "axes.labelsize": _TEXT,
    "xtick.labelsize": _TEXT,
    "ytick.labelsize": _TEXT,
    "legend.fontsize": _TEXT,
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
_LOOKS = {
    "fsosa": Look("#0072B2", "-", "o"),
    "retrain": Look("#D55E00", (0, (4, 1.5)), "s"),
    "finetune": Look("#009E73", (0, (1, 1)), "^"),
}
_CYCLE = (
    Look("#CC79A7", (0, (5, 1.5, 1, 1.5)), "D"),
    Look("#E69F00", (0, (7, 2)), "v"),
    Look("#56B4E9", (0, (3, 1, 1, 1, 1, 1)), "P"),
    Look("#000000", (0, (1, 2.5)), "X"),
)


def looks(methods: Iterable[str]) -> dict[str, Look]:
    """Return how each method is drawn, in display order; unknown ones take turns."""
    turns = cycle(_CYCLE)
    return {method: _LOOKS.get(method) or next(turns) for method in order(methods)}


@contextmanager
def styled() -> Iterator[None]:
    """Apply the style within the block, whatever the user's own matplotlib settings are."""
    with matplotlib.style.context(_RC, after_reset=True):
        yield


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of `width` x `height` inches whose parts never overlap."""
    return Figure(figsize=(width, height), layout="constrained")


def legend_above(figure: Figure, axes: Axes, columns: int = 3) -> None:
    """Put one legend for the whole `figure` above its axes, with the entries of `axes`."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(columns, len(labels)))


def render(figure: Figure, kind: str) -> bytes:
    """Return the figure as a ``"png"`` or ``"pdf"`` file; the same figure, the same bytes."""
    stream = BytesIO()
    with styled():
        figure.savefig(stream, format=kind, metadata=_METADATA[kind])
    return stream.getvalue()
