"""Average precision as Ultralytics' validation (8.4) defines it, written from its definition.

In order of score a detection takes, of the boxes of its class that are still free, the one
it overlaps most, and is right if the IoU reaches the threshold.  Precision is made
non-increasing over recall, is 0 beyond the last recall reached, and is interpolated linearly
at 101 recall values and integrated with trapezoids.  There is no crowd.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bdd100k_tools.classes import CLASSES
from bdd100k_tools.labels import Frame
from bdd100k_tools.predictions import Detections

THRESHOLDS = np.linspace(0.5, 0.95, 10)
MOST, LEAST_SCORE = 300, 0.001

_TINY = 1e-16
_Floats = NDArray[np.float64]
_Bools = NDArray[np.bool_]


def average_precision(frames: Sequence[Frame], detections: Detections) -> _Floats:
    """Return AP per IoU threshold and class.

    Returns
    -------
    float64 array, shape (10, 10)
        NaN in the columns of classes without a box.
    """
    best = detections.take(np.argsort(-detections.score, kind="stable"))
    best = best.take(best.score >= LEAST_SCORE)
    by_image = np.argsort(best.image, kind="stable")
    starts = np.searchsorted(best.image[by_image], np.arange(len(frames) + 1))
    right = np.zeros((len(best), len(THRESHOLDS)), dtype=bool)
    kept = np.zeros(len(best), dtype=bool)
    n = np.zeros(len(CLASSES), dtype=int)
    for image, frame in enumerate(frames):
        boxes = [box for box in frame.boxes if not box.crowd]
        truth = np.array([(b.x1, b.y1, b.x2, b.y2) for b in boxes]).reshape(-1, 4)
        labels = np.array([box.index for box in boxes], dtype=int)
        np.add.at(n, labels, 1)
        rows = by_image[starts[image] : starts[image + 1]][:MOST]
        kept[rows] = True
        if len(rows) and len(boxes):
            overlap = iou(best.boxes[rows], truth)
            overlap *= best.category[rows][:, None] == labels
            right[rows] = _hits(overlap)
    table = np.full((len(THRESHOLDS), len(CLASSES)), np.nan)
    for k in np.flatnonzero(n):
        hits = right[kept & (best.category == k)]
        table[:, k] = [_area(column, n[k]) for column in hits.T] if len(hits) else 0.0
    return table


def iou(first: _Floats, second: _Floats) -> _Floats:
    """Return the IoU of every pair of boxes x1, y1, x2, y2, shape (len(first), len(second))."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = (high - low).clip(0).prod(axis=2)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(axis=1) for boxes in (first, second)]
    result: _Floats = shared / (areas[0][:, None] + areas[1][None, :] - shared)
    return result


def _hits(overlap: _Floats) -> _Bools:
    """Return which detections are right at each threshold; rows are in order of score."""
    right = np.zeros((len(overlap), len(THRESHOLDS)), dtype=bool)
    for column, threshold in enumerate(THRESHOLDS):
        free = overlap.copy()
        for row in np.flatnonzero(overlap.max(axis=1) >= threshold):
            taken = free[row].argmax()
            if free[row, taken] >= threshold:
                right[row, column] = True
                free[:, taken] = 0
    return right


def _area(hits: _Bools, n: int) -> float:
    true = np.cumsum(hits)
    recall = true / (n + _TINY)
    precision = true / np.arange(1, len(hits) + 1)
    x = np.concatenate(([0.0], recall, recall[-1:], [1.0]))
    y = np.concatenate(([1.0], precision, [0.0, 0.0]))
    envelope = np.maximum.accumulate(y[::-1])[::-1]
    heights = np.interp(np.linspace(0, 1, 101), x, envelope)
    return float((heights[1:] + heights[:-1]).mean() / 2)
