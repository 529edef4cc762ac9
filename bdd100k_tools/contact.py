"""A contact sheet: pictures with their labels and with what one or more detectors found."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from bdd100k_tools.classes import CLASSES
from bdd100k_tools.errors import PictureError
from bdd100k_tools.labels import Frame
from bdd100k_tools.output import new_file
from bdd100k_tools.predictions import Detections

COLOURS = (
    "#ff4d4d", "#ff9ecb", "#ffd400", "#ff8c1a", "#c77dff",
    "#8d5524", "#00e5ff", "#4da3ff", "#57e36b", "#ffffff",
)  # fmt: skip
"""One per class, in the order of `CLASSES`; chosen to stand out by day and by night."""

_MARGIN, _LINE = 6, 16
_BACKGROUND, _TEXT = "#202020", "#e8e8e8"
_Drawn = list[tuple[int, tuple[float, float, float, float], str]]


def draw_sheet(
    frames: Sequence[Frame],
    images: Path,
    path: Path,
    predictions: Mapping[str, Detections] | None = None,
    *,
    width: int = 480,
    least_score: float = 0.25,
) -> None:
    """Draw one row per picture into a PNG file: the labels, then each set of predictions.

    Parameters
    ----------
    frames : sequence of Frame
    images : Path
        The folder of the pictures, of any size.
    path : Path
    predictions : mapping of str to Detections, optional
        By heading, like "before" and "after"; `Detections.image` counts `frames`.
    width : int
        Of one picture on the sheet, in pixels.
    least_score : float
        Weaker detections are not drawn.

    Raises
    ------
    PictureError, OutputError
    """
    predictions = predictions or {}
    height = max(round(width * frame.height / frame.width) for frame in frames)
    cell = width + _MARGIN, height + _LINE + _MARGIN
    sheet = Image.new(
        "RGB",
        (cell[0] * (1 + len(predictions)) + _MARGIN, cell[1] * len(frames) + 3 * _LINE + _MARGIN),
        _BACKGROUND,
    )
    pen = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(11)
    _legend(pen, font, sheet.width)
    for column, heading in enumerate(["labels", *predictions]):
        pen.text((_MARGIN + column * cell[0], 2 * _LINE + 4), heading, _TEXT, font)
    for row, frame in enumerate(frames):
        picture = _open(images / frame.name, (width, round(width * frame.height / frame.width)))
        scale = width / frame.width
        top = 3 * _LINE + _MARGIN + row * cell[1]
        truth: _Drawn = [
            (box.index, (box.x1, box.y1, box.x2, box.y2), "crowd" if box.crowd else "")
            for box in frame.boxes
        ]
        columns = [truth, *(_found(d, row, least_score) for d in predictions.values())]
        for column, boxes in enumerate(columns):
            corner = (_MARGIN + column * cell[0], top)
            sheet.paste(_boxed(picture, boxes, scale, font), corner)
            drawn = f"{len(boxes)} {'box' if len(boxes) == 1 else 'boxes'}"
            drawn = drawn if column else f"{frame.name}, {drawn}"
            pen.text((corner[0], top + picture.height + 1), drawn, _TEXT, font)
    with new_file(path) as partial:
        sheet.save(partial, format="PNG")


def _open(path: Path, size: tuple[int, int]) -> Image.Image:
    try:
        with Image.open(path) as picture:
            return picture.convert("RGB").resize(size)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise PictureError(f"cannot read the picture {path}: {error}") from None


def _found(detections: Detections, image: int, least_score: float) -> _Drawn:
    part = detections.take((detections.image == image) & (detections.score >= least_score))
    return [
        (int(category), (float(x1), float(y1), float(x2), float(y2)), f"{score:.2f}")
        for category, (x1, y1, x2, y2), score in zip(
            part.category, part.boxes, part.score, strict=True
        )
    ]


def _boxed(
    picture: Image.Image,
    boxes: _Drawn,
    scale: float,
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
) -> Image.Image:
    """Return a copy with the boxes drawn; a note stands above a box that is as wide."""
    copy = picture.copy()
    pen = ImageDraw.Draw(copy)
    for index, (x1, y1, x2, y2), note in boxes:
        pen.rectangle((x1 * scale, y1 * scale, x2 * scale, y2 * scale), outline=COLOURS[index])
        if note and pen.textlength(note, font) <= (x2 - x1) * scale:
            spot = (x1 * scale, max(y1 * scale - 12, 0))
            pen.text(spot, note, COLOURS[index], font, stroke_width=1, stroke_fill="black")
    return copy


def _legend(
    pen: ImageDraw.ImageDraw, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int
) -> None:
    x, y = float(_MARGIN), 2.0
    for name, colour in zip(CLASSES, COLOURS, strict=True):
        step = 14 + pen.textlength(name, font) + 12
        if x + step > width:
            x, y = float(_MARGIN), y + _LINE
        pen.rectangle((x, y + 2, x + 9, y + 11), colour)
        pen.text((x + 14, y), name, _TEXT, font)
        x += step


def choose(names: Sequence[str], count: int, seed: int) -> list[int]:
    """Return the places of `count` pictures, or of all, picked by a hash of seed and name."""
    ranked = sorted(
        range(len(names)),
        key=lambda place: hashlib.sha256(f"{seed}\0{names[place]}".encode()).digest(),
    )
    return sorted(ranked[:count])
