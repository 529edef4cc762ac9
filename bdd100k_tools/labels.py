"""Reading BDD100K's labels, one picture at a time.

Accepted are the files of 2018 and 2020 per split (a list of pictures), Scalabel's mapping
with ``frames``, ``groups`` and ``config``, one file per picture (of 2018, with ``objects``,
or of Scalabel, with ``labels``), and a folder of the latter.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bdd100k_tools.classes import CLASSES, resolve
from bdd100k_tools.errors import LabelError
from bdd100k_tools.report import Report
from bdd100k_tools.streaming import members

SIZE = (1280, 720)
"""Width and height of BDD100K's pictures, in whose pixels the boxes are."""

_KEPT = ("name", "attributes", "labels", "size", "config")


@dataclass(frozen=True, slots=True)
class Box:
    """One object of a picture.

    Attributes
    ----------
    category : str
        One of the ten detection classes.
    x1, y1, x2, y2 : float
        Corners in the frame's pixels, inside the frame, ``x1 < x2`` and ``y1 < y2``.
    crowd : bool
        The box must neither reward nor punish a detector.
    """

    category: str
    x1: float
    y1: float
    x2: float
    y2: float
    crowd: bool

    @property
    def index(self) -> int:
        """The class's place in `CLASSES`, 0 to 9: the YOLO id; COCO's is one more."""
        return CLASSES.index(self.category)


@dataclass(frozen=True, slots=True)
class Frame:
    """One labelled picture.

    Attributes
    ----------
    name : str
        The picture's file name.
    attributes : mapping of str to str
        ``weather``, ``scene`` and ``timeofday`` where the file gives them.
    boxes : tuple of Box
    width, height : int
        The size the boxes refer to, whatever the size of the picture file.
    """

    name: str
    attributes: Mapping[str, str]
    boxes: tuple[Box, ...]
    width: int = SIZE[0]
    height: int = SIZE[1]


def read(
    path: Path, report: Report | None = None, size: tuple[int, int] = SIZE
) -> Iterator[Frame]:
    """Yield the pictures of a label file, or of a folder of label files, in their order.

    Memory is bounded by the largest single picture plus one name per picture.

    Parameters
    ----------
    path : Path
    report : Report, optional
        Filled while reading: everything repaired or left out is counted there.
    size : (int, int)
        Width and height the boxes refer to, for pictures that do not say it.

    Raises
    ------
    LabelError
        If the file is missing, is not JSON, holds no picture, or a picture is malformed.
        A single bad box never stops the reader; see `report.REASONS`.
    """
    report = Report() if report is None else report
    seen: set[str] = set()
    for where, raw in _pictures(path, size):
        name = _name(raw, where)
        where = f"{where} {name!r}"
        if name in seen:
            report.add("duplicate", where)
            continue
        seen.add(name)
        yield _frame(raw, name, where, size, report)
    if not seen:
        raise LabelError(
            f"{path}: holds no pictures; expected a list of pictures, a mapping with "
            "'frames', or one picture with 'name'"
        )


def fingerprint(path: Path) -> str:
    """Return the SHA-256 of a label file, or of the files of a folder in order of name."""
    digest = hashlib.sha256()
    try:
        for file in _files(path):
            with file.open("rb") as stream:
                while chunk := stream.read(1 << 20):
                    digest.update(chunk)
    except OSError as error:
        raise LabelError(f"cannot read {path}: {error.strerror}") from None
    return digest.hexdigest()


def _files(path: Path) -> list[Path]:
    return sorted(path.glob("*.json")) if path.is_dir() else [path]


def _pictures(path: Path, size: tuple[int, int]) -> Iterator[tuple[str, Any]]:
    """Yield every picture as the file has it, with its place."""
    for file in _files(path):
        rest: dict[str, Any] = {}
        objects: list[dict[str, Any]] | None = None
        for index, (key, value) in enumerate(members(file, "frames", LabelError)):
            if key == "frames" and isinstance(value, dict) and "objects" in value:
                if objects is not None:
                    raise LabelError(f"{file}: holds a video's frames; give one picture per file")
                objects = _list(value, "objects", f"{file}: frame")  # one picture, 2018
            elif key in (None, "frames"):
                yield f"{file}: picture {index}", value
            elif key in _KEPT:
                rest[key] = value
        if "name" in rest:
            rest.setdefault("labels", objects)
            yield f"{file}: picture", rest
        _check_config(rest.get("config"), size, file)


def _check_config(config: Any, size: tuple[int, int], file: Path) -> None:
    stated = config.get("imageSize") if isinstance(config, dict) else None
    if stated is not None and _size(stated, f"{file}: config") != size:
        raise LabelError(
            f"{file}: config says imageSize {stated!r:.60}, but boxes were read as of "
            f"{size[0]}x{size[1]}; give the size with --frame-size"
        )


def _name(raw: Any, where: str) -> str:
    name = raw.get("name") if isinstance(raw, dict) else None
    if not isinstance(name, str) or not name:
        raise LabelError(f"{where} has no name")
    # It becomes part of paths and a line of list files.
    if not name.isprintable() or "/" in name or "\\" in name or name in (".", ".."):
        raise LabelError(f"{where}: the name must be a plain file name, not {name!r:.80}")
    return name if Path(name).suffix else f"{name}.jpg"


def _size(value: Any, where: str) -> tuple[int, int]:
    try:
        width, height = int(value["width"]), int(value["height"])
    except (KeyError, TypeError, ValueError, OverflowError):
        width = height = 0
    if width < 1 or height < 1:
        raise LabelError(f"{where}: a size needs width and height of 1 or more, not {value!r:.60}")
    return width, height


def _list(item: dict[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    values = item.get(key)
    if values is None:
        return []
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise LabelError(f"{where}: {key} must be a list of mappings, not {values!r:.60}")
    return values


def _mapping(item: dict[str, Any], where: str) -> dict[str, Any]:
    attributes = item.get("attributes")
    if attributes is None:
        return {}
    if not isinstance(attributes, dict):
        raise LabelError(f"{where}: attributes must be a mapping, not {attributes!r:.60}")
    return attributes


def _frame(
    raw: dict[str, Any], name: str, where: str, size: tuple[int, int], report: Report
) -> Frame:
    width, height = size if raw.get("size") is None else _size(raw["size"], where)
    attributes = {key: str(value) for key, value in _mapping(raw, where).items()}
    labels = _list(raw, "labels", where)
    if raw.get("labels") is None:
        report.add("unlabelled", where)
    found = (
        _box(label, where, index, width, height, report) for index, label in enumerate(labels)
    )
    boxes = tuple(box for box in found if box is not None)
    report.frames += 1
    report.boxes += len(boxes)
    report.crowd += sum(box.crowd for box in boxes)
    return Frame(name, MappingProxyType(attributes), boxes, width, height)


def _box(
    label: dict[str, Any], where: str, index: int, width: int, height: int, report: Report
) -> Box | None:
    category = str(label.get("category"))
    known = resolve(category)
    if known is None:
        report.name(category)
    if label.get("box2d") is None:
        report.add("no_box", where, index)
        return None
    if known is None:
        report.add("unknown_class", where, index)
        return None
    report.see(category)
    corners = numbers(label["box2d"])
    if corners is None:
        report.add("broken_box", where, index)
        return None
    x1, y1, x2, y2 = corners
    if x2 < x1 or y2 < y1:
        report.add("reversed", where, index)
        x1, x2, y1, y2 = min(x1, x2), max(x1, x2), min(y1, y2), max(y1, y2)
    if x1 == x2 or y1 == y2:
        report.add("empty_box", where, index)
        return None
    inside = max(x1, 0.0), max(y1, 0.0), min(x2, float(width)), min(y2, float(height))
    if inside[0] >= inside[2] or inside[1] >= inside[3]:
        report.add("outside", where, index)
        return None
    if inside != (x1, y1, x2, y2):
        report.add("clipped", where, index)
    name, ignored = known
    attributes = label.get("attributes") or {}
    if not isinstance(attributes, dict):
        raise LabelError(
            f"{where}, label {index}: attributes must be a mapping, not {attributes!r:.60}"
        )
    crowd = ignored or bool(attributes.get("crowd") or attributes.get("ignored"))
    return Box(name, *inside, crowd)


def numbers(corners: Any) -> tuple[float, float, float, float] | None:
    """Return x1, y1, x2, y2 of a ``box2d``; None if they are not four finite numbers."""
    try:
        x1, y1, x2, y2 = (float(corners[key]) for key in ("x1", "y1", "x2", "y2"))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return (x1, y1, x2, y2) if all(map(math.isfinite, (x1, y1, x2, y2))) else None
