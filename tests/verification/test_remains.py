"""Fragments of a contribution, and finding them in memory and on disk."""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from testbed.config import Experiment
from testbed.learning.client import inform
from testbed.learning.contribution import Contribution, serialise
from testbed.learning.fisher import Diagonal, Kronecker
from testbed.learning.task import Task
from testbed.verification.federation import Federation
from testbed.verification.remains import Fragment, buffers, files, fragments, occurring

NEEDLE = torch.arange(1.0, 9.0) / 7
FRAGMENT = Fragment("it", (NEEDLE.numpy().tobytes(), NEEDLE.double().numpy().tobytes()))


def reaches(root: Any) -> bool:
    return any(list(occurring([FRAGMENT], memory)) for memory in buffers(root))


class Attributes:
    def __init__(self, value: Any) -> None:
        self.value = value


class Slots:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def closure(value: Any) -> Any:
    return lambda: value


def default(value: Any) -> Any:
    def function(held: Any = value) -> Any:
        return held

    return function


def suspended(value: Any) -> Iterator[Any]:
    held = value

    def generator() -> Iterator[Any]:
        yield 1
        yield held

    running = generator()
    next(running)
    return running


def cached(value: Any) -> Any:
    function = lru_cache(lambda key: value)
    function(1)
    return function


def graph(value: Tensor) -> Tensor:
    """Only the backward pass still knows the value."""
    factor = torch.ones(8, requires_grad=True)
    return (factor * value).sum()


def gradient(value: Tensor) -> Tensor:
    leaf = torch.zeros(8, requires_grad=True)
    leaf.grad = value
    return leaf


def cyclic(value: Any) -> Any:
    loop: list[Any] = [value]
    loop.insert(0, loop)
    return loop


HIDING = [
    lambda v: v,
    lambda v: {"a": [(v,)]},
    lambda v: {v: 1},
    Attributes,
    Slots,
    closure,
    default,
    suspended,
    cached,
    cyclic,
    lambda v: v[:1],
    lambda v: v.view(2, 4).T,
    lambda v: v.double(),
    lambda v: v.numpy(),
    lambda v: v.numpy()[::3],
    lambda v: v.numpy().tobytes(),
    lambda v: bytearray(v.numpy().tobytes()),
    lambda v: torch.nn.Parameter(v),
    graph,
    gradient,
    lambda v: torch.cat([torch.zeros(3), v]),
]


@pytest.mark.parametrize("hide", HIDING)
def test_wherever_it_hides_it_is_found(hide: Any) -> None:
    assert reaches(Attributes([hide(NEEDLE.clone())]))


@pytest.mark.parametrize("other", [None, NEEDLE + 1, NEEDLE[:7].clone(), [1.0, 2.0], "text", len])
def test_what_is_something_else_is_not_found(other: Any) -> None:
    assert not reaches(Attributes([other]))


def test_the_program_is_not_the_state() -> None:
    """A function's module holds this test's fragment, which the function does not use."""
    assert not reaches(lambda: 1)
    assert not reaches(Slots)


def test_shared_memory_is_searched_once() -> None:
    value = NEEDLE.clone()
    assert len(list(buffers([value, value[:2], {"again": value.view(2, 4)}]))) == 1


# --- fragments -------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["kfac", "diagonal"])
def contribution(request: Any, experiment: Experiment, task: Task) -> Contribution:
    task = Federation.of(task, experiment, request.param).task
    return inform(task, 1, task.train(1, task.initial))


def test_fragments_stand_in_the_message_and_in_memory(
    contribution: Contribution, task: Task
) -> None:
    taken = fragments(contribution, task.initial)
    names = [fragment.tensor for fragment in taken]
    assert len(set(names)) == len(names)
    assert "7.weight" in names
    assert {name[0] for name in names if " of " in name} in ({"A", "G"}, {"F"})
    assert list(occurring(taken, serialise(contribution))) == names
    held = b"".join(buffers(contribution))
    assert list(occurring(taken, held)) == names


def test_fragments_are_the_clients_own(contribution: Contribution, task: Task) -> None:
    """Another client's contribution and the initial model hold none of them."""
    taken = fragments(contribution, task.initial)
    other = inform(task, 2, task.train(2, task.initial))
    assert not list(occurring(taken, serialise(other)))
    assert not list(occurring(taken, b"".join(buffers(task.initial))))


def test_a_copy_in_double_precision_is_found(contribution: Contribution, task: Task) -> None:
    taken = fragments(contribution, task.initial)
    copied = contribution.model["7.weight"].double().numpy().tobytes()
    assert list(occurring(taken, copied)) == ["7.weight"]


def test_untrained_short_and_constant_tensors_give_none() -> None:
    initial = {"still": torch.arange(9.0), "short": torch.zeros(7), "flat": torch.zeros(20)}
    model = {"still": torch.arange(9.0), "short": torch.arange(7.0) + 5, "flat": torch.ones(20)}
    fisher = {"d": Diagonal(torch.zeros(3, 9)), "k": Kronecker(torch.eye(9), torch.ones(2, 2))}
    assert fragments(Contribution(1, model, fisher), initial) == ()


def test_a_symmetric_factor_gives_a_piece_of_one_row_above_the_diagonal() -> None:
    a = torch.from_numpy(np.random.default_rng(0).random((10, 10)).astype(np.float32))
    a = a + a.T
    (fragment,) = fragments(Contribution(1, {}, {"k": Kronecker(a, torch.eye(2))}), {})
    assert fragment.tensor == "A of k"
    pieces = {a[r, c : c + 8].numpy().tobytes() for r in range(10) for c in range(r, 3)}
    assert pieces & set(fragment.raw)


def test_every_file_is_listed(tmp_path: Path) -> None:
    (tmp_path / "a" / ".b").mkdir(parents=True)
    for name in ("one", "a/.two", "a/.b/three"):
        (tmp_path / name).write_text("")
    assert {path.name for path in files(tmp_path)} == {"one", ".two", "three"}
