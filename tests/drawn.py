"""Small pictures of coloured rectangles with BDD100K-style labels, made on the spot."""

import json
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from bdd100k_tools import CLASSES, SIZE
from bdd100k_tools.contact import COLOURS

# In frame pixels: whole pixels in a picture of 128x72.
_GRID = 10
_LEAST, _MOST = 20, 40


def make(
    folder: Path,
    train: int = 8,
    test: int = 4,
    size: tuple[int, int] = (128, 72),
    seed: int = 0,
) -> tuple[Path, Path, Path, Path]:
    """Draw two parts; return images, labels, test images and test labels.

    A picture shows one to three rectangles in the colour of their class; boxes are in
    pixels of the 1280x720 frame, whatever the `size` (width, height) of the files.
    """
    rng = np.random.default_rng(seed)
    paths = (*_part(folder, "train", train, size, rng), *_part(folder, "test", test, size, rng))
    return paths  # type: ignore[return-value]


def _part(
    folder: Path, part: str, count: int, size: tuple[int, int], rng: np.random.Generator
) -> tuple[Path, Path]:
    images, labels = folder / part, folder / f"{part}.json"
    images.mkdir(parents=True)
    frames = []
    for number in range(count):
        name, night = f"{part}_{number:03d}.jpg", number % 2 == 1
        boxes = [_box(rng) for _ in range(1 + number % 3)]
        picture = Image.new("RGB", size, "#202020" if night else "#808080")
        pen = ImageDraw.Draw(picture)
        for category, (x1, y1, x2, y2) in boxes:
            shown = size[0] / SIZE[0], size[1] / SIZE[1]
            corner = (x1 * shown[0], y1 * shown[1], x2 * shown[0] - 1, y2 * shown[1] - 1)
            pen.rectangle(corner, fill=COLOURS[category])
        picture.save(images / name, quality=95)
        frames.append(
            {
                "name": name,
                "attributes": {
                    "weather": "clear",
                    "scene": "city street",
                    "timeofday": "night" if night else "daytime",
                },
                "labels": [
                    {
                        "id": index,
                        "category": CLASSES[category],
                        "box2d": dict(zip(("x1", "y1", "x2", "y2"), corners, strict=True)),
                    }
                    for index, (category, corners) in enumerate(boxes)
                ],
            }
        )
    labels.write_text(json.dumps(frames), encoding="utf-8")
    return images, labels


def _box(rng: np.random.Generator) -> tuple[int, tuple[int, int, int, int]]:
    """Return a class and corners on the grid, inside the frame."""
    width, height = (int(each) * _GRID for each in rng.integers(_LEAST, _MOST, 2))
    x1 = int(rng.integers(0, (SIZE[0] - width) // _GRID + 1)) * _GRID
    y1 = int(rng.integers(0, (SIZE[1] - height) // _GRID + 1)) * _GRID
    return int(rng.integers(len(CLASSES))), (x1, y1, x1 + width, y1 + height)
