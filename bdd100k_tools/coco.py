"""COCO's instances file, with the ids of the official toolkit.

Categories are 1 to 10, a picture's id is its place in the label file, counted from 1, and
boxes are 1, 2, ... in the order of their pictures.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from bdd100k_tools.classes import CLASSES
from bdd100k_tools.labels import Box, Frame

Pixels = Literal["coco", "bdd100k"]
"""Whether a box from x1 to x2 is x2 - x1 wide, or x2 - x1 + 1 as the official toolkit has it."""

CATEGORIES = tuple({"id": index, "name": name} for index, name in enumerate(CLASSES, 1))


def bbox(box: Box, pixels: Pixels = "coco") -> list[float]:
    """Return x, y, width, height."""
    extra = 1.0 if pixels == "bdd100k" else 0.0
    return [box.x1, box.y1, box.x2 - box.x1 + extra, box.y2 - box.y1 + extra]


def annotation(
    box: Box, id_: int, image: int, pixels: Pixels = "coco", scale: tuple[float, float] = (1, 1)
) -> dict[str, Any]:
    """Return a box as COCO has it, its pixels multiplied by `scale`."""
    x, y, width, height = bbox(box, pixels)
    across, down = scale
    scaled = [x * across, y * down, width * across, height * down]
    return {
        "id": id_,
        "image_id": image,
        "category_id": box.index + 1,
        "bbox": scaled,
        "area": scaled[2] * scaled[3],
        "iscrowd": int(box.crowd),
        "ignore": 0,
    }


def write_coco(
    numbered: Iterable[tuple[int, Frame]],
    path: Path,
    size: tuple[int, int] | None = None,
    pixels: Pixels = "coco",
) -> int:
    """Write an instances file while the frames are read; return the number of boxes.

    Parameters
    ----------
    numbered : iterable of (int, Frame)
        Every picture with its id, ``enumerate(frames, 1)`` for the official ones.
    path : Path
    size : (int, int), optional
        Of the picture files, if they are not of the frames' size; the boxes are scaled.
    pixels : {"coco", "bdd100k"}
    """
    images: list[str] = []
    count = 0
    with path.open("w", encoding="utf-8") as stream:
        stream.write('{"annotations":[')
        for number, frame in numbered:
            width, height = size or (frame.width, frame.height)
            scale = width / frame.width, height / frame.height
            image = {
                "id": number,
                "file_name": frame.name,
                "width": width,
                "height": height,
                "attributes": dict(frame.attributes),
            }
            images.append(json.dumps(image, ensure_ascii=False))
            for box in frame.boxes:
                count += 1
                stream.write(",\n" if count > 1 else "\n")
                stream.write(json.dumps(annotation(box, count, number, pixels, scale)))
        stream.write('],\n"images":[\n' + ",\n".join(images))
        stream.write('],\n"categories":' + json.dumps(CATEGORIES) + "}\n")
    return count
