"""Whether an upload can be used: the coordinator's look at what a client sent.

Every check is a property that an honest upload has by construction, up to float32 rounding:

* names, shapes and types are those of the common initial model and of its blocks;
* every number is finite, and there is at least one sample;
* a Kronecker factor is symmetric, |A - A^T| <= 1e-5 max |A| entry by entry;
* it is positive semi-definite, lambda_min(A) >= -1e-5 tr(A), shown by a Cholesky
  factorisation of A + 1e-5 tr(A) I in float64;
* a diagonal Fisher, a sum of squares, is not negative.

Float32 rounding moves the eigenvalues of a sum of outer products by less than 1e-6 tr(A);
real factors were seen to reach -1e-8 tr(A).  The factorisation costs n^3 / 3 operations per
factor, which is milliseconds for LeNet, where training takes seconds.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from testbed.learning.blocks import Block, State
from testbed.learning.contribution import Contribution
from testbed.learning.factors import Diagonal, Factor, Kind, Kronecker

_ROUNDING = 1e-5
T = TypeVar("T")


@dataclass(frozen=True)
class Unusable:
    """What stands in the place of an upload that cannot be used.

    Attributes
    ----------
    reason : str
        In a few words.
    phase : {"train", "fisher", "upload"}
        What it went wrong with.  A client whose own work failed has sent nothing.
    """

    reason: str
    phase: Literal["train", "fisher", "upload"] = "upload"


def accept(upload: T | Unusable, inspect: Callable[[Any], str | None]) -> T | Unusable:
    """Return an upload if there is one and `inspect` finds nothing wrong, else what is."""
    if isinstance(upload, Unusable):
        return upload
    reason = inspect(upload)
    return upload if reason is None else Unusable(reason)


def inspect(
    contribution: Contribution,
    blocks: Sequence[Block],
    initial: State,
    kind: Kind | None,
    extra: State = MappingProxyType({}),
) -> str | None:
    """Return why a contribution cannot be used, in a few words, or None if it can.

    Parameters
    ----------
    contribution : Contribution
        As received.
    blocks : sequence of Block
        Of the network that was sent out.
    initial : mapping of str to Tensor
        The common initial model.
    kind : {"kfac", "diagonal"} or None
        The Fisher that was asked for, if one was.
    extra : mapping of str to Tensor
        Tensors of the names, shapes and types of what else was asked for.

    Examples
    --------
    >>> block, initial = Block("fc", (1, 2), bias=False), {"fc.weight": torch.zeros(1, 2)}
    >>> fisher = {"fc": Diagonal(torch.tensor([[1.0, -1.0]]))}
    >>> inspect(Contribution(5, initial, fisher), [block], initial, "diagonal")
    'the Fisher of fc has a negative entry'
    """
    if contribution.samples < 1:
        return f"its number of samples is {contribution.samples}"
    wanted = {block.name: block for block in blocks} if kind else {}
    return (
        inspect_model(contribution.model, initial)
        or _names("the Fisher of ", contribution.fisher, wanted)
        or _first(
            _factor(wanted[name], each, kind) for name, each in contribution.fisher.items() if kind
        )
        or inspect_model(contribution.extra, extra)
    )


def inspect_model(model: State, initial: State) -> str | None:
    """Return why a model cannot be used, in a few words, or None if it can."""
    return _names("", model, initial) or _first(
        _tensor(name, model[name], like) for name, like in initial.items()
    )


def _first(reasons: Iterable[str | None]) -> str | None:
    return next(filter(None, reasons), None)


def _names(what: str, found: Mapping[str, object], wanted: Mapping[str, object]) -> str | None:
    for name in wanted:
        if name not in found:
            return f"{what}{name} is missing"
    for name in found:
        if name not in wanted:
            return f"{what}{name} is foreign to the model"
    return None


def _tensor(name: str, value: Tensor, like: Tensor) -> str | None:
    if value.shape != like.shape:
        return f"{name} has shape {tuple(value.shape)}, not {tuple(like.shape)}"
    if value.dtype != like.dtype:
        return f"{name} has type {value.dtype}, not {like.dtype}"
    if not value.isfinite().all():
        return f"{name} holds NaN or infinite numbers"
    return None


def _factor(block: Block, factor: Factor, kind: Kind) -> str | None:
    """Return the first thing that is wrong with the Fisher of a block."""
    form = "kfac" if isinstance(factor, Kronecker) else "diagonal"
    if form != (wanted := "diagonal" if block.norm else kind):
        return f"the Fisher of {block.name} is {form}, not {wanted}"
    for symbol, value, shape in _parts(block, factor):
        name = f"the Fisher{symbol} of {block.name}"
        wrong = _tensor(name, value, torch.empty(shape, device="meta"))
        if wrong:
            return wrong
        if isinstance(factor, Diagonal):
            if (value < 0).any():
                return f"{name} has a negative entry"
        elif not _symmetric(value):
            return f"{name} is not symmetric"
        elif not _semidefinite(value):
            return f"{name} is not positive semi-definite"
    return None


def _parts(block: Block, factor: Factor) -> Iterator[tuple[str, Tensor, tuple[int, int]]]:
    if isinstance(factor, Kronecker):
        yield "'s A", factor.a, (block.columns, block.columns)
        yield "'s G", factor.g, (block.rows, block.rows)
    else:
        yield "", factor.f, (block.rows, block.columns)


def _symmetric(a: Tensor) -> bool:
    return bool((a - a.T).abs().max() <= _ROUNDING * a.abs().max())


def _semidefinite(a: Tensor) -> bool:
    """Whether no eigenvalue is below -1e-5 tr(A)."""
    trace = float(a.diagonal().double().sum())
    if trace <= 0:
        return not a.any()
    shifted = a.double()
    shifted.diagonal().add_(_ROUNDING * trace)
    return int(torch.linalg.cholesky_ex(shifted).info) == 0
