"""Rapid retraining: from the initial model, by those who stay, with curvature."""

import numpy as np
import pytest
from toy import A, B, C, Toy, number

from testbed.editing import fedrr
from testbed.editing.clients import Change
from testbed.editing.fsosa import Parameters
from testbed.editing.rounds import Rounds, work
from testbed.editing.storage import dump, storage_bytes
from testbed.errors import EditError

TWO = Parameters(size=2, rounds=Rounds(rounds=2, epochs=2, retraining=1))
THREE = Parameters(size=3, rounds=Rounds(rounds=2, epochs=2, retraining=3))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_two_clients_by_hand() -> None:
    """Trained: 6, then 9.  Without b, one curvature step takes a from 0 to its data, 8."""
    toy = Toy()
    state = toy.drive(fedrr.init((A, B), TWO, rng()))
    assert number(state.fused.model) == 9.0
    assert [order.optimiser for order in toy.orders] == ["sgd", "sgd"]
    after, done = toy.drive(fedrr.apply(state, Change.of([B]), TWO, rng()))
    (order,) = toy.orders
    assert (order.clients, order.start, order.optimiser) == ((A,), None, "curvature")
    assert number(after.fused.model) == 8.0
    assert (after.population, after.subset) == ((A,), (A,))
    assert (done.evicted, done.admitted) == ((B,), ())


def test_retraining_is_in_rounds_of_its_own_number() -> None:
    """More rounds than the training had are as long as its last."""
    toy = Toy()
    parameters = Parameters(size=3, rounds=Rounds(rounds=2, epochs=5, retraining=3))
    state = toy.drive(fedrr.init((A, B, C), parameters, rng()))
    toy.drive(fedrr.apply(state, Change.of([A]), parameters, rng()))
    assert [(order.round, order.epochs) for order in toy.orders] == [(1, 3), (2, 2), (3, 2)]
    assert work(toy.orders, 5) == 2 * (3 + 2 + 2)
    # From 0, both get to their data in every round.
    assert number(toy.orders[1].start) == number(toy.orders[2].start) == 20.0


def test_the_past_leaves_no_trace() -> None:
    """Who stays decides the model, and not who left before or in which order."""
    toy, states = Toy(), []
    for leaves in ([[A], [B]], [[B], [A]], [[A, B]]):
        state = toy.drive(fedrr.init((A, B, C), THREE, rng()))
        for gone in leaves:
            state, _ = toy.drive(fedrr.apply(state, Change.of(gone), THREE, rng()))
        states.append(dump(state))
    assert states[0] == states[1] == states[2]


def test_newcomers_wait_until_training_begins_anew() -> None:
    toy = Toy()
    state = toy.drive(fedrr.init((A, B), TWO, rng()))
    joined, _ = toy.drive(fedrr.apply(state, Change.of((), [C]), TWO, rng()))
    assert toy.orders == []
    assert (joined.population, joined.subset) == ((A, B, C), (A, B))
    assert joined.fused is state.fused
    fresh, done = toy.drive(fedrr.apply(joined, Change.of([A, B]), TWO, rng()))
    assert [order.optimiser for order in toy.orders] == ["sgd", "sgd"]
    assert (fresh.subset, number(fresh.fused.model)) == ((C,), 18.0)
    assert (done.evicted, done.admitted) == ((A, B), (C,))


def test_one_model_is_all_that_is_stored() -> None:
    toy = Toy()
    small = toy.drive(fedrr.init((A, B), TWO, rng()))
    large = toy.drive(fedrr.init((A, B), Parameters(2, rounds=Rounds(9, 9)), rng()))
    assert storage_bytes(small) == storage_bytes(large)


def test_a_client_lost_in_training_is_retrained_away() -> None:
    toy = Toy(useless=[B], until=1)
    state = toy.drive(fedrr.init((A, B), TWO, rng()))
    assert [order.optimiser for order in toy.orders] == ["sgd", "sgd", "curvature"]
    assert (state.population, number(state.fused.model)) == ((A,), 8.0)


def test_a_client_lost_in_retraining_is_retrained_away_too() -> None:
    toy = Toy()
    state = toy.drive(fedrr.init((A, B, C), THREE, rng()))
    toy.useless, toy.until = [C], 2
    after, _ = toy.drive(fedrr.apply(state, Change.of([B]), THREE, rng()))
    # c is gone in round 3, after two averages with it; the others' next attempt is clean.
    assert toy.rounds() == [1, 2, 3, 1, 2, 3]
    assert [order.clients for order in toy.orders] == [(A, C)] * 3 + [(A,)] * 3
    assert (after.population, number(after.fused.model)) == ((A,), 8.0)


def test_a_client_lost_at_once_costs_no_second_attempt() -> None:
    toy = Toy()
    state = toy.drive(fedrr.init((A, B, C), THREE, rng()))
    toy.useless = [C]
    after, _ = toy.drive(fedrr.apply(state, Change.of([B]), THREE, rng()))
    assert [order.clients for order in toy.orders] == [(A, C), (A,), (A,)]
    assert after.subset == (A,)


def test_strict_mode_and_the_last_client() -> None:
    toy = Toy()
    state = toy.drive(fedrr.init((A, B), TWO, rng()))
    strict = Parameters(2, "strict", rounds=TWO.rounds)
    with pytest.raises(EditError, match="P = 2"):
        toy.drive(fedrr.apply(state, Change.of([B]), strict, rng()))
    with pytest.raises(EditError, match="no client"):
        toy.drive(fedrr.apply(state, Change.of([A, B]), TWO, rng()))
