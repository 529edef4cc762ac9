"""Fitting a picture of any size into a fixed one: scaled, centred, padded.

The geometry is that of the frame which the boxes refer to, so that the same boxes fit a
picture file of any size.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

PADDING = 114
"""The grey of the padding, as in all YOLO models."""

STRIDE = 32
"""Height and width must be multiples: the coarsest grid of a YOLO model."""

VERSION = "1"
"""Changes with every change of what `letterbox` returns; part of the name of cache files."""


@dataclass(frozen=True)
class Fit:
    """Where a frame lies in the letterbox.

    Attributes
    ----------
    scale : float
        Letterbox pixels per pixel of the frame.
    width, height : int
        Size of the scaled frame in letterbox pixels.
    left, top : int
        Padding before it; after it there is as much or one pixel more.
    """

    scale: float
    width: int
    height: int
    left: int
    top: int


def fit(frame: tuple[int, int], size: tuple[int, int]) -> Fit:
    """Fit a frame, given as (width, height), into a `size`, given as (height, width).

    >>> fit((1280, 720), (384, 640))
    Fit(scale=0.5, width=640, height=360, left=0, top=12)
    """
    (width, height), (rows, columns) = frame, size
    scale = min(rows / height, columns / width)
    wide, high = max(round(width * scale), 1), max(round(height * scale), 1)
    return Fit(scale, wide, high, (columns - wide) // 2, (rows - high) // 2)


def same_shape(picture: tuple[int, int], frame: tuple[int, int]) -> bool:
    """Whether a picture may be the frame at another size: one pixel is left to rounding."""
    return abs(picture[0] * frame[1] - picture[1] * frame[0]) <= max(frame)


def letterbox(
    picture: NDArray[np.uint8], frame: tuple[int, int], size: tuple[int, int]
) -> NDArray[np.uint8]:
    """Scale a picture to where its frame lies in the letterbox, and pad.

    Parameters
    ----------
    picture : uint8 array, shape (h, w, 3)
        Writable.
    frame : (int, int)
        Width and height the boxes refer to.
    size : (int, int)
        Height and width of the result.

    Returns
    -------
    uint8 array, shape (3, height, width)

    Notes
    -----
    Bilinear without smoothing, whatever the reduction: what OpenCV's ``INTER_LINEAR`` does,
    from which no value differs by more than one grey level.  Pillow's ``resize`` smooths
    and differs by up to 65 levels at half size.
    """
    place = fit(frame, size)
    pixels = torch.from_numpy(picture).permute(2, 0, 1)
    if pixels.shape[1:] != (place.height, place.width):
        (pixels,) = functional.interpolate(
            pixels[None], (place.height, place.width), mode="bilinear", align_corners=False
        )
    boxed = np.full((3, *size), PADDING, np.uint8)
    rows = slice(place.top, place.top + place.height)
    boxed[:, rows, place.left : place.left + place.width] = pixels.numpy()
    return boxed
