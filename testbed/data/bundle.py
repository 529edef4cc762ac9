"""One ``.npz`` file: arrays of pictures and labels, or of packed JPEG pictures.

=============================  ==========================================================
``x_train``, ``x_test``        uint8, (n, height, width) or (n, height, width, 3)
``y_train``, ``y_test``        whole numbers, (n,)
``writer_train/_test``         optional: who wrote each picture, numbers or strings
``writer_ids``                 optional: names of writers, if those are numbers from 0
``class_names/_chars``         optional: names of the classes
``train_jpeg``, ``test_jpeg``  instead of ``x_*``: the bytes of all JPEG files in a row
``train_offsets``, ...         where each begins and, last, where the last ends
``train_labels``, ...          instead of ``y_*``
=============================  ==========================================================
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.data.decoding import decode, header
from testbed.data.faults import gather
from testbed.data.kinds import Kind
from testbed.data.raw import (
    Bytes,
    IntArray,
    Part,
    Raw,
    channels_first,
    check_labels,
    check_pictures,
    held,
)
from testbed.errors import DataError

_PARTS = ("train", "test")
_KEYS = ("x_train", "y_train", "x_test", "y_test")
_JPEG_KEYS = tuple(f"{part}_{what}" for part in _PARTS for what in ("jpeg", "offsets", "labels"))
_CLASSES = ("class_names", "class_chars")
_WRITERS = tuple(f"writer_{part}" for part in _PARTS)
_NAMES = "writer_ids"
_ZIP = b"PK"
_MOST_CLASSES = 1000

HOLDS = "an .npz bundle of x_train, y_train, x_test and y_test"

_Arrays = Mapping[str, NDArray[Any]]


def is_bundle(path: Path) -> bool:
    """Whether a file begins as an ``.npz`` file does."""
    try:
        with path.open("rb") as stream:
            return stream.read(len(_ZIP)) == _ZIP
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None


def read(path: Path, kind: Kind) -> Raw:
    """Read a bundle; JPEG pictures are unpacked when they are asked for.

    Raises
    ------
    DataError
        If the file is broken, an array missing, or the arrays do not fit together.
    """
    arrays = _load(path)
    packed = _JPEG_KEYS[0] in arrays
    keys = _JPEG_KEYS if packed else _KEYS
    if missing := [key for key in keys if key not in arrays]:
        raise DataError(
            f"{path}: {missing[0]} is not a file in the archive; it must hold {', '.join(keys)}"
        )
    classes = kind.classes or _class_names(arrays, path)
    most = len(classes or range(_MOST_CLASSES)) - 1
    part = _packed_part if packed else _plain_part
    train, test = gather(partial(part, arrays, name, kind, most, path) for name in _PARTS)
    if classes is None:
        highest = max(train.labels.max(), test.labels.max())
        classes = tuple(map(str, range(highest + 1)))
    shapes = [_picture_shape(found) for found in (train, test)]
    if shapes[0] != shapes[1]:
        raise DataError(
            f"{path}: pictures of {shapes[0]} to learn from and of {shapes[1]} to test on"
        )
    return _with_writers(Raw(train, test, classes), arrays, path)


def _picture_shape(part: Part) -> tuple[int, ...]:
    return part.pictures(np.arange(0)).shape[1:]


def _load(path: Path) -> _Arrays:
    known = {*_KEYS, *_JPEG_KEYS, *_WRITERS, *_CLASSES, _NAMES}
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as bundle:
            return {key: bundle[key] for key in bundle.files if key in known}
    except Exception as error:  # NumPy's reader raises many
        reason = str(error).partition("\n")[0]
        if "allow_pickle" in reason:
            reason = "an array of Python objects, not of numbers"
        raise DataError(f"{path}: not a readable .npz bundle: {reason}") from None


def _class_names(arrays: _Arrays, path: Path) -> tuple[str, ...] | None:
    for key in _CLASSES:
        if key in arrays:
            names = arrays[key]
            if (
                names.ndim != 1
                or names.dtype.kind != "U"
                or len(set(names.tolist())) != len(names)
            ):
                raise DataError(f"{path}: {key}: expected one string per class, each once")
            return tuple(names.tolist())
    return None


def _plain_part(arrays: _Arrays, name: str, kind: Kind, most: int, path: Path) -> Part:
    x = check_pictures(arrays[f"x_{name}"], kind.shape, f"{path}: x_{name}")
    y = check_labels(arrays[f"y_{name}"], len(x), f"{path}: y_{name}", most)
    return Part(held(channels_first(x)), y)


def _packed_part(arrays: _Arrays, name: str, kind: Kind, most: int, path: Path) -> Part:
    content, offsets = arrays[f"{name}_jpeg"], arrays[f"{name}_offsets"]
    if content.ndim != 1 or content.dtype != np.uint8:
        raise DataError(f"{path}: {name}_jpeg: {content.dtype}, expected (bytes,) of uint8")
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or len(offsets) < 2:
        raise DataError(
            f"{path}: {name}_offsets: shape {offsets.shape} of {offsets.dtype}, expected (n + 1,) "
            "of integers"
        )
    rising = (offsets[1:] > offsets[:-1]).all()
    if not rising or offsets[0] < 0 or offsets[-1] > len(content):
        raise DataError(
            f"{path}: {name}_offsets: they must rise from 0 to the {len(content)} bytes of "
            f"{name}_jpeg; is the file truncated?"
        )
    y = check_labels(arrays[f"{name}_labels"], len(offsets) - 1, f"{path}: {name}_labels", most)

    def packed(index: int) -> tuple[bytes, str]:
        start, end = offsets[index : index + 2]
        return content[start:end].tobytes(), f"{path}: {name} picture {index}"

    like = header(*packed(0))
    found = (like.height, like.width) if like.grey else (like.height, like.width, 3)
    if kind.shape is not None and found != kind.shape:
        raise DataError(f"{path}: {name}_jpeg: pictures of {found}, expected {kind.shape}")

    def pictures(chosen: IntArray) -> Bytes:
        return decode((packed(int(i)) for i in chosen), len(chosen), like)

    return Part(pictures, y)


def _with_writers(raw: Raw, arrays: _Arrays, path: Path) -> Raw:
    """Add who wrote what, numbered as in `writer_ids` or, without it, in sorted order."""
    given = {key: arrays[key] for key in _WRITERS if key in arrays}
    if not given:
        return raw
    if _WRITERS[0] not in given:
        raise DataError(f"{path}: {_WRITERS[1]} without {_WRITERS[0]}")
    parts = {key: part for key, part in zip(_WRITERS, (raw.train, raw.test), strict=True) if part}
    for key, who in given.items():
        if who.shape != parts[key].labels.shape or who.dtype.kind not in "iuU":
            raise DataError(
                f"{path}: {key}: shape {who.shape} of {who.dtype}, expected "
                f"{parts[key].labels.shape} of numbers or strings"
            )
    if _NAMES in arrays:
        names = tuple(map(str, arrays[_NAMES].reshape(-1).tolist()))
        numbers = {
            key: check_labels(who, len(who), f"{path}: {key}", len(names) - 1, what="writer")
            for key, who in given.items()
        }
    else:
        unique, inverse = np.unique(np.concatenate(list(given.values())), return_inverse=True)
        names = tuple(map(str, unique.tolist()))
        sizes = [len(who) for who in given.values()]
        pieces = np.split(inverse.astype(np.int64), np.cumsum(sizes)[:-1])
        numbers = dict(zip(given, pieces, strict=True))
    train, test = (
        Part(part.pictures, part.labels, numbers.get(key)) for key, part in parts.items()
    )
    return Raw(train, test, raw.classes, names)
