"""The idx format of the MNIST family: a magic number, the shape, then bytes.

A folder holds four such files, each plain or compressed; plain wins if both are there.

Format: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits".
"""

import gzip
import zlib
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from testbed.data.faults import gather
from testbed.data.kinds import DIGITS, Kind
from testbed.data.raw import Part, Raw, channels_first, check_labels, check_pictures, held
from testbed.errors import DataError

_PARTS = {
    part: (f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte")
    for part, prefix in (("train", "train"), ("test", "t10k"))
}
_FILES = tuple(name for names in _PARTS.values() for name in names)
FIRST = _FILES[0]
HOLDS = f"{', '.join(_FILES)} (plain or .gz)"

_WORD = 4
_BYTES = 0x08  # the format's code for unsigned bytes, its third byte


def find(folder: Path) -> Path | None:
    """Return the folder if it holds any of the four files."""
    return folder if any(_locate(folder, name) for name in _FILES) else None


def read(folder: Path, kind: Kind) -> Raw:
    """Read the four files.

    Raises
    ------
    DataError
        If one is missing or broken, or if pictures and labels do not fit together.
    """
    found = {name: _locate(folder, name) for name in _FILES}
    if missing := [name for name, path in found.items() if path is None]:
        raise DataError(f"{folder}: no {missing[0]}; the folder must hold {HOLDS}")
    paths = {name: path for name, path in found.items() if path is not None}
    train, test = gather(
        partial(_part, paths[pictures], paths[labels], kind)
        for pictures, labels in _PARTS.values()
    )
    return Raw(train, test, kind.classes or DIGITS)


def _locate(folder: Path, name: str) -> Path | None:
    places = (folder / name, folder / f"{name}.gz")
    return next((path for path in places if path.is_file()), None)


def _part(pictures: Path, labels: Path, kind: Kind) -> Part:
    x, y = gather(partial(read_idx, *file) for file in ((pictures, 3), (labels, 1)))
    x = check_pictures(x, kind.shape, str(pictures))
    classes = len(kind.classes or DIGITS)
    return Part(held(channels_first(x)), check_labels(y, len(x), str(labels), classes - 1))


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Read an idx file of unsigned bytes, plain or ``.gz``.

    Parameters
    ----------
    path : Path
    dimensions : int
        3 for pictures (n, height, width), 1 for labels (n,).

    Raises
    ------
    DataError
        If the file cannot be read, is of another format, or is too short or too long.
    """
    content = _read(path)
    header = (1 + dimensions) * _WORD
    if len(content) < header:
        raise DataError(f"{path}: {len(content)} bytes are too few for an idx file")
    magic, *shape = np.frombuffer(content, ">u4", 1 + dimensions).tolist()
    expected = _BYTES << 8 | dimensions
    if magic != expected:
        raise DataError(
            f"{path}: magic number {magic}, expected {expected} "
            f"(idx, unsigned bytes, {dimensions} dimensions); is it the right file?"
        )
    size = int(np.prod(shape, dtype=object))
    if len(content) - header != size:
        fault = "truncated" if len(content) - header < size else "too long"
        raise DataError(
            f"{path}: {fault}, {len(content) - header} bytes where the header promises {size}"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _read(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except EOFError:
        raise DataError(f"{path}: truncated gzip file; copy it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: not a valid gzip file: {error}") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
