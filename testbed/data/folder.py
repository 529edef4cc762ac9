"""Pictures as files, one folder per class: ``cat/1.png``, ``dog/1.png``.

The class folders stand in ``train/`` and ``test/``, or directly in the folder: then a part
of each class is drawn for testing.
"""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from testbed.data.decoding import Header, decode, header, other_size
from testbed.data.faults import gather, refuse
from testbed.data.kinds import Kind
from testbed.data.raw import Bytes, IntArray, Part, Raw
from testbed.errors import DataError

_PARTS = ("train", "test")
_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff"})

HOLDS = "a folder of pictures per class, or train/ and test/ with such folders"

_Classes = dict[str, list[Path]]


def find(folder: Path) -> Path | None:
    """Return the folder if one of its folders, or of their parts, holds a picture."""
    places = [folder, *(folder / part for part in _PARTS)]
    found = any(_has_picture(inner) for place in places for inner in _folders(place))
    return folder if found else None


def read(folder: Path, kind: Kind) -> Raw:
    """Find the pictures and read their sizes; each is unpacked when it is asked for.

    Classes and files are in alphabetical order, numbers in names by their value.

    Raises
    ------
    DataError
        If a class is empty or unknown, a picture broken, or the sizes are mixed.
    """
    parted = [part for part in _PARTS if (folder / part).is_dir()]
    if len(parted) == 1:
        other = next(part for part in _PARTS if part not in parted)
        raise DataError(f"{folder}: has {parted[0]}/ but no {other}/; it must hold {HOLDS}")
    if not parted:
        found = _classes(folder)
        classes = tuple(found)
        return Raw(_part(found, classes, _check([found])), None, classes)
    train, test = gather(partial(_classes, folder / part) for part in _PARTS)
    if unknown := sorted(test.keys() - train.keys()):
        raise DataError(f"{folder / 'test'}: class {unknown[0]!r} has no folder in train/")
    classes = tuple(train)
    like = _check([train, test])
    return Raw(_part(train, classes, like), _part(test, classes, like), classes)


def _classes(place: Path) -> _Classes:
    found = {inner.name: _pictures(inner) for inner in _folders(place)}
    refuse([f"{place / name}: no pictures" for name, paths in found.items() if not paths])
    if not found:
        raise DataError(f"{place}: no folders of pictures")
    return found


def _check(parts: list[_Classes]) -> Header:
    """Read the first bytes of every picture: one size, and grey if all are."""
    paths = [path for part in parts for files in part.values() for path in files]
    headers = gather(partial(header, path, str(path)) for path in paths)
    first = headers[0]
    refuse(
        [
            f"{path}: {other_size((found.width, found.height), first)}"
            for path, found in zip(paths, headers, strict=True)
            if (found.width, found.height) != (first.width, first.height)
        ]
    )
    return Header(first.width, first.height, all(found.grey for found in headers))


def _part(found: _Classes, classes: tuple[str, ...], like: Header) -> Part:
    paths = [path for name in classes for path in found.get(name, ())]
    sizes = [len(found.get(name, ())) for name in classes]

    def pictures(chosen: IntArray) -> Bytes:
        return decode(((paths[i], str(paths[i])) for i in chosen), len(chosen), like)

    return Part(pictures, np.repeat(np.arange(len(classes)), sizes))


def _folders(place: Path) -> list[Path]:
    if not place.is_dir():
        return []
    inner = (path for path in place.iterdir() if path.is_dir() and path.name[0] != ".")
    return sorted(inner, key=_by_number)


def _pictures(place: Path) -> list[Path]:
    return sorted(_files(place), key=_by_number)


def _files(place: Path) -> Iterator[Path]:
    return (
        path
        for path in place.iterdir()
        if path.suffix.lower() in _SUFFIXES and path.name[0] != "." and path.is_file()
    )


def _has_picture(place: Path) -> bool:
    return any(True for _ in _files(place))


def _by_number(path: Path) -> list[tuple[int, str]]:
    return [
        (int(piece), "") if piece.isdecimal() else (-1, piece)
        for piece in re.split(r"(\d+)", path.name)
    ]
