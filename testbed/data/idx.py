"""The idx format of the MNIST family: a magic number, the shape, then bytes.

Format: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits".
"""

import gzip
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from testbed.errors import DataError

_WORD = 4
_BYTES = 0x08  # the format's code for unsigned bytes, its third byte


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
