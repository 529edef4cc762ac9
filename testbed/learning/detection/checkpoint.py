"""Reading a PyTorch checkpoint as data: tensors, and objects that stay inert.

A checkpoint is a zip archive of a pickle and the bytes of its tensors, and a pickle is a
program that `torch.load` may run.  Here every class and function of the libraries that a
checkpoint may name becomes an object that keeps the attributes it is given and does nothing;
any other name is refused before anything is called.
"""

import io
import math
import pickle
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from testbed.data.unpickling import ForbiddenError

_DTYPES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
_LIBRARIES = {
    "_codecs",
    "argparse",
    "collections",
    "datetime",
    "numpy",
    "pathlib",
    "torch",
    "types",
    "ultralytics",
}
_BUILTINS = {
    *("bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset", "int", "list"),
    *("object", "range", "set", "slice", "str", "tuple"),
}


class Inert:
    """Stands for an object of any class.

    Attributes
    ----------
    kept : mapping of str to object
        The attributes it was pickled with.
    """

    kept: Mapping[str, Any]

    def __new__(cls, *_: Any) -> "Inert":
        """Take any arguments."""
        made = super().__new__(cls)
        made.kept = {}
        return made

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.kept = state

    def _ignore(self, *_: Any) -> None:
        pass

    # What a pickle may call to fill dicts, lists and sets of other classes.
    __setitem__ = append = extend = add = _ignore


def read_checkpoint(path: Path) -> Any:
    """Load what `torch.save` wrote, without running any of it.

    Returns
    -------
    object
        Dicts, lists, tuples, strings, numbers, `Tensor` on the CPU and `Inert`.

    Raises
    ------
    ForbiddenError
        If the pickle names what a checkpoint has no need of; the message is the name.
    Exception
        Of any class, if the file is broken.
    """
    with zipfile.ZipFile(path) as archive:
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
            raise ValueError("a compressed archive, which PyTorch does not write")
        names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(names) != 1:
            raise ValueError("no data.pkl in the archive")
        root = names[0].removesuffix("data.pkl")
        order = f"{root}byteorder"
        if order in archive.namelist() and archive.read(order).decode() != sys.byteorder:
            raise ValueError("numbers in another byte order than this machine's")
        return _Unpickler(archive, root).load()


class _Dict(dict[Any, Any]):
    """Stands for an OrderedDict, without the attributes that one may have."""

    def __setstate__(self, state: Any) -> None:
        pass


class _Unpickler(pickle._Unpickler):
    """The unpickler written in Python: the other's memo may be made to fill the memory."""

    def __init__(self, archive: zipfile.ZipFile, root: str) -> None:
        super().__init__(io.BytesIO(archive.read(f"{root}data.pkl")))
        self.archive, self.root = archive, root
        self.storages: dict[str, Tensor] = {}

    def find_class(self, module: str, name: str, /) -> Any:
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        if found := _REBUILT.get((module, name)):
            return found
        builtin = module in ("builtins", "__builtin__") and name in _BUILTINS
        if builtin or module.partition(".")[0] in _LIBRARIES:
            return Inert
        raise ForbiddenError(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> Tensor:
        """Return the numbers of a storage as one row."""
        _, dtype, key, *_ = pid
        if key not in self.storages:
            content = self.archive.read(f"{self.root}data/{key}")
            self.storages[key] = (
                torch.frombuffer(bytearray(content), dtype=dtype)
                if content
                else torch.empty(0, dtype=dtype)
            )
        return self.storages[key]


def _tensor(storage: Tensor, offset: int, size: Any, stride: Any, *_: Any) -> Tensor:
    if math.prod(size) > storage.numel():
        raise ValueError(f"a tensor of shape {tuple(size)} out of {storage.numel()} numbers")
    return torch.as_strided(storage, size, stride, offset)


def _parameter(data: Tensor, *_: Any) -> Tensor:
    return data


_REBUILT: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): _Dict,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _parameter,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
}
