"""What the rest of the testbed sees of a data set."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FINGERPRINT_DIGITS = 16


@dataclass(frozen=True, eq=False)
class Dataset:
    """Pictures and labels, a part to learn from and a part to test on.

    Attributes
    ----------
    name : str
    x_train : float32 array, shape (n, c, h, w)
        Grey values or colours in [0, 1].
    y_train : int64 array, shape (n,)
        Indices into `classes`.
    x_test, y_test : arrays
        As above.
    classes : tuple of str
    fingerprint : str
        16 hexadecimal digits that name the content of the arrays.
    writers_train : int64 array, shape (n,), or None
        Who wrote each training picture, indices into `writers`; None where the data set
        does not say.
    writers : tuple of str
        Names in the order of the files; each has at least one training picture.
    """

    name: str
    x_train: NDArray[np.float32]
    y_train: NDArray[np.int64]
    x_test: NDArray[np.float32]
    y_test: NDArray[np.int64]
    classes: tuple[str, ...]
    fingerprint: str
    writers_train: NDArray[np.int64] | None = None
    writers: tuple[str, ...] = ()


def fingerprint(*arrays: NDArray[Any]) -> str:
    """Hash shapes, data types and bytes of arrays, in order (SHA-256, 16 digits)."""
    digest = hashlib.sha256()
    for array in arrays:
        # Little-endian, so that the name is the same on every machine.
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        digest.update(f"{array.shape}{array.dtype.str}".encode())
        digest.update(array.data)
    return digest.hexdigest()[:_FINGERPRINT_DIGITS]
