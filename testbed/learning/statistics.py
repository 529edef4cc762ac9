"""What a client uploads with its model, by name.

A method names the statistic it needs, parts joined by ``+``: ``"fisher"`` for F-SOSA,
``"kfac+holdout"`` for FedFisher.  Each part is a pure function of (run seed, partition,
trained model), has the same shapes whatever was learned, and is billed by what it weighs.

=============== ===================================================================
part            content
=============== ===================================================================
model           nothing beside the model
fisher          the Fisher that `fisher.*` and `fusion.*` of the configuration describe
kfac            exact K-FAC factors as they are
diagonal        exact diagonal Fisher as it is
empirical       K-FAC factors of the true labels
holdout         ``holdout/x``, ``holdout/y``: pictures the client never trained on
gram            ``gram/<layer>``: input Gram matrix of each linear layer
projector       ``projector/<layer>``: null-space projector of each layer's inputs
classes         ``classes``: the client's number of samples of each class
=============== ===================================================================
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from testbed.learning import gram, projector
from testbed.learning.blocks import State, blocks
from testbed.learning.classification import classified
from testbed.learning.client import inform
from testbed.learning.compression import FULL, Upload
from testbed.learning.contribution import Contribution, contribution_bytes
from testbed.learning.factors import Factor, Kind
from testbed.learning.fisher import Estimator
from testbed.learning.flops import fisher_flops
from testbed.learning.shapes import once
from testbed.learning.task import Task

HELD_OUT = 500  # pictures in all, FedFisher's number


def _nothing(*_: object) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Part:
    """One part of a statistic.

    Attributes
    ----------
    kind : callable
        (task) -> the kind of Fisher it holds, or None.
    fisher : callable
        (task, partition, trained model) -> Fisher by block.
    extra : callable
        (task, partition, trained model) -> other tensors by name.
    extra_like : callable
        (task, partition) -> tensors of the same names, shapes and types.
    flops : callable
        (task) -> floating-point operations per sample.
    upload : callable
        (task) -> the form in which the Fisher is sent.
    """

    kind: Callable[[Task], Kind | None] = lambda task: None
    fisher: Callable[[Task, int, State], Mapping[str, Factor]] = _nothing
    extra: Callable[[Task, int, State], dict[str, Tensor]] = _nothing
    extra_like: Callable[[Task, int], dict[str, Tensor]] = _nothing
    flops: Callable[[Task], int] = lambda task: 0
    upload: Callable[[Task], Upload] = lambda task: FULL


def _plain(kind: Kind, estimator: Estimator) -> Part:
    """Return the part that sends a Fisher as it is computed."""
    return Part(
        kind=lambda task: kind,
        fisher=lambda task, part, state: task.information(part, state, kind, estimator),
        flops=lambda task: fisher_flops(
            task.model, task.shape, 1, len(task.classes), kind, estimator
        ),
    )


def _held_out(task: Task, part: int, state: State | None = None) -> dict[str, Tensor]:
    """Return the client's share of about 500 held-out pictures, as bytes."""
    chosen = task.holdouts[part][: max(1, HELD_OUT // len(task.parts))]
    dataset = classified(task).dataset
    return {
        "holdout/x": torch.from_numpy(dataset.x_train[chosen]).mul(255).round().byte(),
        "holdout/y": torch.from_numpy(dataset.y_train[chosen]).to(torch.uint8),
    }


def _class_counts(task: Task, part: int, state: State | None = None) -> dict[str, Tensor]:
    _, labels = classified(task).samples(part)
    return {"classes": torch.bincount(labels, minlength=len(task.classes))}


PARTS: Mapping[str, Part] = {
    "model": Part(),
    "fisher": Part(
        kind=lambda task: task.kind,
        fisher=lambda task, part, state: inform(task, part, state).fisher,
        flops=lambda task: fisher_flops(
            task.model, task.shape, 1, len(task.classes), task.kind, task.estimator
        ),
        upload=lambda task: task.upload,
    ),
    "kfac": _plain("kfac", "exact"),
    "diagonal": _plain("diagonal", "exact"),
    "empirical": _plain("kfac", "empirical"),
    "holdout": Part(extra=_held_out, extra_like=_held_out),
    "gram": Part(extra=gram.gram, extra_like=gram.like, flops=gram.gram_flops),
    "projector": Part(
        extra=projector.projector, extra_like=projector.like, flops=projector.projector_flops
    ),
    "classes": Part(extra=_class_counts, extra_like=_class_counts),
}


def parts_of(statistic: str) -> tuple[Part, ...]:
    """Return the parts of a statistic by its name."""
    return tuple(PARTS[name] for name in statistic.split("+"))


def kind_of(task: Task, statistic: str) -> Kind | None:
    """Return the kind of Fisher in a statistic, if there is one."""
    return next(filter(None, (each.kind(task) for each in parts_of(statistic))), None)


def contribute(task: Task, part: int, state: State, statistic: str) -> Contribution:
    """Return what the coordinator receives from a client whose trained model is `state`."""
    factors: dict[str, Factor] = {}
    extra: dict[str, Tensor] = {}
    for each in parts_of(statistic):
        factors |= each.fisher(task, part, state)
        extra |= each.extra(task, part, state)
    return Contribution(len(task.parts[part]), state, factors, extra)


def extra_like(task: Task, part: int, statistic: str) -> dict[str, Tensor]:
    """Return tensors of the names, shapes and types of what is sent beside model and Fisher."""
    return {
        name: value
        for each in parts_of(statistic)
        for name, value in each.extra_like(task, part).items()
    }


def chooses(statistic: str) -> bool:
    """Whether clients send held-out pictures, for the coordinator to choose by."""
    return PARTS["holdout"] in parts_of(statistic)


def statistic_bytes(task: Task, statistic: str) -> Callable[[int], int]:
    """Return the function that tells the serialised size of a partition's upload."""
    forms = [each.upload(task) for each in parts_of(statistic) if each.kind(task)]
    upload, kind = forms[0] if forms else FULL, kind_of(task, statistic)

    def size(part: int) -> int:
        extra = extra_like(task, part, statistic)
        shapes = tuple((name, value.shape) for name, value in extra.items())
        return once(
            task.model,  # the rest is the same for every client
            ("contribution", kind, upload, shapes),
            lambda: contribution_bytes(task.initial, blocks(task.model), kind, upload, extra),
        )

    return size


def statistic_flops(task: Task, statistic: str) -> int:
    """Return the floating-point operations that a statistic takes per sample."""
    return sum(each.flops(task) for each in parts_of(statistic))
