"""YOLO's text labels: one line per box, ``class cx cy width height`` as shares of the picture."""

from collections.abc import Iterable
from pathlib import Path

from bdd100k_tools.classes import CLASSES
from bdd100k_tools.labels import Frame


def targets(frame: Frame) -> list[tuple[int, float, float, float, float]]:
    """Return class 0 to 9 and centre, width and height in [0, 1] of a picture's boxes.

    Crowd boxes are left out: the format has no mark for them, and trained as ordinary boxes
    they would teach "other vehicle" as car.
    """
    width, height = frame.width, frame.height
    return [
        (
            box.index,
            (box.x1 + box.x2) / 2 / width,
            (box.y1 + box.y2) / 2 / height,
            (box.x2 - box.x1) / width,
            (box.y2 - box.y1) / height,
        )
        for box in frame.boxes
        if not box.crowd
    ]


def label_text(frame: Frame) -> str:
    """Return the content of a picture's label file; "" for a background picture."""
    return "".join(
        f"{index} {cx:.6f} {cy:.6f} {w:.6f} {h:.6f}\n" for index, cx, cy, w, h in targets(frame)
    )


def write_yolo(frames: Iterable[Frame], folder: Path) -> int:
    """Write one label file per picture into an existing folder; return how many.

    Background pictures get an empty file, so that "no box" differs from "not labelled".
    """
    count = 0
    for frame in frames:
        (folder / f"{Path(frame.name).stem}.txt").write_text(label_text(frame), encoding="utf-8")
        count += 1
    return count


def data_yaml(splits: dict[str, str]) -> str:
    """Return the data set's YAML: where each split is, and the ten classes.

    There is no ``path``: the splits are relative to the file's own folder, wherever it is
    moved.
    """
    lines = [f"{split}: {place}" for split, place in splits.items()]
    names = [f"  {index}: {name}" for index, name in enumerate(CLASSES)]
    return "\n".join([*lines, "names:", *names]) + "\n"
