"""Reading BDD100K's label files: one JSON file of pictures per split."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bdd100k_tools.classes import resolve
from bdd100k_tools.errors import LabelError


@dataclass(frozen=True, slots=True)
class Box:
    """One object of a picture.

    Attributes
    ----------
    category : str
        One of the ten detection classes.
    x1, y1, x2, y2 : float
        Corners in pixels of the 1280x720 picture.
    crowd : bool
        The box must neither reward nor punish a detector.
    """

    category: str
    x1: float
    y1: float
    x2: float
    y2: float
    crowd: bool


@dataclass(frozen=True, slots=True)
class Picture:
    """One labelled picture.

    Attributes
    ----------
    name : str
        The picture's file name.
    attributes : mapping of str to str
        ``weather``, ``scene`` and ``timeofday`` where the file gives them.
    boxes : tuple of Box
    """

    name: str
    attributes: Mapping[str, str]
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class Dropped:
    """How many labels were left out, by reason.

    Attributes
    ----------
    no_box : int
        Lanes, drivable areas and other labels without ``box2d``.
    other_class : int
        Boxes of something that is not a detection class.
    empty_box : int
        Boxes without an area.
    """

    no_box: int = 0
    other_class: int = 0
    empty_box: int = 0


@dataclass(frozen=True)
class Labels:
    """The content of a label file."""

    pictures: tuple[Picture, ...]
    dropped: Dropped


def read_labels(path: Path) -> Labels:
    """Read a label file: a list of pictures, or a mapping with that list as ``frames``.

    Names of 2018 (``person``, ``bike``, ``motor``) and of 2020 become the same classes.

    Raises
    ------
    LabelError
        If the file is missing, is not JSON, or a picture or box is malformed.
    """
    document = _load(path)
    frames = document.get("frames") if isinstance(document, dict) else document
    if not isinstance(frames, list):
        raise LabelError(f"{path}: expected a list of pictures, or a mapping with 'frames'")
    lost = dict.fromkeys(("no_box", "other_class", "empty_box"), 0)
    pictures = []
    for index, frame in enumerate(frames):
        if not isinstance(frame, dict) or not isinstance(frame.get("name"), str):
            raise LabelError(f"{path}: picture {index} has no name")
        where = f"{path}: picture {frame['name']!r}"
        pictures.append(
            Picture(frame["name"], _attributes(frame, where), _boxes(frame, where, lost))
        )
    return Labels(tuple(pictures), Dropped(**lost))


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LabelError(f"cannot read {path}: {error.strerror}") from None
    except json.JSONDecodeError as error:
        raise LabelError(f"{path}, line {error.lineno}: not valid JSON: {error.msg}") from None
    except (UnicodeDecodeError, RecursionError):
        raise LabelError(f"{path}: not a JSON label file") from None


def _mapping(item: dict[str, Any], where: str) -> dict[str, Any]:
    attributes = item.get("attributes") or {}
    if not isinstance(attributes, dict):
        raise LabelError(f"{where}: attributes must be a mapping, not {attributes!r:.60}")
    return attributes


def _attributes(frame: dict[str, Any], where: str) -> Mapping[str, str]:
    return MappingProxyType({key: str(value) for key, value in _mapping(frame, where).items()})


def _boxes(frame: dict[str, Any], where: str, lost: dict[str, int]) -> tuple[Box, ...]:
    """Return a picture's boxes and count in `lost` what is left out."""
    labels = frame.get("labels") or []
    if not isinstance(labels, list) or not all(isinstance(label, dict) for label in labels):
        raise LabelError(f"{where}: labels must be a list of mappings, not {labels!r:.60}")
    boxes = []
    for index, label in enumerate(labels):
        corners = label.get("box2d")
        known = resolve(str(label.get("category")))
        if corners is None:
            lost["no_box"] += 1
        elif known is None:
            lost["other_class"] += 1
        else:
            spot = f"{where}, label {index}"
            x1, y1, x2, y2 = _corners(corners, spot)
            if x2 <= x1 or y2 <= y1:
                lost["empty_box"] += 1
                continue
            category, ignored = known
            crowd = ignored or _mapping(label, spot).get("crowd") is True
            boxes.append(Box(category, x1, y1, x2, y2, crowd))
    return tuple(boxes)


def _corners(corners: Any, where: str) -> tuple[float, float, float, float]:
    try:
        x1, y1, x2, y2 = (float(corners[key]) for key in ("x1", "y1", "x2", "y2"))
    except (KeyError, TypeError, ValueError, OverflowError):
        raise LabelError(
            f"{where}: box2d needs numbers x1 y1 x2 y2, not {corners!r:.60}"
        ) from None
    if not all(map(math.isfinite, (x1, y1, x2, y2))):
        raise LabelError(f"{where}: box2d is not finite: {corners!r:.60}")
    return x1, y1, x2, y2
