"""A method's state as one message of bytes, and how much it weighs.

The message is a safetensors file: the tensors, numbered, and in the header's metadata the
rest of the state as JSON.  Reading it runs no code of the message's: what is made is what
the type asked for consists of, and nothing else.

A state is made of frozen dataclasses, tuples, mappings, tensors, numbers, strings and None.
A tensor that stands in several places is written once and read once.
"""

import json
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar

import torch
from safetensors.torch import load as load_tensors
from torch import Tensor

from testbed.errors import EditError
from testbed.learning.messages import ALIGNED, DTYPES

T = TypeVar("T")


def dump(state: Any) -> bytes:
    """Return a state as a safetensors message.

    Raises
    ------
    EditError
        If something in the state has no place in a message.
    """
    header, tensors = _header(state)
    parts = [value.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for value in tensors]
    return b"".join([header, *(part.numpy().tobytes() for part in parts)])


def storage_bytes(state: Any) -> int:
    """Return the length of a state's message, without writing it."""
    header, tensors = _header(state)
    return len(header) + sum(value.nbytes for value in tensors)


def load(message: bytes, type: type[T]) -> T:
    """Return the state in a message, every bit as it was.

    Parameters
    ----------
    message : bytes
    type : type
        The state's dataclass.

    Raises
    ------
    EditError
        If the message is damaged or is of another type.
    """
    try:
        length = int.from_bytes(message[:ALIGNED], "little")
        header = json.loads(message[ALIGNED : ALIGNED + length])
        written = json.loads(header["__metadata__"]["state"])
        state: T = _read(written, type, load_tensors(message))
    except Exception as error:  # of any type: anything may stand in a message
        name = type.__qualname__
        line = " ".join(f"{error.__class__.__name__}: {error}".split())
        raise EditError(f"not a message of a {type.__module__}.{name}: {line}") from error
    return state


def _header(state: Any) -> tuple[bytes, list[Tensor]]:
    """Return the message up to its tensors, and these in the order in which they follow."""
    found: dict[int, tuple[int, Tensor]] = {}
    written = json.dumps(as_json(state, found), separators=(",", ":"))
    # Wide types first, so that all are aligned.
    numbered = sorted(found.values(), key=lambda each: (-each[1].element_size(), each[0]))
    entries: dict[str, Any] = {"__metadata__": {"state": written}}
    offset = 0
    for number, value in numbered:
        if value.dtype not in DTYPES:
            raise EditError(f"a tensor of {value.dtype} has no place in a stored state")
        end = offset + value.nbytes
        entries[str(number)] = {
            "dtype": DTYPES[value.dtype],
            "shape": list(value.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNED)
    return len(text).to_bytes(ALIGNED, "little") + text, [value for _, value in numbered]


def as_json(value: Any, found: dict[int, tuple[int, Tensor]]) -> Any:
    """Return a value as JSON; tensors become numbers and are noted in `found`."""
    if isinstance(value, Tensor):
        return found.setdefault(id(value), (len(found), value))[0]
    if isinstance(value, Mapping):
        return [[as_json(key, found), as_json(each, found)] for key, each in value.items()]
    if isinstance(value, tuple | list):
        return [as_json(each, found) for each in value]
    if is_dataclass(value):
        named = {each.name: as_json(getattr(value, each.name), found) for each in fields(value)}
        return [type(value).__name__, named]
    if value is None or isinstance(value, str | int | float):
        return value
    raise EditError(f"a {type(value).__name__} has no place in a stored state")


def _read(written: Any, hint: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Invert `as_json` for a value of the type that `hint` declares."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Tensor:
        return tensors[str(int(written))]
    if origin in (typing.Union, UnionType):
        return _read(written, _alternative(written, arguments), tensors)
    if origin is tuple:
        each = arguments[:1] * len(written) if arguments[1:] == (...,) else arguments
        return tuple(_read(one, of, tensors) for one, of in zip(written, each, strict=True))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        key, value = arguments
        return {_read(one, key, tensors): _read(two, value, tensors) for one, two in written}
    if is_dataclass(hint) and isinstance(hint, type):
        name, named = written
        hints = typing.get_type_hints(hint)
        if name != hint.__name__ or named.keys() != {each.name for each in fields(hint)}:
            raise TypeError(f"{name} with {', '.join(named)} is not a {hint.__name__}")
        return hint(**{field: _read(one, hints[field], tensors) for field, one in named.items()})
    if hint is float and type(written) is int:
        return written
    if hint not in (str, int, float, bool, NoneType) or type(written) is not hint:
        raise TypeError(f"{written!r:.80} is not of type {hint}")
    return written


def _alternative(written: Any, alternatives: tuple[Any, ...]) -> Any:
    """Return which type of a union was written: None, the dataclass named, or the rest."""
    if written is None and NoneType in alternatives:
        return NoneType
    rest = [one for one in alternatives if one is not NoneType]
    if len(rest) == 1:
        return rest[0]
    return next(one for one in rest if one.__name__ == written[0])
