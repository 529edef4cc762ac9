"""What a client sends: its model and its Fisher information, as one safetensors message."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from safetensors.torch import load, save
from torch import Tensor

from testbed.errors import FusionError
from testbed.learning.blocks import Block, State
from testbed.learning.fisher import Diagonal, Factor, Fisher, Kind, Kronecker

_MODEL, _A, _G, _F = "model/", "fisher.a/", "fisher.g/", "fisher.f/"
# A tensor and not metadata, so that every contribution of a run has the same size.
_SAMPLES = "samples"


@dataclass(frozen=True, eq=False)
class Contribution:
    """One client's upload.

    Attributes
    ----------
    samples : int
        n_i, the client's number of samples.
    model : mapping of str to Tensor
        State dict after local training, W_i.
    fisher : mapping of str to Kronecker or Diagonal
        F_i by block, a sum over the client's samples.
    """

    samples: int
    model: State
    fisher: Fisher

    def finite(self) -> bool:
        """Whether every number is finite."""
        return all(bool(value.isfinite().all()) for value in _tensors(self))


def _tensors(contribution: Contribution) -> Iterator[Tensor]:
    yield from contribution.model.values()
    for factor in contribution.fisher.values():
        if isinstance(factor, Kronecker):
            yield from (factor.a, factor.g)
        else:
            yield factor.f


def serialise_model(state: State) -> bytes:
    """Return a state dict as a safetensors message."""
    return save({_MODEL + name: value.contiguous() for name, value in state.items()})


def deserialise_model(message: bytes) -> dict[str, Tensor]:
    """Invert `serialise_model`."""
    return {name.removeprefix(_MODEL): value for name, value in load(message).items()}


def serialise(contribution: Contribution) -> bytes:
    """Return a contribution as a safetensors message; symmetric factors are packed."""
    tensors = {_MODEL + name: value.contiguous() for name, value in contribution.model.items()}
    for name, factor in contribution.fisher.items():
        if isinstance(factor, Kronecker):
            tensors[_A + name] = _pack(factor.a)
            tensors[_G + name] = _pack(factor.g)
        else:
            tensors[_F + name] = factor.f.contiguous()
    tensors[_SAMPLES] = torch.tensor([contribution.samples])
    return save(tensors)


def deserialise(message: bytes) -> Contribution:
    """Invert `serialise`.

    Raises
    ------
    FusionError
        If the message is truncated or not a contribution.
    """
    try:
        tensors = load(message)
        samples = int(tensors[_SAMPLES])
        fisher: dict[str, Factor] = {}
        for name, value in tensors.items():
            if name.startswith(_A):
                block = name.removeprefix(_A)
                fisher[block] = Kronecker(_unpack(value), _unpack(tensors[_G + block]))
            elif name.startswith(_F):
                fisher[name.removeprefix(_F)] = Diagonal(value)
    except Exception as error:  # safetensors raises its own, undocumented types
        raise FusionError(f"not a contribution message: {error}") from error
    return Contribution(samples, _model_part(tensors), fisher)


def contribution_bytes(model: State, blocks: Sequence[Block], kind: Kind) -> int:
    """Return the serialised size of any contribution with these shapes."""
    fisher: dict[str, Factor] = {}
    for block in blocks:
        if kind == "kfac":
            square = torch.zeros(block.columns, block.columns)
            fisher[block.name] = Kronecker(square, torch.zeros(block.rows, block.rows))
        else:
            fisher[block.name] = Diagonal(torch.zeros(block.rows, block.columns))
    return len(serialise(Contribution(samples=0, model=model, fisher=fisher)))


def _model_part(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(_MODEL): value
        for name, value in tensors.items()
        if name.startswith(_MODEL)
    }


def _pack(factor: Tensor) -> Tensor:
    """Keep the upper triangle of a symmetric matrix (k, k) as k (k + 1) / 2 numbers."""
    rows, columns = torch.triu_indices(*factor.shape)
    return factor[rows, columns]


def _unpack(packed: Tensor) -> Tensor:
    size = (math.isqrt(8 * packed.numel() + 1) - 1) // 2
    factor = packed.new_zeros(size, size)
    rows, columns = torch.triu_indices(size, size)
    factor[rows, columns] = packed
    factor[columns, rows] = packed
    return factor
