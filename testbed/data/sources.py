"""Where each data set comes from."""

from pathlib import Path

import numpy as np

from testbed.config.schema import DataConfig
from testbed.data.dataset import Dataset
from testbed.data.drawing import draw, outline
from testbed.data.kinds import DIGITS, GARMENTS
from testbed.data.raw import Part, Raw, held
from testbed.data.recognise import recognise, wanted
from testbed.errors import DataError

__all__ = ["DEBIAN_FASHION", "DIGITS", "GARMENTS", "load_dataset", "load_labels", "origin"]

DEBIAN_FASHION = Path("/usr/share/datasets/fashion-mnist")

_DIGITS_WHITE = 16


def load_dataset(config: DataConfig) -> Dataset:
    """Load the data set that `config` names, or the part of it that is asked for.

    ``digits`` comes with scikit-learn; all others are read from `config.path`, and
    nothing is ever downloaded.  Where there is no official test part, a stratified
    `config.test_share` is drawn with a seed of its own, so that runs of different seeds
    are tested on the same pictures.

    Raises
    ------
    DataError
        If files are missing or broken; the message names the file and the reason.
        `testbed.data.faults.FaultsError`, with a line for each, if several are.
    """
    return draw(_raw(config), config)


def load_labels(config: DataConfig) -> Dataset:
    """Load the same data set without its pictures, which are black and take no memory.

    Raises
    ------
    DataError
        If files are missing, or broken in what is read of them.
    """
    return outline(_raw(config), config)


def _raw(config: DataConfig) -> Raw:
    if config.name == "digits":
        return _digits()
    if config.name == "bdd100k":
        raise DataError(
            "bdd100k: street scenes with boxes come as pictures and label files; name them with "
            "data.path, data.labels, data.test_path and data.test_labels, and look at them with "
            "bdd100k-tools stats and check"
        )
    return recognise(_location(config), config.name).read()


def origin(config: DataConfig) -> str:
    """Say where `load_dataset` would read from; empty if a folder must be named first."""
    if config.name == "digits":
        return "package scikit-learn"
    path = config.path or (DEBIAN_FASHION if config.name == "fashion-mnist" else None)
    return "" if path is None else str(path)


def _digits() -> Raw:
    # Heavy, so not at import time.
    from sklearn.datasets import load_digits

    bunch = load_digits()
    pictures = bunch.images.astype(np.uint8)[:, None]
    train = Part(held(pictures), bunch.target.astype(np.int64))
    return Raw(train, None, DIGITS, white=_DIGITS_WHITE)


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
    raise DataError(f"{config.name}: {fault}; {remedy} {wanted(config.name)}")
