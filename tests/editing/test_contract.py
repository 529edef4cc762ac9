"""What every editing method keeps to, whatever it does.

Clients really train, a network with normalisation on pictures of three classes; only
partition `RARE` holds the third.  Fusion is the plain mean here: how well a rule fuses is
not a method's matter.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, get_args

import numpy as np
import pytest
import torch
from driving import drive
from exact import clients
from torch import nn

from testbed.config.schema import Method as MethodName
from testbed.editing.clients import Change, Client, normal_form
from testbed.editing.fsosa import Parameters
from testbed.editing.methods import METHODS
from testbed.editing.orders import Fuse, Order, Train, Tune
from testbed.editing.rounds import Rounds, average, work
from testbed.editing.storage import dump, load, storage_bytes
from testbed.errors import EditError, TestbedError
from testbed.fusion.fsosa import Fused
from testbed.learning import curvature, training
from testbed.learning.blocks import State
from testbed.learning.contribution import Contribution, serialise
from testbed.learning.training import Recipe
from testbed.streams import Streams

RARE = 2
ROUNDS = Rounds(rounds=3, epochs=4, store_every=2, retraining=2)
RECIPE = Recipe(epochs=4, lr=0.1, batch=3, momentum=0.9)
POPULATION = clients(range(6))
FORGETFUL = [name for name in METHODS if name != "finetune"]  # which forgets nothing


@cache
def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)
    )


@cache
def initial() -> State:
    return {name: value.detach().clone() for name, value in network().state_dict().items()}


@cache
def samples(part: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = Streams(0).rng("data", part)
    labels = rng.integers(2, size=6) if part != RARE else np.full(6, 2)
    pictures = rng.random((6, 1, 4, 4)) + labels[:, None, None, None]
    return torch.from_numpy(pictures.astype(np.float32)), torch.from_numpy(labels)


@dataclass
class Home:
    """Answers orders and checks that each could be billed."""

    present: Collection[Client] = POPULATION
    useless: Collection[Client] = ()
    orders: list[Order] = field(default_factory=list)
    received: set[bytes] = field(default_factory=set)

    def init(self, name: str, population: Sequence[Client] = POPULATION, seed: int = 0) -> Any:
        self.present = population
        generator = Streams(seed).rng("coordinator", 0)
        return self.drive(METHODS[name].init(population, parameters(), generator))

    def apply(self, name: str, state: Any, change: Change, number: int = 1) -> Any:
        """Return the state after a change; an arrival may be asked to work, too."""
        self.present = change.applied(state.population)
        generator = Streams(0).rng("coordinator", number)
        after, done = self.drive(METHODS[name].apply(state, change, parameters(), generator))
        before = set(state.subset)
        assert set(done.evicted) == before - set(after.subset)
        assert set(done.admitted) == set(after.subset) - before
        return after

    def drive(self, orders: Any) -> Any:
        self.orders.clear()
        state = drive(orders, self.answer)
        for one in state if isinstance(state, tuple) else (state,):
            if hasattr(one, "population"):
                consistent(one)
        return state

    def answer(self, order: Order) -> Any:
        self.orders.append(order)
        if isinstance(order, Fuse):
            # Contributions exist because somebody was asked for them.
            assert order.contributions
            assert {serialise(one) for one in order.contributions} <= self.received
            members = clients(range(len(order.contributions)))
            sent = [each.model for each in order.contributions]
            return Fused(average(members, dict(zip(members, sent, strict=True))), {})
        assert order.clients
        assert set(order.clients) <= set(self.present)
        if isinstance(order, Train):
            assert len(set(order.clients)) == len(order.clients)
            made = {
                client: Contribution(6, one_shot(client), {})
                for client in order.clients
                if client not in self.useless
            }
            self.received.update(map(serialise, made.values()))
            return made
        assert order.epochs is None or order.epochs >= 1
        return {
            client: trained(client, order)
            for client in order.clients
            if client not in self.useless
        }


def trained(client: Client, order: Tune) -> State:
    rng = Streams(0).rng("client", client.partition, "batches", order.round)
    how = curvature.train if order.optimiser == "curvature" else training.train
    epochs = RECIPE.epochs if order.epochs is None else order.epochs
    start = initial() if order.start is None else order.start
    recipe = Recipe(epochs, RECIPE.lr, RECIPE.batch, RECIPE.momentum)
    return how(network(), start, *samples(client.partition), recipe, rng)


@cache
def one_shot(client: Client) -> State:
    return trained(client, Tune((client,), None))


def parameters(below: Any = "shrink") -> Parameters:
    return Parameters(size=3, below=below, rounds=ROUNDS)


def consistent(state: Any) -> None:
    """Check what holds for any state."""
    assert list(state.population) == sorted(set(state.population))
    assert list(state.subset) == sorted(set(state.subset))
    assert set(state.subset) <= set(state.population)
    assert state.fused.model.keys() == initial().keys()
    for name, value in initial().items():
        released = state.fused.model[name]
        assert (released.dtype, released.shape) == (value.dtype, value.shape)
        assert released.isfinite().all()


def stories() -> list[Change]:
    """Joins, leaves and batches that reach a population of four and come back."""
    return [
        Change.of(clients([1])),
        Change.of((), clients([6])),
        Change.of(clients([0, 3]), clients([7, 8])),
        Change.of(clients([2, 4, 5])),
        Change.of((), clients([1])),
    ]


def lived(name: str, through: Callable[[Any], Any] = lambda state: state) -> list[Any]:
    """All states of a story; `through` is what happens to a state between two requests."""
    home = Home()
    states = [home.init(name)]
    for number, change in enumerate(stories(), start=1):
        states.append(home.apply(name, through(states[-1]), change, number))
    return states


def test_the_methods_are_those_of_the_configuration() -> None:
    assert set(METHODS) == set(get_args(MethodName))


@pytest.mark.parametrize("name", METHODS)
def test_a_story_is_deterministic(name: str) -> None:
    messages = [[dump(state) for state in lived(name)] for _ in range(2)]
    assert messages[0] == messages[1]
    assert len(set(messages[0])) > 1


@pytest.mark.parametrize("name", METHODS)
def test_a_state_is_all_there_is(name: str) -> None:
    """A coordinator that is stopped after every request and read back does the same."""

    def stored(state: Any) -> Any:
        message = dump(state)
        assert storage_bytes(state) == len(message)
        again = load(message, type(state))
        assert dump(again) == message
        return again

    kept, restarted = lived(name), lived(name, stored)
    assert [dump(state) for state in kept] == [dump(state) for state in restarted]


@pytest.mark.parametrize("name", METHODS)
def test_a_new_model_was_worked_for(name: str) -> None:
    """No model changes without orders, and no orders are given for the model that was."""
    home = Home()
    state = home.init(name)
    assert work(home.orders, RECIPE.epochs) <= 3 * RECIPE.epochs  # F-SOSA's budget
    assert home.orders
    for number, change in enumerate(stories(), start=1):
        after = home.apply(name, state, change, number)
        assert (after.fused is not state.fused) == bool(home.orders)
        assert after.population == change.applied(state.population)
        state = after


@pytest.mark.parametrize("name", METHODS)
def test_an_untouched_federation_costs_nothing_or_a_retraining(name: str) -> None:
    home = Home()
    state = home.init(name)
    after = home.apply(name, state, Change())
    retrains = METHODS[name].apply is METHODS["retrain"].apply
    assert bool(home.orders) == retrains
    assert (after.fused is state.fused) != retrains


@pytest.mark.parametrize("name", METHODS)
def test_unknown_and_duplicate_clients(name: str) -> None:
    """Requests in normal form leave them out; a change that has them is refused."""
    home = Home()
    state = home.init(name)
    stranger = Client("stranger", 9)
    requests = [("leave", stranger), ("join", POPULATION[0])]
    form = normal_form(state.population, requests)  # type: ignore[arg-type]
    assert form.change == Change()
    for change, reason in (
        (Change.of([stranger]), "unknown"),
        (Change.of((), [POPULATION[0]]), "already"),
    ):
        work_of = METHODS[name].apply(state, change, parameters(), np.random.default_rng(0))
        with pytest.raises(EditError, match=reason):
            next(work_of)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("leaver", POPULATION[1:3])
def test_a_client_returns_as_a_newcomer(name: str, leaver: Client) -> None:
    home = Home()
    state = home.init(name)
    without = home.apply(name, state, Change.of([leaver]), 1)
    again = home.apply(name, without, Change.of((), [leaver]), 2)
    assert again.population == state.population
    # With other data it is another client.
    other = Client(leaver.vehicle, 11)
    moved = home.apply(name, again, Change.of([leaver], [other]), 3)
    assert other in moved.population
    assert leaver not in moved.population


@pytest.mark.parametrize("name", FORGETFUL)
def test_the_departed_are_named_nowhere(name: str) -> None:
    home = Home()
    state = home.init(name)
    for number, client in enumerate(POPULATION[:5], start=1):
        state = home.apply(name, state, Change.of([client]), number)
        assert client.vehicle.encode() not in dump(state)
    assert state.population == POPULATION[5:]


@pytest.mark.parametrize("name", FORGETFUL)
def test_the_only_holder_of_a_class_leaves(name: str) -> None:
    """Without it the class is never learned: its shift falls behind the others'."""
    rare = next(client for client in POPULATION if client.partition == RARE)
    home = Home()
    for seed in range(20):
        state = home.init(name, seed=seed)
        if rare in state.subset:
            break
    assert rare in state.subset
    after = home.apply(name, state, Change.of([rare]))
    assert rare not in after.subset

    def margin(model: State) -> float:
        bias = model["4.bias"] - initial()["4.bias"]
        return float(bias[RARE] - bias[:RARE].max())

    assert margin(after.fused.model) < 0
    assert margin(after.fused.model) < margin(state.fused.model)


@pytest.mark.parametrize("name", METHODS)
def test_everybody_is_replaced_at_once(name: str) -> None:
    home = Home()
    state = home.init(name)
    after = home.apply(name, state, Change.of(POPULATION, clients([8, 9])))
    assert after.population == clients([8, 9])


@pytest.mark.parametrize("name", METHODS)
def test_a_useless_client_departs_when_it_is_found_out(name: str) -> None:
    for useless in POPULATION[:3]:
        home = Home(useless=[useless])
        state = home.init(name)
        asked = any(useless in getattr(order, "clients", ()) for order in home.orders)
        assert (useless in state.population) != asked
        assert useless not in state.subset
    home = Home(useless=clients([8]))
    state = home.init(name)
    for number in range(1, 6):
        state = home.apply(name, state, Change.of((), clients([8])), number)
        asked = any(clients([8])[0] in getattr(order, "clients", ()) for order in home.orders)
        assert (clients([8])[0] in state.population) != asked
        if not asked:
            break


@pytest.mark.parametrize("name", METHODS)
def test_nobody_delivers(name: str) -> None:
    with pytest.raises(TestbedError, match="no client delivered") as error:
        Home(useless=POPULATION).init(name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", FORGETFUL)
def test_strict_mode_ends_below_p(name: str) -> None:
    state = Home().init(name, POPULATION[:3])
    work_of = METHODS[name].apply(
        state, Change.of(POPULATION[:1]), parameters("strict"), np.random.default_rng(0)
    )
    with pytest.raises(EditError, match=r"2 clients .* P = 3; set editing.below_subset=shrink"):
        next(work_of)
