"""States as messages: every bit, nothing else, and the right weight."""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from exact import clients
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load as load_tensors
from toy import A, B, Toy

from testbed.editing import fats_cu, federaser, fsosa
from testbed.editing.clients import Change, Client
from testbed.editing.fsosa import Parameters
from testbed.editing.rounds import Rounds
from testbed.editing.storage import dump, load, storage_bytes
from testbed.errors import EditError
from testbed.learning.contribution import Contribution, serialise
from testbed.learning.factors import Diagonal, Factor, Kronecker


@dataclass(frozen=True)
class Everything:
    """All that a state may be made of."""

    count: int
    share: float
    flag: bool
    name: str
    maybe: torch.Tensor | None
    pair: tuple[int, str]
    lists: tuple[tuple[Client, ...], ...]
    by_client: Mapping[Client, Mapping[str, torch.Tensor]]
    factors: Mapping[str, Factor]


def example(**changes: object) -> Everything:
    values: dict[str, object] = {
        "count": 2**60,
        "share": 0.1,
        "flag": True,
        "name": 'ä"\n',
        "maybe": None,
        "pair": (-1, ""),
        "lists": ((A, A, B), ()),
        "by_client": {B: {"w": torch.tensor([1.5])}, A: {}},
        "factors": {"k": Kronecker(torch.eye(2), torch.ones(1, 1)), "d": Diagonal(torch.ones(1))},
    }
    return Everything(**(values | changes))  # type: ignore[arg-type]


def bits(value: torch.Tensor) -> bytes:
    return value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def test_everything_comes_back() -> None:
    state = example()
    again = load(dump(state), Everything)
    assert (again.count, again.share, again.flag, again.name) == (2**60, 0.1, True, 'ä"\n')
    assert type(again.flag) is bool
    assert again.maybe is None
    assert (again.pair, again.lists) == ((-1, ""), ((A, A, B), ()))
    assert list(again.by_client) == [B, A]
    assert torch.equal(again.by_client[B]["w"], torch.tensor([1.5]))
    kronecker, diagonal = again.factors["k"], again.factors["d"]
    assert isinstance(kronecker, Kronecker)
    assert torch.equal(kronecker.a, torch.eye(2))
    assert isinstance(diagonal, Diagonal)
    assert dump(again) == dump(state)


@pytest.mark.parametrize("dtype", [
    torch.float64, torch.float32, torch.float16, torch.bfloat16,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
])  # fmt: skip
def test_every_bit_of_every_type_is_kept(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(0)
    size = torch.empty((), dtype=dtype).element_size()
    noise = torch.from_numpy(rng.integers(256, size=15 * size, dtype=np.uint8)).view(dtype)
    value = noise.reshape(3, 5)
    again = load(dump(example(maybe=value)), Everything).maybe
    assert again is not None
    assert (again.dtype, again.shape) == (dtype, value.shape)
    assert bits(again) == bits(value)


def test_unusual_numbers_and_shapes() -> None:
    odd = torch.tensor([float("nan"), -0.0, float("inf"), 5e-324], dtype=torch.float64)
    payload = torch.frombuffer(bytearray(struct.pack("<Q", 0x7FF0000000000123)), dtype=odd.dtype)
    weird = {
        "odd": odd,
        "payload": payload,
        "scalar": torch.tensor(7),
        "empty": torch.empty(0, 3),
        "flags": torch.tensor([True, False]),
        "turned": torch.arange(6.0).reshape(2, 3).T,
        "view": torch.arange(10.0)[3:5],
    }
    again = load(dump(example(by_client={A: weird})), Everything).by_client[A]
    for name, value in weird.items():
        assert (again[name].dtype, again[name].shape) == (value.dtype, value.shape)
        assert bits(again[name]) == bits(value)


@pytest.mark.parametrize("value", [math.inf, -math.inf, 5e-324, -0.0, 1 / 3, 3.0])
def test_floats_are_exact(value: float) -> None:
    again = load(dump(example(share=value)), Everything).share
    assert struct.pack("d", again) == struct.pack("d", value)


def test_a_tensor_in_two_places_is_written_once() -> None:
    one = torch.arange(1000.0)
    shared = example(maybe=one, by_client={A: {"w": one}})
    apart = example(maybe=one, by_client={A: {"w": one.clone()}})
    assert storage_bytes(apart) - storage_bytes(shared) > 4000
    again = load(dump(shared), Everything)
    assert again.maybe is again.by_client[A]["w"]


@given(st.dictionaries(st.text(max_size=4), st.lists(st.integers(0, 4), max_size=3), max_size=4))
def test_any_shapes_are_weighed_without_writing(shapes: dict[str, list[int]]) -> None:
    tensors = {name: torch.ones(shape) for name, shape in shapes.items()}
    state = example(by_client={A: tensors})
    message = dump(state)
    assert storage_bytes(state) == len(message)
    again = load(message, Everything).by_client[A]
    assert list(again) == list(tensors)
    assert all(again[name].shape == value.shape for name, value in tensors.items())


def test_the_message_is_a_safetensors_file(tmp_path) -> None:
    state = example(maybe=torch.ones(3))
    path = tmp_path / "state.safetensors"
    path.write_bytes(dump(state))
    with safe_open(path, framework="pt") as file:
        assert json.loads(file.metadata()["state"])[0] == "Everything"
    assert sum(value.numel() for value in load_tensors(dump(state)).values()) == 3 + 1 + 4 + 1 + 1


# --- real states -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["kfac", "diagonal"])
def test_a_state_of_f_sosa(federation, kind: str) -> None:
    home = federation(kind)
    population, parameters = clients(range(6)), Parameters(size=3)
    rng = np.random.default_rng(0)
    state = home.drive(fsosa.init(population, parameters, rng))
    message = dump(state)
    again = load(message, fsosa.State)
    assert storage_bytes(state) == len(message) == storage_bytes(again)
    assert (again.population, again.subset) == (state.population, state.subset)
    for client, contribution in state.contributions.items():
        assert serialise(again.contributions[client]) == serialise(contribution)
    assert again.fused.solves == state.fused.solves
    change = Change.of(state.subset[:1])
    ends = [
        home.drive(fsosa.apply(one, change, parameters, np.random.default_rng(1)))[0]
        for one in (state, again)
    ]
    assert dump(ends[0]) == dump(ends[1])


def test_the_extra_tensors_of_a_contribution() -> None:
    sent = Contribution(
        3, {"w": torch.ones(2)}, {}, {"holdout/y": torch.ones(2, dtype=torch.uint8)}
    )
    again = load(dump(sent), Contribution)
    assert serialise(again) == serialise(sent)


def test_stored_rounds_weigh_what_their_models_weigh() -> None:
    """FedEraser with 2 clients and 3 stored rounds: 6 models, 2 starts and the released."""
    parameters = Parameters(2, rounds=Rounds(rounds=3, epochs=3, store_every=1))
    state = Toy().drive(federaser.init((A, B), parameters, np.random.default_rng(0)))
    message = dump(state)
    assert sum(value.nbytes for value in load_tensors(message).values()) == 9 * 8
    again = load(message, federaser.State)
    assert again.stored[0].start is None
    assert dump(again) == message


# --- bad messages ----------------------------------------------------------------------


def test_a_damaged_message_is_refused_in_one_line() -> None:
    message = dump(example(maybe=torch.ones(50)))
    for length in (0, 5, 8, 100, len(message) - 1):
        with pytest.raises(EditError, match=r"not a message of a .*Everything: ") as error:
            load(message[:length], Everything)
        assert "\n" not in str(error.value)
    with pytest.raises(EditError, match="not a message"):
        load(b"\x80\x04" + message, Everything)


def test_a_message_of_another_type_is_refused() -> None:
    with pytest.raises(EditError, match=r"not a message of a testbed\.editing\.fats_cu\.State"):
        load(dump(example()), fats_cu.State)


@pytest.mark.parametrize(
    ("old", "new"),
    [('"flag\\":true', '"flag\\":1234'), ("Kronecker", "Population"), ('"name\\"', '"nose\\"')],
)
def test_what_a_message_says_cannot_widen_its_type(old: str, new: str) -> None:
    message = dump(example())
    assert message.count(old.encode()) == 1
    with pytest.raises(EditError, match="not a message"):
        load(message.replace(old.encode(), new.encode()), Everything)


@pytest.mark.parametrize("foreign", [object(), b"bytes", {1, 2}, torch.tensor([1j])])
def test_what_has_no_place_in_a_state_is_refused(foreign: object) -> None:
    with pytest.raises(EditError, match="has no place in a stored state"):
        dump(example(maybe=foreign))
