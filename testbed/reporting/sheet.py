"""A contact sheet: some pictures of each class, one row per class."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from testbed.data import Dataset
from testbed.reporting.style import styled
from testbed.streams import Streams

_DOTS = 200  # per inch, as figures are rendered
_SIDE = 96  # most dots a picture takes
_MOST = 30_000  # dots a page may be high, or nothing can draw it
_GAP = 1  # between pictures, in their pixels
_LETTER = 13  # dots of a row's label, per letter
_MARGIN = 24
_HEAD = 72
_TEXT = 8  # points
_SMALLEST = 6
_PAPER = 1.0
_LONGEST = 24  # letters of a class's name


def contact_sheet(data: Dataset, columns: int) -> Figure:
    """Draw `columns` training pictures of each class, drawn at random but always the same.

    A pixel of a picture is a whole number of dots; of large pictures every second, third,
    ... pixel is drawn.  Classes with fewer pictures leave the
    rest of their row empty; how many each has is written beside it.
    """
    side = max(min(_SIDE, _MOST // len(data.classes)), 1)
    longest = max(data.x_train.shape[2:])
    pictures = data.x_train[..., :: -(-longest // side), :: -(-longest // side)]
    zoom = max(side // longest, 1)
    mosaic = _mosaic(pictures, data, columns).repeat(zoom, axis=0).repeat(zoom, axis=1)
    names = [_label(data, label) for label in range(len(data.classes))]
    left = max(map(len, names)) * _LETTER + _MARGIN
    head = f"{data.name}, {len(data.y_train)} + {len(data.y_test)} pictures, {data.fingerprint}"
    wide = max(left + mosaic.shape[1], len(head) * _LETTER) + _MARGIN
    high = mosaic.shape[0] + _HEAD + _MARGIN
    with styled():
        figure = Figure(figsize=(wide / _DOTS, high / _DOTS), dpi=_DOTS)
        figure.figimage(mosaic, left, _MARGIN, origin="upper", cmap="gray", vmin=0, vmax=1)
        height = pictures.shape[2]
        row = zoom * (height + _GAP)
        size = min(_TEXT, max(row * 72 / _DOTS * 0.8, _SMALLEST))
        for number, name in enumerate(names):
            middle = _MARGIN + mosaic.shape[0] - number * row - zoom * height / 2
            _write(figure, name, left - 8, middle, (wide, high), ha="right", size=size)
        _write(figure, head, _MARGIN, high - _HEAD / 2, (wide, high), ha="left", size=_TEXT)
    return figure


def _write(
    figure: Figure, text: str, x: float, y: float, page: tuple[float, float], **how: Any
) -> None:
    # A dollar sign in a class's name is no formula.
    figure.text(x / page[0], y / page[1], text, va="center", parse_math=False, **how)


def _label(data: Dataset, label: int) -> str:
    name = data.classes[label]
    short = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
    return f"{short} ({np.count_nonzero(data.y_train == label)})"


def _mosaic(pictures: NDArray[np.float32], data: Dataset, columns: int) -> NDArray[np.float32]:
    """Put pictures in a grid, white where there is none; (rows, columns) or (..., 3)."""
    channels, height, width = pictures.shape[1:]
    down, right = height + _GAP, width + _GAP
    grid = np.full((len(data.classes) * down, columns * right, channels), _PAPER, np.float32)
    for label in range(len(data.classes)):
        for column, sample in enumerate(_drawn(data.y_train, label, columns)):
            rows = slice(label * down, label * down + height)
            grid[rows, column * right : column * right + width] = np.moveaxis(
                pictures[sample], 0, -1
            )
    trimmed = grid[:-_GAP, :-_GAP]
    return trimmed[..., 0] if channels == 1 else trimmed


def _drawn(labels: NDArray[np.int64], label: int, columns: int) -> Sequence[int]:
    members = np.flatnonzero(labels == label)
    drawn = Streams(0).rng("data", "sheet", label).permutation(members)[:columns]
    return [int(sample) for sample in np.sort(drawn)]
