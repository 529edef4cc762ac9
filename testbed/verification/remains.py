"""What a client's tensors would look like if something still held them."""

import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from testbed.learning.blocks import State
from testbed.learning.contribution import Contribution
from testbed.learning.fisher import Kronecker

# So many neighbouring numbers do not recur by chance, in float32 as in float64.
_LENGTH = 8


@dataclass(frozen=True)
class Fragment:
    """Neighbouring numbers out of one tensor of one client.

    Attributes
    ----------
    tensor : str
    raw : tuple of bytes
        As they lie in memory or in a file, in the tensor's own precision and in double.
    """

    tensor: str
    raw: tuple[bytes, ...]


def fragments(contribution: Contribution, initial: State) -> tuple[Fragment, ...]:
    """Take a fragment out of every tensor of a contribution that is long enough.

    It comes from the middle, from numbers that are the client's own: different from each
    other, from zero and from the common initial model.  Out of a symmetric factor it comes
    from one row of the upper triangle, so that it stands in the packed message as well.
    """
    rows: dict[str, Tensor] = {}
    for name, value in contribution.model.items():
        own = torch.where(value == initial[name], 0, value)
        rows[name] = own.reshape(1, -1)
    for name, factor in contribution.fisher.items():
        if isinstance(factor, Kronecker):
            rows[f"A of {name}"] = factor.a.triu()
            rows[f"G of {name}"] = factor.g.triu()
        else:
            rows[f"F of {name}"] = factor.f.reshape(1, -1)
    found = ((name, _window(value)) for name, value in rows.items())
    return tuple(
        Fragment(name, tuple({_raw(window), _raw(window.double())}))
        for name, window in found
        if window is not None
    )


def _window(rows: Tensor) -> Tensor | None:
    """Return neighbours within a row that are distinct and not zero, or None."""
    if rows.shape[1] < _LENGTH or not rows.is_floating_point():
        return None
    windows = rows.unfold(1, _LENGTH, 1).reshape(-1, _LENGTH)
    windows = windows[(windows != 0).all(dim=1)]
    ordered = windows.sort(dim=1).values
    windows = windows[(ordered.diff(dim=1) != 0).all(dim=1)]
    return windows[len(windows) // 2] if len(windows) else None


def _raw(tensor: Tensor) -> bytes:
    return tensor.contiguous().numpy().tobytes()


def occurring(wanted: Iterable[Fragment], where: bytes) -> Iterator[str]:
    """Yield the tensors of which a fragment stands in `where`."""
    for fragment in wanted:
        if any(raw in where for raw in fragment.raw):
            yield fragment.tensor


def buffers(root: object) -> Iterator[bytes]:
    """Yield the memory of every tensor, array and byte string reachable from `root`.

    Follows what the garbage collector follows: attributes, containers, closures, the locals
    of suspended generators.  A view brings the whole memory it looks into.  Classes, modules
    and a function's globals are the program and not its state.
    """
    seen: dict[int, object] = {}
    storages: set[int] = set()
    waiting = [root]
    while waiting:
        item = waiting.pop()
        if id(item) in seen or isinstance(item, type | ModuleType):
            continue
        seen[id(item)] = item  # kept alive, so that its id is not given away
        if isinstance(item, Tensor):
            storage = item.untyped_storage()
            if storage.data_ptr() not in storages:
                storages.add(storage.data_ptr())
                yield _storage(storage)
            waiting += [item.grad if item.is_leaf else None, *_graph(item.grad_fn)]
        elif isinstance(item, np.ndarray):
            yield item.tobytes()
            waiting.append(item.base)
        elif isinstance(item, bytes | bytearray | memoryview):
            yield bytes(item)
        if isinstance(item, FunctionType):
            waiting += [item.__closure__, item.__defaults__, item.__kwdefaults__, item.__dict__]
        else:
            waiting += gc.get_referents(item)


def _storage(storage: Any) -> bytes:
    return torch.empty(0, dtype=torch.uint8).set_(storage).numpy().tobytes()


def _graph(node: Any) -> list[Any]:
    """Return what an autograd graph holds; the collector does not see into it."""
    held: list[Any] = []
    visited = set()
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in visited:
            visited.add(node)
            names = [name for name in dir(node) if name.startswith("_saved_")]
            held += [getattr(node, name, None) for name in (*names, "variable")]
            waiting += [following for following, _ in node.next_functions]
    return held


def files(folder: Path) -> list[Path]:
    """List every file below a folder, hidden ones included."""
    return sorted(path for path in folder.rglob("*") if path.is_file())
