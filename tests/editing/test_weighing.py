"""What a state would weigh with its tensors, against the message that is really written."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.editing.clients import Client
from testbed.editing.storage import dump, storage_bytes
from testbed.editing.weighing import Layout, weigh
from testbed.errors import EditError
from testbed.fusion.fsosa import Fused
from testbed.learning.contribution import Contribution
from testbed.learning.factors import Diagonal, Kronecker


@dataclass(frozen=True)
class State:
    """One of everything that states hold."""

    population: tuple[Client, ...]
    lists: tuple[tuple[Client, ...], ...]
    start: Mapping[str, torch.Tensor] | None
    models: Mapping[Client, Mapping[str, torch.Tensor]]
    contributions: Mapping[Client, Contribution]
    fused: Fused
    count: int = 3
    share: float = 0.25
    flag: bool = True
    name: str = 'ä"\\'


DTYPES = (torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool)
SHAPES = st.lists(st.integers(0, 300), max_size=2).map(tuple)
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=6)
MODELS = st.dictionaries(NAMES, st.tuples(SHAPES, st.sampled_from(DTYPES)), max_size=4)
CLIENTS = st.lists(st.builds(Client, NAMES, st.integers(0, 10**6)), max_size=5, unique=True).map(
    tuple
)


def tensors(shapes: Mapping[str, Any], device: str = "cpu") -> dict[str, torch.Tensor]:
    return {
        name: torch.zeros(shape, dtype=dtype, device=device)
        for name, (shape, dtype) in shapes.items()
    }


def contribution(shapes: Mapping[str, Any], device: str = "cpu") -> Contribution:
    model = tensors(shapes, device)
    fisher = {
        "k": Kronecker(torch.zeros(3, 3, device=device), torch.zeros(2, 2, device=device)),
        "d": Diagonal(torch.zeros(2, 3, device=device)),
    }
    return Contribution(12, model, fisher, {"x": torch.zeros(2, dtype=torch.uint8, device=device)})


@settings(deadline=None, max_examples=80)
@given(CLIENTS, CLIENTS, MODELS)
def test_the_weight_is_the_length_of_the_message(
    population: tuple[Client, ...], members: tuple[Client, ...], shapes: Mapping[str, Any]
) -> None:
    """Stand-ins are told apart by their type; no tensor exists when the state is weighed."""

    def state(model: Any, contributed: Any, fused: Any) -> State:
        return State(
            population, (members, (), members), model(),
            {client: model() for client in members},
            {client: contributed() for client in members}, fused(),
        )  # fmt: skip

    real = state(
        lambda: tensors(shapes), lambda: contribution(shapes), lambda: Fused(tensors(shapes), {})
    )
    layouts = {
        bytes: Layout.of(tensors(shapes, "meta")),
        frozenset: Layout.of(contribution(shapes, "meta")),
        set: Layout.of(Fused(tensors(shapes, "meta"), {})),
    }
    blank = state(bytes, frozenset, set)
    expected = len(dump(real))
    assert weigh(blank, lambda value: layouts.get(type(value))) == expected
    assert storage_bytes(real) == expected


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 99, 100, 101, 1234])
def test_the_digits_of_many_tensors_are_counted(count: int) -> None:
    """Numbers and offsets grow by a digit at every power of ten."""
    layout = Layout.of({"w": torch.zeros(3)})
    state = tuple({"w": torch.zeros(3)} for _ in range(count))
    weight = weigh((b"",) * count, lambda value: layout if value == b"" else None)
    assert weight == storage_bytes(state)


def test_a_layout_needs_no_memory() -> None:
    huge = {"w": torch.zeros(10**6, 10**6, device="meta")}
    layout = Layout.of(huge)
    assert layout.sizes.tolist() == [4 * 10**12]
    assert weigh((b"",), lambda value: layout if value == b"" else None) == storage_bytes((huge,))


def test_what_has_no_place_in_a_state_is_refused() -> None:
    with pytest.raises(EditError, match="a set has no place in a stored state"):
        weigh((set(),), lambda value: None)
