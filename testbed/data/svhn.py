"""Street View House Numbers, cropped digits, as two MATLAB files.

Source: Y. Netzer et al., "Reading digits in natural images with unsupervised feature
learning", 2011, format 2.  The file ``extra_32x32.mat`` is not used.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from testbed.data.faults import gather
from testbed.data.kinds import DIGITS, Kind
from testbed.data.raw import Part, Raw, check_labels, held
from testbed.errors import DataError

_FILES = ("train_32x32.mat", "test_32x32.mat")
_SHAPE = (32, 32, 3)
_TEN = 10  # the label of the digit 0

HOLDS = " and ".join(_FILES)


def find(folder: Path) -> Path | None:
    """Return the folder if it holds one of the two files."""
    return folder if any((folder / name).is_file() for name in _FILES) else None


def read(folder: Path, kind: Kind) -> Raw:
    """Read the two files; the label 10 becomes the digit 0 it stands for.

    Raises
    ------
    DataError
        If a file is missing or broken.
    """
    if missing := [name for name in _FILES if not (folder / name).is_file()]:
        raise DataError(f"{folder}: no {missing[0]}; the folder must hold {HOLDS}")
    train, test = gather(partial(_part, folder / name) for name in _FILES)
    return Raw(train, test, kind.classes or DIGITS)


def _part(path: Path) -> Part:
    content = _load(path)
    if missing := [key for key in ("X", "y") if key not in content]:
        raise DataError(f"{path}: no variable {missing[0]}; not a file of cropped digits")
    x, y = content["X"], content["y"]
    # The files number the pictures last: (row, column, colour, picture).
    if x.dtype != np.uint8 or x.ndim != len(_SHAPE) + 1 or x.shape[:-1] != _SHAPE:
        raise DataError(
            f"{path}: X: shape {x.shape} of {x.dtype}, expected (32, 32, 3, n) of uint8"
        )
    if y.ndim == 2 and 1 in y.shape:
        y = y.reshape(-1)
    labels = check_labels(y, x.shape[-1], f"{path}: y", _TEN, least=1)
    return Part(held(x.transpose(3, 2, 0, 1)), labels % _TEN)


def _load(path: Path) -> dict[str, Any]:
    # Heavy, so not at import time.
    from scipy.io import loadmat

    try:
        content: dict[str, Any] = loadmat(path, variable_names=["X", "y"])
    except NotImplementedError:
        raise DataError(f"{path}: a MATLAB file of version 7.3; save it as version 7") from None
    except Exception as error:  # SciPy raises many for a broken file
        if isinstance(error, OSError) and error.strerror:
            raise DataError(f"cannot read {path}: {error.strerror}") from None
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path}: not a readable MATLAB file: {reason}; copy it again") from None
    return content
