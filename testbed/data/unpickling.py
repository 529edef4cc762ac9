"""Reading a pickle as data: arrays, lists, dicts, strings and numbers, nothing else.

A pickle is a program, and `pickle.load` runs it.  Here the few names of NumPy that a
pickled array needs stand for functions of this module, which make an array out of bytes,
a shape and a type of number; every other name is refused before anything is called.
NumPy's own are not used even for arrays: what they would take from a crafted pickle goes
beyond numbers.
"""

import io
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.errors import DataError

_NUMBERS = frozenset(
    f"{kind}{size}" for kind, sizes in {"u": "1248", "i": "1248", "f": "248"}.items()
    for size in sizes
) | {"b1"}  # fmt: skip


class ForbiddenError(Exception):
    """A pickle wants something that is not data; the message is its name."""


def read_pickle(path: Path) -> Any:
    """Load a pickle of plain data; byte strings of Python 2 stay bytes.

    Raises
    ------
    DataError
        If it cannot be read, is broken, or names anything beyond arrays; the message has
        the file and the name.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    try:
        return _Unpickler(io.BytesIO(content), encoding="bytes").load()
    except ForbiddenError as error:
        raise DataError(
            f"{path}: refused, the pickle asks for {error} where only arrays, lists, dicts, "
            "strings and numbers are allowed; nothing of it was run, do not trust this file"
        ) from None
    except EOFError:
        raise DataError(f"{path}: truncated pickle; copy it again") from None
    except Exception as error:  # a broken pickle may raise any
        reason = " ".join(str(error).split()) or type(error).__name__
        fault = "truncated pickle" if "truncated" in reason else f"not a readable pickle: {reason}"
        raise DataError(f"{path}: {fault}; copy it again") from None


class _Type:
    """Stands for a NumPy data type, of numbers only."""

    __slots__ = ("name", "order")

    def __init__(self, name: Any, *_: Any) -> None:
        self.name = _text(name)
        self.order = "="
        if self.name not in _NUMBERS:
            raise ForbiddenError(f"an array of type {self.name!r}")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = _text(state[1])

    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self.name).newbyteorder(self.order)  # type: ignore[arg-type]


class _Array:
    """Stands for an array whose content follows."""

    __slots__ = ("value",)

    def __init__(self, *_: Any) -> None:
        self.value: NDArray[Any] = np.empty(0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, content = state
        self.value = _frombuffer(content, kind, shape, "F" if fortran else "C")


def _frombuffer(content: Any, kind: Any, shape: Any, order: Any) -> NDArray[Any]:
    if not isinstance(kind, _Type) or not isinstance(content, bytes | bytearray):
        raise ValueError("an array of something else than numbers")
    return np.frombuffer(content, kind.numpy()).reshape(shape, order="F" if order == "F" else "C")


def _scalar(kind: Any, content: Any) -> Any:
    return _frombuffer(content, kind, (), "C").item()


def _encode(text: Any, encoding: Any) -> bytes:
    """Stand for `codecs.encode`, with which Python 3 writes bytes the old way."""
    if not isinstance(text, str) or encoding != "latin1":
        raise ValueError(f"bytes encoded as {encoding!r}")
    return text.encode("latin1")


def _empty(*arguments: Any) -> bytes:
    """Stand for `bytes`, which the old way writes for no bytes at all."""
    if arguments:
        raise ForbiddenError(f"bytes of {arguments!r}")
    return b""


def _text(value: Any) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else str(value)


_ALLOWED: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Type,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): _empty,
    ("builtins", "bytes"): _empty,
    **{
        (f"numpy.{core}.{module}", name): function
        for core in ("core", "_core")
        for module, name, function in (
            ("multiarray", "_reconstruct", _Array),
            ("multiarray", "scalar", _scalar),
            ("numeric", "_frombuffer", _frombuffer),
        )
    },
}


# The one written in C can be made to fill the memory by a number of the memo.
class _Unpickler(pickle._Unpickler):
    def find_class(self, module: str, name: str, /) -> Any:
        found = _ALLOWED.get((module, name))
        if found is None:
            raise ForbiddenError(f"{module}.{name}")
        return found

    def load(self) -> Any:
        return _plain(super().load())


def _plain(value: Any) -> Any:
    """Put arrays in the place of what stood for them, and refuse what is no data."""
    if isinstance(value, _Array):
        return value.value
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    if isinstance(value, _Type):
        raise ForbiddenError("a data type")
    if not isinstance(value, str | bytes | int | float | np.ndarray | None):
        raise ForbiddenError(f"a {type(value).__name__}")
    return value
