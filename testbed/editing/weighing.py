"""How much a stored state weighs whose tensors are left out.

A cost-only run knows the shapes of all tensors and makes none.  Its states hold stand-ins,
and the length of the message that `testbed.editing.storage` would write follows from a
`Layout` of each: no tensor is made and no text written.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from testbed.editing.clients import Client
from testbed.editing.storage import as_json
from testbed.errors import EditError
from testbed.learning.messages import ALIGNED, DTYPES

_Sizes = npt.NDArray[np.int64]
_POWERS = 10 ** np.arange(1, 19)
_SHELL = len('{"__metadata__":{"state":""}}')
_PAIR = len("[,]")
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Layout:
    """What a value with tensors adds to a message, but for the digits of numbers and offsets.

    Attributes
    ----------
    text : int
        Characters in the state's JSON, quoted as it is in the header.
    entries : int
        Characters of its tensors' entries in the header.
    sizes, widths : array of int
        Bytes of each tensor and of its elements, in the order in which they are found.
    """

    text: int
    entries: int
    sizes: _Sizes
    widths: _Sizes

    @classmethod
    def of(cls, value: Any) -> "Layout":
        """Lay out a value in which no tensor stands twice; they may be on the device ``meta``."""
        found: dict[int, tuple[int, Tensor]] = {}
        text = len(_quoted(as_json(value, found))) - _digits(len(found))
        tensors = [tensor for _, tensor in found.values()]
        return cls(
            text=text,
            entries=sum(map(_entry, tensors)),
            sizes=np.array([each.nbytes for each in tensors], np.int64),
            widths=np.array([each.element_size() for each in tensors], np.int64),
        )


def weigh(state: Any, layout_of: Callable[[Any], Layout | None]) -> int:
    """Return `storage_bytes` of the state that one with stand-ins stands for.

    Parameters
    ----------
    state : dataclass
    layout_of : callable
        The layout of a value that stands for one with tensors; None for any other.  No tensor
        stands in two places.
    """
    layouts: list[Layout] = []
    text = _SHELL + _length(state, layout_of, layouts)
    text += sum(layout.text + layout.entries for layout in layouts)
    sizes = np.concatenate([_NONE, *(layout.sizes for layout in layouts)])
    widths = np.concatenate([_NONE, *(layout.widths for layout in layouts)])
    ends = np.cumsum(sizes[np.argsort(-widths, kind="stable")])
    if len(ends):
        digits = np.searchsorted(_POWERS, ends, side="right") + 1
        # A number stands in the state and in the header; each end but the last is a start.
        text += 2 * _digits(len(ends)) + 1 + 2 * int(digits.sum()) - int(digits[-1])
    return ALIGNED + text + -text % ALIGNED + int(sizes.sum())


def _length(value: Any, layout_of: Callable[[Any], Layout | None], found: list[Layout]) -> int:
    """Return the characters of a value's JSON, the layouts that are `found` in it apart."""
    if isinstance(value, Client):
        return _client(value)
    if isinstance(value, str | int | float | None):
        return _text(value)
    if isinstance(value, tuple | list):
        if value and isinstance(value[0], Client):  # a population is long
            return _listed(list(map(_client, value)))
        return _listed([_length(each, layout_of, found) for each in value])
    if (layout := layout_of(value)) is not None:
        found.append(layout)
        return 0
    if isinstance(value, Mapping):
        return _listed(
            [
                _PAIR + _length(key, layout_of, found) + _length(each, layout_of, found)
                for key, each in value.items()
            ]
        )
    if not is_dataclass(value):
        raise EditError(f"a {type(value).__name__} has no place in a stored state")
    named = [
        _text(each.name) + 1 + _length(getattr(value, each.name), layout_of, found)
        for each in fields(value)
    ]
    return _listed((_text(type(value).__name__), _listed(named)))


@lru_cache(maxsize=4096)
def _client(client: Client) -> int:
    return len(_quoted(as_json(client, {})))


@lru_cache(maxsize=4096, typed=True)
def _text(value: str | int | float | None) -> int:
    return len(_quoted(value))


def _listed(lengths: Sequence[int]) -> int:
    """Return the characters of a list or an object, given those of what stands in it."""
    return 2 + max(0, len(lengths) - 1) + sum(lengths)


def _quoted(value: Any) -> str:
    """Return a value's JSON as it stands in a JSON string."""
    return json.dumps(json.dumps(value, separators=(",", ":")))[1:-1]


def _entry(tensor: Tensor) -> int:
    entry = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": []}
    return len(f',"":{json.dumps(entry, separators=(",", ":"))},')


def _digits(count: int) -> int:
    """Return how many digits the numbers 0, 1, ..., count - 1 have together.

    >>> _digits(11), _digits(0)
    (12, 0)
    """
    return count + sum(max(0, count - power) for power in _POWERS.tolist() if power < count)
