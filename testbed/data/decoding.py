"""Packed pictures, from files or from bytes, into one array of one size."""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from testbed.data.faults import refuse
from testbed.data.raw import Bytes, channels_first
from testbed.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

# Of the many that Pillow knows; some of the others start programs.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF")
_GREY = frozenset({"1", "L", "LA"})
_COLOUR = frozenset({"RGB", "RGBA", "P", "PA", "CMYK", "YCbCr"})


@dataclass(frozen=True)
class Header:
    """What a picture's first bytes say: its size in pixels and whether it is grey."""

    width: int
    height: int
    grey: bool


def header(source: Path | bytes, where: str) -> Header:
    """Read a picture's size without unpacking it.

    Raises
    ------
    DataError
        If it is no picture, or one of more than 8 bits per colour.
    """
    try:
        with _strict(), _opened(source) as image:
            (width, height), mode = image.size, image.mode
    except Exception as error:  # Pillow's decoders raise many
        raise DataError(f"{where}: {_reason(error)}") from None
    if mode not in _GREY | _COLOUR:
        raise DataError(f"{where}: a picture of mode {mode}; save it with 8 bits per colour")
    return Header(width, height, mode in _GREY)


def decode(sources: Iterable[tuple[Path | bytes, str]], count: int, like: Header) -> Bytes:
    """Unpack `count` pictures of one size, in order; transparency is dropped.

    Parameters
    ----------
    sources : iterable of (path or bytes, str)
        Each with how to call it in a message.
    count : int
    like : Header
        The size all must have, and whether the result is grey.

    Returns
    -------
    uint8 array, shape (count, c, height, width)

    Raises
    ------
    DataError
        If some are broken or of another size; all are named.
    """
    shape = (like.height, like.width) if like.grey else (like.height, like.width, 3)
    try:
        pictures = np.empty((count, *shape), np.uint8)
    except MemoryError:
        size = count * int(np.prod(shape, dtype=object)) / 2**30
        raise DataError(
            f"{count} pictures of {like.width}x{like.height} take {size:.3g} GiB, more than there "
            "is; set data.limit or make the pictures smaller"
        ) from None
    faults: list[str] = []
    with _strict():
        for picture, (source, where) in zip(pictures, sources, strict=True):
            try:
                with _opened(source) as image:
                    if image.size != (like.width, like.height):
                        faults.append(f"{where}: {other_size(image.size, like)}")
                        continue
                    picture[...] = np.asarray(image.convert("L" if like.grey else "RGB"))
            except Exception as error:
                faults.append(f"{where}: {_reason(error)}")
    refuse(faults)
    return channels_first(pictures)


def other_size(size: tuple[int, int], like: Header) -> str:
    """Say that a picture's size is not that of the others."""
    return (
        f"{size[0]}x{size[1]} pixels where the first picture has {like.width}x{like.height}; "
        "make all one size"
    )


def _opened(source: Path | bytes) -> "Image":
    # Heavy, so not at import time.
    from PIL import Image

    return Image.open(source if isinstance(source, Path) else BytesIO(source), formats=_FORMATS)


@contextmanager
def _strict() -> Iterator[None]:
    """Refuse what Pillow only warns of, a picture that unpacks to gigabytes."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def _reason(error: Exception) -> str:
    from PIL import UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        return "not a picture, or a broken one"
    if isinstance(error, OSError) and error.strerror:
        return f"cannot read it: {error.strerror}"
    return f"broken picture: {' '.join(str(error).split()) or type(error).__name__}"
