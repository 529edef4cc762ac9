"""Where each data set comes from, and the checks its files must pass."""

import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from testbed.config.schema import DataConfig
from testbed.data.dataset import Dataset, fingerprint
from testbed.data.idx import read_idx
from testbed.errors import DataError
from testbed.streams import Streams

Part = tuple[NDArray[np.uint8], NDArray[np.uint8]]

DIGITS = tuple("0123456789")
GARMENTS = (
    "t-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
DEBIAN_FASHION = Path("/usr/share/datasets/fashion-mnist")

_SIDE = 28
_WHITE = 255
_PARTS = {"train": "train", "test": "t10k"}
_ZIP = b"PK"
_BUNDLE_KEYS = ("x_train", "y_train", "x_test", "y_test")


def load_dataset(config: DataConfig) -> Dataset:
    """Load the data set that `config` names.

    ``digits`` comes with scikit-learn and has no official test part: a stratified
    `config.test_share` is drawn with a seed of its own, so that runs of different seeds
    are tested on the same pictures.  The others are read from the folder `config.path`
    (idx files, plain or ``.gz``) or from an ``.npz`` bundle.

    Raises
    ------
    DataError
        If files are missing or broken; the message names the file and the reason.
    """
    if config.name == "digits":
        return _digits(config.test_share)
    path = _location(config)
    train, test = _bundle(path) if path.is_file() else _official(path, config.name)
    classes = GARMENTS if config.name == "fashion-mnist" else DIGITS
    return _dataset(config.name, *_scaled(train), *_scaled(test), classes)


def origin(config: DataConfig) -> str:
    """Say where `load_dataset` would read from; empty if a folder must be named first."""
    if config.name == "digits":
        return "package scikit-learn"
    path = config.path or (DEBIAN_FASHION if config.name == "fashion-mnist" else None)
    return "" if path is None else str(path)


def _digits(test_share: float) -> Dataset:
    # Heavy, so not at import time.
    from sklearn.datasets import load_digits

    bunch = load_digits()
    y = bunch.target.astype(np.int64)
    x = (bunch.images / 16).astype(np.float32)[:, None]
    test = _stratified(y, test_share)
    return _dataset("digits", x[~test], y[~test], x[test], y[test], DIGITS)


def _stratified(labels: NDArray[np.int64], share: float) -> NDArray[np.bool_]:
    """Mark `share` of each class, at least one sample on either side."""
    rng = Streams(0).rng("data", "digits", "split")
    marked = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        size = min(max(round(share * len(members)), 1), len(members) - 1)
        marked[rng.permutation(members)[:size]] = True
    return marked


def _location(config: DataConfig) -> Path:
    path = origin(config)
    if path and Path(path).exists():
        return Path(path)
    fault = f"there is no {path}" if path else "it does not come with the testbed"
    remedy = (
        "run 'apt-get install dataset-fashion-mnist' or set data.path to"
        if config.name == "fashion-mnist"
        else "set data.path to"
    )
    raise DataError(f"{config.name}: {fault}; {remedy} a folder with {_expected()}")


def _expected() -> str:
    return ", ".join(name for part in _PARTS for name in _names(part)) + " (plain or .gz)"


def _names(part: str) -> tuple[str, str]:
    prefix = _PARTS[part]
    return f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"


def _official(folder: Path, name: str) -> tuple[Part, Part]:
    """Read the four idx files of a folder, or the one bundle ``<name>.npz`` in it."""
    bundle = folder / f"{name}.npz"
    found = {
        file: next((p for p in (folder / file, folder / f"{file}.gz") if p.is_file()), None)
        for part in _PARTS
        for file in _names(part)
    }
    if not any(found.values()) and bundle.is_file():
        return _bundle(bundle)
    if missing := [file for file, path in found.items() if path is None]:
        raise DataError(f"{folder}: no {missing[0]}; the folder must hold {_expected()}")
    pictures, labels, test_pictures, test_labels = (path for path in found.values() if path)
    return _part(pictures, labels), _part(test_pictures, test_labels)


def _part(pictures: Path, labels: Path) -> Part:
    return _checked(read_idx(pictures, 3), read_idx(labels, 1), str(pictures), str(labels))


def _bundle(path: Path) -> tuple[Part, Part]:
    """Read an ``.npz`` file with the arrays x_train, y_train, x_test and y_test."""
    try:
        with path.open("rb") as stream:
            # NumPy takes anything else for a pickle and offers to load it.
            if not stream.read(len(_ZIP)) == _ZIP:
                raise DataError(
                    f"{path}: not an .npz bundle; set data.path to one or to a folder with "
                    f"{_expected()}"
                )
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as bundle:
                arrays = {key: bundle[key] for key in _BUNDLE_KEYS}
    except KeyError as error:
        raise DataError(
            f"{path}: {error.args[0]}; it must hold {', '.join(_BUNDLE_KEYS)}"
        ) from None
    except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        reason = str(error).partition("\n")[0]
        if "allow_pickle" in reason:
            reason = "an array of Python objects, not of numbers"
        raise DataError(f"{path}: not a readable .npz bundle: {reason}") from None
    train, test = (
        _checked(
            arrays[f"x_{part}"], arrays[f"y_{part}"], f"{path}: x_{part}", f"{path}: y_{part}"
        )
        for part in _PARTS
    )
    return train, test


def _checked(x: NDArray[np.uint8], y: NDArray[np.uint8], pictures: str, labels: str) -> Part:
    """Refuse arrays that are not 28x28 pictures with one label from 0 to 9 each."""
    if x.dtype != np.uint8 or x.shape[1:] != (_SIDE, _SIDE):
        raise DataError(
            f"{pictures}: shape {x.shape} of {x.dtype}, expected (n, {_SIDE}, {_SIDE}) of uint8"
        )
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise DataError(f"{labels}: shape {y.shape} of {y.dtype}, expected (n,) of integers")
    if len(x) != len(y):
        raise DataError(f"{labels}: {len(y)} labels for {len(x)} pictures")
    if not len(y):
        raise DataError(f"{labels}: no labels")
    wrong = np.flatnonzero((y < 0) | (y >= len(DIGITS)))
    if wrong.size:
        raise DataError(f"{labels}: label {y[wrong[0]]} of sample {wrong[0]} is not in 0..9")
    return x, y


def _scaled(part: Part) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    pictures, labels = part
    return np.divide(pictures[:, None], _WHITE, dtype=np.float32), labels.astype(np.int64)


def _dataset(
    name: str,
    x_train: NDArray[np.float32],
    y_train: NDArray[np.int64],
    x_test: NDArray[np.float32],
    y_test: NDArray[np.int64],
    classes: tuple[str, ...],
) -> Dataset:
    mark = fingerprint(x_train, y_train, x_test, y_test)
    return Dataset(name, x_train, y_train, x_test, y_test, classes, mark)
