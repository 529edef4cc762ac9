"""A data set as its files hold it, and the checks that every format shares."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.errors import DataError

IntArray = NDArray[np.int64]
Bytes = NDArray[np.uint8]

_WHITE = 255
_COLOURS = 3


@dataclass(frozen=True, eq=False)
class Part:
    """Pictures to learn from, or to test on, before any is drawn or scaled.

    Attributes
    ----------
    pictures : callable
        From rising sample numbers to their pictures, uint8, shape (n, c, h, w).  Formats
        that pack each picture unpack only those asked for.
    labels : int64 array, shape (n,)
    writers : int64 array, shape (n,), or None
        Indices into the names of the writers.
    """

    pictures: Callable[[IntArray], Bytes]
    labels: IntArray
    writers: IntArray | None = None


@dataclass(frozen=True, eq=False)
class Raw:
    """A data set as its files hold it.

    Attributes
    ----------
    train : Part
    test : Part or None
        None where the files have no test part of their own.
    classes : tuple of str
    writers : tuple of str
        Names, in the order of the files; empty where nobody is named.
    white : int
        The brightest value a picture can hold.
    """

    train: Part
    test: Part | None
    classes: tuple[str, ...]
    writers: tuple[str, ...] = ()
    white: int = _WHITE


def held(array: Bytes) -> Callable[[IntArray], Bytes]:
    """Return `Part.pictures` for pictures in memory; all of them are no copy."""
    return lambda chosen: array if len(chosen) == len(array) else array[chosen]


def channels_first(pictures: Bytes) -> Bytes:
    """View (n, h, w) or (n, h, w, c) as (n, c, h, w)."""
    return pictures[:, None] if pictures.ndim == _COLOURS else np.moveaxis(pictures, -1, 1)


def check_pictures(x: NDArray[Any], shape: tuple[int, ...] | None, where: str) -> Bytes:
    """Refuse what is not an array of unsigned bytes in the `shape` expected.

    Without one, (n, h, w), (n, h, w, 1) and (n, h, w, 3) are taken.
    """
    told = f"{where}: shape {x.shape} of {x.dtype}, expected"
    if shape is not None:
        if x.dtype != np.uint8 or x.shape[1:] != shape:
            raise DataError(f"{told} (n, {', '.join(map(str, shape))}) of uint8")
    elif x.dtype != np.uint8 or not (
        x.ndim == _COLOURS or (x.ndim == _COLOURS + 1 and x.shape[-1] in (1, _COLOURS))
    ):
        raise DataError(f"{told} (n, height, width) or (n, height, width, 3) of uint8")
    elif 0 in x.shape[1:]:
        raise DataError(f"{where}: pictures without pixels, shape {x.shape}")
    return x


def check_labels(
    y: NDArray[Any],
    pictures: int,
    where: str,
    most: int,
    least: int = 0,
    what: str = "label",
) -> IntArray:
    """Refuse what is not one label from `least` to `most` per picture."""
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise DataError(f"{where}: shape {y.shape} of {y.dtype}, expected (n,) of integers")
    if len(y) != pictures:
        raise DataError(f"{where}: {len(y)} labels for {pictures} pictures")
    if not len(y):
        raise DataError(f"{where}: no labels")
    wrong = np.flatnonzero((y < least) | (y > most))
    if wrong.size:
        others = f" ({wrong.size} such {what}s)" if wrong.size > 1 else ""
        raise DataError(
            f"{where}: {what} {y[wrong[0]]} of sample {wrong[0]} is not in {least}..{most}{others}"
        )
    return y.astype(np.int64)
