"""CIFAR-10 as it is published: five batches to learn from and one to test on.

Source: A. Krizhevsky, "Learning multiple layers of features from tiny images", 2009, the
archives ``cifar-10-python.tar.gz`` and ``cifar-10-binary.tar.gz``.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.data.faults import gather
from testbed.data.kinds import OBJECTS, Kind
from testbed.data.raw import Bytes, IntArray, Part, Raw, check_labels, held
from testbed.data.unpickling import read_pickle
from testbed.errors import DataError

_TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
_TEST = "test_batch"
_BIN = ".bin"
_SHAPE = (3, 32, 32)  # red, green and blue planes, row by row
_PIXELS = 3 * 32 * 32

HOLDS = "data_batch_1 to data_batch_5 and test_batch (Python's, or all with .bin)"


def find_python(folder: Path) -> Path | None:
    """Return the folder if it holds any batch of the Python version."""
    return folder if any((folder / name).is_file() for name in (*_TRAIN, _TEST)) else None


def find_binary(folder: Path) -> Path | None:
    """Return the folder if it holds any batch of the binary version."""
    found = any((folder / f"{name}{_BIN}").is_file() for name in (*_TRAIN, _TEST))
    return folder if found else None


def read_python(folder: Path, kind: Kind) -> Raw:
    """Read the pickled batches, without running anything they hold.

    Raises
    ------
    DataError
        If a batch is missing, broken, or asks for more than data.
    """
    return _read(folder, "", kind)


def read_binary(folder: Path, kind: Kind) -> Raw:
    """Read the batches of 3073-byte records: a label, then the three planes.

    Raises
    ------
    DataError
        If a batch is missing or broken.
    """
    return _read(folder, _BIN, kind)


def _read(folder: Path, suffix: str, kind: Kind) -> Raw:
    paths = [folder / f"{name}{suffix}" for name in (*_TRAIN, _TEST)]
    if missing := [path.name for path in paths if not path.is_file()]:
        raise DataError(f"{folder}: no {missing[0]}; the folder must hold {HOLDS}")
    most = len(kind.classes or OBJECTS) - 1
    batch = _binary_batch if suffix else _python_batch
    *train, test = gather(partial(batch, path, most) for path in paths)
    x = np.concatenate([pictures for pictures, _ in train])
    y = np.concatenate([labels for _, labels in train])
    return Raw(Part(held(x), y), Part(held(test[0]), test[1]), kind.classes or OBJECTS)


def _python_batch(path: Path, most: int) -> tuple[Bytes, IntArray]:
    content = read_pickle(path)
    if not isinstance(content, dict):
        raise DataError(
            f"{path}: a {type(content).__name__}, expected a dict; not a CIFAR-10 batch"
        )
    named = {_text(key): value for key, value in content.items()}
    if missing := [key for key in ("data", "labels") if key not in named]:
        told = ", ".join(sorted(named)) or "nothing"
        raise DataError(f"{path}: no {missing[0]!r} but {told}; not a CIFAR-10 batch")
    x = named["data"]
    if not isinstance(x, np.ndarray) or x.dtype != np.uint8 or x.shape[1:] != (_PIXELS,):
        told = f"shape {x.shape} of {x.dtype}" if isinstance(x, np.ndarray) else type(x).__name__
        raise DataError(f"{path}: data: {told}, expected (n, {_PIXELS}) of uint8")
    y = check_labels(_whole_numbers(named["labels"]), len(x), f"{path}: labels", most)
    return x.reshape(-1, *_SHAPE), y


def _whole_numbers(labels: Any) -> NDArray[Any]:
    """Make an array of a list of whole numbers; of anything else one that is refused."""
    if isinstance(labels, np.ndarray):
        return labels
    if isinstance(labels, list) and all(type(label) is int for label in labels):
        try:
            return np.array(labels, np.int64)
        except OverflowError:
            pass
    return np.array(labels, object)


def _text(key: Any) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key)


def _binary_batch(path: Path, most: int) -> tuple[Bytes, IntArray]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    records, rest = divmod(len(content), 1 + _PIXELS)
    if rest:
        raise DataError(
            f"{path}: truncated, {len(content)} bytes are {records} records of "
            f"{1 + _PIXELS} and {rest} bytes more; copy it again"
        )
    table = np.frombuffer(content, np.uint8).reshape(-1, 1 + _PIXELS)
    y = check_labels(table[:, 0], records, str(path), most)
    return table[:, 1:].reshape(-1, *_SHAPE), y
