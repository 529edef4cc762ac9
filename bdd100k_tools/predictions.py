"""Reading what a detector found.

Accepted are Scalabel frames with a ``score`` per label, the official form of BDD100K
predictions, and COCO's list of results, as YOLO tools write it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bdd100k_tools.classes import CLASSES, resolve
from bdd100k_tools.errors import PredictionError
from bdd100k_tools.labels import numbers
from bdd100k_tools.streaming import members

_Row = tuple[int, int, float, float, float, float, float]


@dataclass(frozen=True)
class Detections:
    """Predicted boxes of many pictures, as parallel arrays of length n.

    Attributes
    ----------
    image : int array, shape (n,)
        The picture's place among the frames evaluated.
    category : int array, shape (n,)
        Class 0 to 9.
    boxes : float64 array, shape (n, 4)
        x1, y1, x2, y2 in the frames' pixels.
    score : float64 array, shape (n,)
    """

    image: NDArray[np.int64]
    category: NDArray[np.int64]
    boxes: NDArray[np.float64]
    score: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.score)

    def take(self, chosen: NDArray[Any]) -> "Detections":
        """Return the detections at the given indices, or where a mask is true."""
        return Detections(
            self.image[chosen], self.category[chosen], self.boxes[chosen], self.score[chosen]
        )

    def of(self, images: Sequence[int]) -> "Detections":
        """Return the detections on some pictures, which are then counted in that order."""
        places = np.full(max([*self.image, *images], default=0) + 1, -1)
        places[list(images)] = np.arange(len(images))
        part = self.take(places[self.image] >= 0)
        return Detections(places[part.image], part.category, part.boxes, part.score)


def read_predictions(
    path: Path, names: Sequence[str], scale: tuple[float, float] = (1.0, 1.0)
) -> tuple[Detections, Counter[str]]:
    """Read a predictions file.

    Parameters
    ----------
    path : Path
    names : sequence of str
        The pictures' names in the order of the label file.  A COCO ``image_id`` is a name,
        with or without suffix, or a place in that order counted from 1.
    scale : (float, float)
        What x and y are multiplied by, 2 if a detector saw pictures of half the size.

    Returns
    -------
    detections : Detections
    dropped : Counter
        Left out: ``unknown_picture``, ``unknown_class`` (crowd categories too) and
        ``broken_box`` (not finite, or without area).

    Raises
    ------
    PredictionError
        If the file is missing or malformed, or a score is not a number in [0, 1].
    """
    places: dict[Any, int] = {Path(name).stem: place for place, name in enumerate(names)}
    places |= {name: place for place, name in enumerate(names)}
    rows: list[_Row] = []
    dropped: Counter[str] = Counter()
    for index, (key, item) in enumerate(members(path, "frames", PredictionError)):
        if key not in (None, "frames"):
            continue
        where = f"{path}: item {index}"
        if not isinstance(item, dict):
            raise PredictionError(f"{where} must be a mapping, not {item!r:.60}")
        coco = "bbox" in item
        found = _coco(item, where) if coco else _scalabel(item, where)
        image = item.get("image_id") if coco else item.get("name")
        if coco and isinstance(image, int) and 1 <= image <= len(names):
            place: int | None = image - 1
        else:
            place = places.get(image) if isinstance(image, str) else None
        for category, corners, score in found:
            if place is None:
                dropped["unknown_picture"] += 1
            elif category is None:
                dropped["unknown_class"] += 1
            elif corners is None or corners[2] <= corners[0] or corners[3] <= corners[1]:
                dropped["broken_box"] += 1
            else:
                rows.append((place, category, *corners, score))
    table = np.array(rows, dtype=np.float64).reshape(-1, 7)
    boxes = table[:, 2:6] * np.array([*scale, *scale])
    image_column, category_column = table[:, :2].astype(np.int64).T
    return Detections(image_column, category_column, boxes, table[:, 6]), dropped


_Found = tuple[int | None, tuple[float, float, float, float] | None, float]


def _scalabel(item: Mapping[str, Any], where: str) -> Iterator[_Found]:
    labels = item.get("labels") or []
    if not isinstance(labels, list) or not all(isinstance(label, dict) for label in labels):
        raise PredictionError(f"{where}: labels must be a list of mappings, not {labels!r:.60}")
    for index, label in enumerate(labels):
        known = resolve(str(label.get("category")))
        category = CLASSES.index(known[0]) if known and not known[1] else None
        score = _score(label, f"{where}, label {index}")
        yield category, numbers(label.get("box2d")), score


def _coco(item: Mapping[str, Any], where: str) -> Iterator[_Found]:
    number, bbox = item.get("category_id"), item["bbox"]
    category = number - 1 if isinstance(number, int) and 1 <= number <= len(CLASSES) else None
    corners = None
    if isinstance(bbox, list) and len(bbox) == 4:
        corners = numbers(dict(zip(("x1", "y1", "x2", "y2"), bbox, strict=True)))
    if corners is not None:
        x, y, width, height = corners
        corners = (x, y, x + width, y + height)
    yield category, corners, _score(item, where)


def _score(item: Mapping[str, Any], where: str) -> float:
    score = item.get("score")
    if isinstance(score, int | float) and not isinstance(score, bool) and 0 <= score <= 1:
        return float(score)
    raise PredictionError(f"{where}: every prediction needs a score in [0, 1], not {score!r:.40}")
