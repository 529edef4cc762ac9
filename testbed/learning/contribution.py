"""What a client sends: its model and its Fisher information, as one safetensors message."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import torch
from safetensors.torch import load, save
from torch import Tensor

from testbed.errors import FusionError
from testbed.learning.blocks import Block, State
from testbed.learning.compression import (
    FULL,
    Upload,
    decode,
    decode_diagonal,
    encode,
    encode_diagonal,
)
from testbed.learning.factors import Diagonal, Factor, Fisher, Kind, Kronecker, zero
from testbed.learning.messages import message_bytes

_MODEL, _FISHER, _EXTRA = "model/", "fisher.", "extra/"
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
        F_i by block, a sum over the client's samples; empty where a method asks for none.
    extra : mapping of str to Tensor
        What else a method asks for, see `testbed.learning.statistics`.
    """

    samples: int
    model: State
    fisher: Fisher
    extra: State = field(default_factory=dict)

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
    yield from contribution.extra.values()


def serialise_model(state: State) -> bytes:
    """Return a state dict as a safetensors message."""
    return save({_MODEL + name: value.contiguous() for name, value in state.items()})


def deserialise_model(message: bytes) -> dict[str, Tensor]:
    """Invert `serialise_model`.

    Raises
    ------
    FusionError
        If the message is truncated or damaged.
    """
    return _part(_loaded(message, "model"), _MODEL)


def serialise(contribution: Contribution, upload: Upload = FULL) -> bytes:
    """Return a contribution as a safetensors message, its Fisher in the form of `upload`."""
    return save(_named(contribution, upload))


def _named(contribution: Contribution, upload: Upload) -> dict[str, Tensor]:
    """Return the tensors of a contribution's message by name."""
    tensors = {_MODEL + name: value.contiguous() for name, value in contribution.model.items()}
    for name, factor in contribution.fisher.items():
        if isinstance(factor, Kronecker):
            parts = encode("a", factor.a, upload) | encode("g", factor.g, upload)
        else:
            parts = encode_diagonal("f", factor.f, upload)
        tensors |= {f"{_FISHER}{part}/{name}": value for part, value in parts.items()}
    tensors |= {_EXTRA + name: value.contiguous() for name, value in contribution.extra.items()}
    tensors[_SAMPLES] = torch.tensor([contribution.samples])
    return tensors


def deserialise(message: bytes) -> Contribution:
    """Return the contribution that was received, in full form.

    Raises
    ------
    FusionError
        If the message is truncated or not a contribution.
    """
    tensors = _loaded(message, "contribution")
    try:
        samples = int(tensors[_SAMPLES])
        blocks: dict[str, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            if key.startswith(_FISHER):
                part, _, name = key.removeprefix(_FISHER).partition("/")
                blocks.setdefault(name, {})[part] = value
        fisher = {name: _factor(parts) for name, parts in blocks.items()}
    except Exception as error:  # tensors of any shape and type may stand in a message
        raise FusionError(f"not a contribution message: {error}") from error
    return Contribution(samples, _part(tensors, _MODEL), fisher, _part(tensors, _EXTRA))


def received(contribution: Contribution, upload: Upload) -> Contribution:
    """Return what the coordinator has after `contribution` was sent in the form of `upload`.

    Numbers that are not finite have no reduced form and arrive as they are, to be refused.
    """
    if upload.form == "full" or not contribution.finite():
        return contribution
    return deserialise(serialise(contribution, upload))


def contribution_bytes(
    model: State,
    blocks: Sequence[Block],
    kind: Kind | None,
    upload: Upload = FULL,
    extra: State = MappingProxyType({}),
) -> int:
    """Return the serialised size of any contribution with these shapes; None: no Fisher."""
    with torch.device("meta"):  # nothing of it is ever in memory
        fisher = {block.name: zero(block, kind) for block in blocks} if kind else {}
        like = [
            {name: value.to("meta") for name, value in each.items()} for each in (model, extra)
        ]
        return message_bytes(_named(Contribution(0, like[0], fisher, like[1]), upload))


def _loaded(message: bytes, what: str) -> dict[str, Tensor]:
    """Return the tensors of a message, by name: safetensors keeps no order."""
    try:
        return dict(sorted(load(message).items()))
    except Exception as error:  # of its own, undocumented types
        raise FusionError(f"not a {what} message: {error}") from error


def _factor(parts: Mapping[str, Tensor]) -> Factor:
    if any(part.startswith("f") for part in parts):
        return Diagonal(decode_diagonal("f", parts))
    return Kronecker(decode("a", parts), decode("g", parts))


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
