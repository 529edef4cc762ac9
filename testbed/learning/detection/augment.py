"""Batches of pictures, as they are or changed at random.

The change of a picture is drawn by its own key, and depends on nothing else: not on the
batch it is in, nor on the order of batches.  Pixels are copied, never resampled, so boxes
stay exact.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from testbed.learning.detection.letterbox import PADDING, fit
from testbed.learning.detection.pictures import Pictures

Augment = Literal["none", "flip", "mosaic"]

Key = Callable[[int], np.random.Generator]
"""The generator of a picture, given by its place among the pictures, in this epoch."""

_LEAST_PIXELS, _LEAST_SHARE = 2.0, 0.1


def plain(pictures: Pictures, chosen: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Return the chosen pictures and their boxes as they are.

    Returns
    -------
    images : uint8 Tensor, shape (b, 3, H, W)
        A copy, on the CPU.
    targets : float32 Tensor, shape (m, 6)
        Place in the batch, class, cx, cy, w, h.
    """
    images, boxes = _gather(pictures, chosen)
    return images, _targets(boxes)


def batch(
    pictures: Pictures,
    chosen: NDArray[np.int64],
    augment: Augment,
    key: Key,
    pool: NDArray[np.int64],
) -> tuple[Tensor, Tensor]:
    """Return the chosen pictures, each changed by its own key.

    Parameters
    ----------
    pictures : Pictures
    chosen : int64 array, shape (b,)
        Of this batch.
    augment : {"none", "flip", "mosaic"}
        ``flip`` mirrors every other picture; ``mosaic`` joins each with three others.
    key : callable
    pool : int64 array
        All pictures of the client, in any order: the others of a mosaic are drawn from it.

    Returns
    -------
    images, targets : Tensor
        See `plain`.
    """
    images, boxes = _gather(pictures, chosen)
    if augment == "flip":
        for place, i in enumerate(chosen.tolist()):
            if key(i).random() < 0.5:
                images[place] = images[place].flip(-1)
                boxes[place] = mirrored(boxes[place])
    elif augment == "mosaic":
        members = np.unique(pool)
        for place, i in enumerate(chosen.tolist()):
            pixels, boxes[place] = mosaic(pictures, i, members, key(i))
            images[place] = torch.from_numpy(pixels)
    return images, _targets(boxes)


def mirrored(targets: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a picture's boxes with left and right exchanged."""
    changed = targets.copy()
    changed[:, 1] = 1 - changed[:, 1]
    return changed


def mosaic(
    pictures: Pictures, i: int, pool: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Join picture `i` with three others of the pool around a random point.

    Without three others, pictures of the pool are drawn repeatedly.
    """
    height, width = pictures.pixels.shape[2:]
    centre = int(rng.integers(width)), int(rng.integers(height))
    others = pool[pool != i]
    enough = len(others) >= 3
    drawn = rng.choice(others if enough else pool, 3, replace=not enough)
    return joined(pictures, (i, *drawn.tolist()), centre)


def joined(
    pictures: Pictures, members: Sequence[int], centre: tuple[int, int]
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Place four pictures around a point, each in its full size and without its padding.

    Parameters
    ----------
    pictures : Pictures
    members : sequence of four int
        Upper left, upper right, lower left, lower right.
    centre : (int, int)
        x and y of the pixel right of and below which the right and the lower ones begin.

    Returns
    -------
    pixels : uint8 array, shape (3, H, W)
        What lies past the edge is cut off; what is not covered is padding.
    targets : float32 array, shape (m, 5)
        Clipped; without boxes of less than two pixels on a side or of which less than a
        tenth is left.

    Notes
    -----
    What the usual YOLO mosaic does where it is not scaled, turned or moved afterwards.
    """
    (x, y), (height, width) = centre, pictures.pixels.shape[2:]
    pixels = np.full((3, height, width), PADDING, np.uint8)
    boxes = []
    for member, (right, below) in zip(members, ((0, 0), (1, 0), (0, 1), (1, 1)), strict=True):
        frame = pictures.frames[member]
        place = fit((frame.width, frame.height), (height, width))
        # From the member's letterbox to the mosaic.
        dx = x - place.left - (0 if right else place.width)
        dy = y - place.top - (0 if below else place.height)
        x1, x2 = (x, min(x + place.width, width)) if right else (max(x - place.width, 0), x)
        y1, y2 = (y, min(y + place.height, height)) if below else (max(y - place.height, 0), y)
        source = pictures.pixels[member]
        pixels[:, y1:y2, x1:x2] = source[:, y1 - dy : y2 - dy, x1 - dx : x2 - dx]
        boxes.append(_cut(pictures.targets[member], (dx, dy), (x1, y1, x2, y2), (width, height)))
    return pixels, np.concatenate(boxes)


def _cut(
    targets: NDArray[np.float32],
    moved: tuple[int, int],
    window: tuple[int, int, int, int],
    size: tuple[int, int],
) -> NDArray[np.float32]:
    """Move boxes by whole pixels, clip them to a window, and drop what is hardly left."""
    unit = np.array(size, np.float64)
    centres, sides = targets[:, 1:3] * unit, targets[:, 3:5] * unit
    low = np.maximum(centres - sides / 2 + moved, window[:2])
    high = np.minimum(centres + sides / 2 + moved, window[2:])
    left = np.maximum(high - low, 0)
    large = (left >= _LEAST_PIXELS).all(1)
    kept: NDArray[np.bool_] = large & (left.prod(1) >= _LEAST_SHARE * sides.prod(1))
    changed = targets.copy()
    changed[:, 1:3], changed[:, 3:5] = (low + high) / 2 / unit, left / unit
    return changed[kept]


def _gather(
    pictures: Pictures, chosen: NDArray[np.int64]
) -> tuple[Tensor, list[NDArray[np.float32]]]:
    """Copy pictures, and list their boxes."""
    return torch.from_numpy(pictures.pixels[chosen]), [pictures.targets[i] for i in chosen]


def _targets(boxes: list[NDArray[np.float32]]) -> Tensor:
    """Join the pictures' boxes, each row led by its picture's place."""
    places = np.repeat(np.arange(len(boxes), dtype=np.float32), [len(each) for each in boxes])
    return torch.from_numpy(
        np.concatenate([places[:, None], np.concatenate(boxes)], 1)
        if boxes
        else np.empty((0, 6), np.float32)
    )
