"""Pictures on disk, and whether they are those of the labels."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from bdd100k_tools.errors import PictureError
from bdd100k_tools.labels import Frame

SUFFIXES = frozenset({".jpg", ".jpeg", ".png"})


@dataclass(frozen=True)
class Checked:
    """What a comparison of labels and pictures found, by picture name.

    Attributes
    ----------
    pictures : int
        Labelled pictures.
    missing, extra, corrupt : tuple of str
        Without a file; files without labels; files that cannot be decoded.
    wrong_size : tuple of str
        "name: found WxH, expected WxH".
    """

    pictures: int
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    corrupt: tuple[str, ...]
    wrong_size: tuple[str, ...]

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not (self.missing or self.extra or self.corrupt or self.wrong_size)


def listing(folder: Path) -> frozenset[str]:
    """Return the names of the pictures in a folder, which is read once.

    Raises
    ------
    PictureError
        If the folder cannot be read.
    """
    try:
        with os.scandir(folder) as entries:
            names = (entry.name for entry in entries)
            return frozenset(name for name in names if Path(name).suffix.lower() in SUFFIXES)
    except OSError as error:
        raise PictureError(f"cannot read {folder}: {error.strerror}") from None


def picture_size(path: Path) -> tuple[int, int]:
    """Return a picture's width and height, from its header."""
    try:
        with Image.open(path) as picture:
            return picture.size
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise PictureError(f"cannot read the picture {path}: {error}") from None


def check(
    frames: Iterable[Frame],
    folder: Path,
    size: tuple[int, int] | None = None,
    decode: bool = True,
) -> Checked:
    """Compare labelled pictures with a folder.

    Parameters
    ----------
    frames : iterable of Frame
    folder : Path
    size : (int, int), optional
        Every picture's expected size; by default what its labels refer to.
    decode : bool
        Decode every picture, which finds files that were cut off; otherwise only read the
        headers.
    """
    there = listing(folder)
    known: set[str] = set()
    missing, corrupt, wrong = [], [], []
    for frame in frames:
        known.add(frame.name)
        if frame.name not in there:
            missing.append(frame.name)
            continue
        expected = size or (frame.width, frame.height)
        found = _decoded_size(folder / frame.name, decode)
        if found is None:
            corrupt.append(frame.name)
        elif found != expected:
            wrong.append("{}: found {}x{}, expected {}x{}".format(frame.name, *found, *expected))
    return Checked(
        len(known),
        tuple(missing),
        tuple(sorted(there - known)),
        tuple(corrupt),
        tuple(wrong),
    )


def _decoded_size(path: Path, decode: bool) -> tuple[int, int] | None:
    try:
        with Image.open(path) as picture:
            if decode:
                picture.load()
            return picture.size
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return None
