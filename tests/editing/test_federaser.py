"""FedEraser: what is stored, what is replayed, and how far."""

import numpy as np
import pytest
import torch
from exact import clients
from toy import A, B, C, Toy, model, number

from testbed.editing import federaser
from testbed.editing.clients import Change
from testbed.editing.federaser import calibrate
from testbed.editing.fsosa import Parameters
from testbed.editing.rounds import Rounds, work
from testbed.editing.storage import storage_bytes
from testbed.errors import EditError

TWO = Parameters(size=2, rounds=Rounds(rounds=2, epochs=2, store_every=1, calibration=1.0))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_two_clients_by_hand() -> None:
    """Round 1: 4 and 8, mean 6.  Round 2: 7 and 11, mean 9.  Then b leaves.

    Round 1 without b: 4.  In round 2, a trains from 4 to 6; its old update was from 6 to 7,
    of length 1, so it goes to 5.
    """
    toy = Toy()
    state = toy.drive(federaser.init((A, B), TWO, rng()))
    assert number(state.fused.model) == 9.0
    assert toy.rounds() == [1, 2]
    after, done = toy.drive(federaser.apply(state, Change.of([B]), TWO, rng()))
    assert number(after.fused.model) == 5.0
    assert (after.population, after.subset) == ((A,), (A,))
    assert (done.evicted, done.admitted) == ((B,), ())
    (order,) = toy.orders
    assert (order.clients, order.epochs, order.round) == ((A,), 1, 2)
    assert number(order.start) == 4.0


def test_the_other_client_by_hand() -> None:
    """Round 1 without a: 8.  b trains from 8 to 12; it went from 6 to 11, hence to 13."""
    toy = Toy()
    state = toy.drive(federaser.init((A, B), TWO, rng()))
    after, _ = toy.drive(federaser.apply(state, Change.of([A]), TWO, rng()))
    assert number(after.fused.model) == 13.0


def test_what_was_calibrated_is_what_is_stored() -> None:
    toy, population = Toy(), (A, B, C)
    three = Parameters(size=3, rounds=TWO.rounds)
    state = toy.drive(federaser.init(population, three, rng()))
    after, _ = toy.drive(federaser.apply(state, Change.of([B]), three, rng()))
    first, second = after.stored
    assert first.models.keys() == second.models.keys() == {A, C}
    # Round 1: 4, 8, 12; without b the mean is 8, from which round 2 starts.
    assert (first.start, number(second.start)) == (None, 8.0)
    # Old updates of round 2, from the mean 8: a stayed at 8, c went to 16.
    assert {who: number(sent) for who, sent in second.models.items()} == {A: 8.0, C: 16.0}
    assert number(after.fused.model) == 12.0
    again, _ = toy.drive(federaser.apply(after, Change.of([A]), three, rng()))
    # Round 1 of c alone: 12; to 18 would be its way, but its stored update has length 8.
    assert number(again.fused.model) == 20.0


def test_the_interval_decides_what_is_stored_and_replayed() -> None:
    toy = Toy()
    for every, retained in ((1, [1, 2, 3, 4, 5]), (2, [1, 3, 5]), (3, [1, 4]), (9, [1])):
        parameters = Parameters(size=2, rounds=Rounds(rounds=5, epochs=5, store_every=every))
        state = toy.drive(federaser.init((A, B), parameters, rng()))
        assert [each.number for each in state.stored] == retained
        toy.drive(federaser.apply(state, Change.of([A]), parameters, rng()))
        assert toy.rounds() == retained[1:]


def test_calibrations_take_a_share_of_the_epochs() -> None:
    toy = Toy()
    parameters = Parameters(size=2, rounds=Rounds(rounds=4, epochs=14, calibration=0.5))
    state = toy.drive(federaser.init((A, B), parameters, rng()))
    assert [order.epochs for order in toy.orders] == [4, 4, 3, 3]
    toy.drive(federaser.apply(state, Change.of([A]), parameters, rng()))
    assert [(order.round, order.epochs) for order in toy.orders] == [(3, 2)]
    assert work(toy.orders, 14) == 2


def test_the_length_is_that_of_the_whole_update() -> None:
    """Old update (3, 4) over two layers, length 5; new one (0, 2): the step is (0, 5)."""
    zero = {"one": torch.zeros(1), "two": torch.zeros(1)}
    old = {"one": torch.tensor([3.0]), "two": torch.tensor([4.0])}
    start = {"one": torch.tensor([10.0]), "two": torch.tensor([10.0])}
    new = {"one": torch.tensor([10.0]), "two": torch.tensor([12.0])}
    moved = calibrate(zero, old, start, new)
    assert {name: float(value) for name, value in moved.items()} == {"one": 10.0, "two": 15.0}
    assert all(value.dtype == torch.float32 for value in moved.values())


def test_a_client_that_does_not_move_stays() -> None:
    assert number(calibrate(model(0), model(5), model(3), model(3))) == 3.0


def test_running_statistics_are_not_stretched() -> None:
    zero = {"w": torch.zeros(1), "bn.running_var": torch.ones(1)}
    old = {"w": torch.tensor([8.0]), "bn.running_var": torch.tensor([100.0])}
    new = {"w": torch.tensor([1.0]), "bn.running_var": torch.tensor([0.5])}
    moved = calibrate(zero, old, zero, new)
    assert {name: float(value) for name, value in moved.items()} == {
        "w": 8.0,
        "bn.running_var": 0.5,
    }


def test_newcomers_wait_until_training_begins_anew() -> None:
    toy = Toy()
    state = toy.drive(federaser.init((A, B), TWO, rng()))
    joined, _ = toy.drive(federaser.apply(state, Change.of((), [C]), TWO, rng()))
    assert toy.orders == []
    assert joined.fused is state.fused
    assert (joined.population, joined.subset) == ((A, B, C), (A, B))
    less, _ = toy.drive(federaser.apply(joined, Change.of([B]), TWO, rng()))
    assert less.subset == (A,)
    fresh, done = toy.drive(federaser.apply(less, Change.of([A]), TWO, rng()))
    # c alone: 12, then 18.
    assert (fresh.population, fresh.subset, number(fresh.fused.model)) == ((C,), (C,), 18.0)
    assert (done.evicted, done.admitted) == ((A,), (C,))


def test_nothing_of_the_departed_is_kept() -> None:
    toy, population = Toy(), clients(range(5))
    parameters = Parameters(size=4, rounds=Rounds(rounds=4, epochs=4, store_every=1))
    state = toy.drive(federaser.init(population, parameters, rng()))
    gone = state.subset[:2]
    after, _ = toy.drive(federaser.apply(state, Change.of(gone), parameters, rng()))
    assert all(each.models.keys() == set(state.subset[2:]) for each in after.stored)
    assert storage_bytes(after) < storage_bytes(state)


def test_a_client_lost_in_training_is_replayed_away() -> None:
    """b delivers round 1 only, so what follows equals its leave after training."""
    toy = Toy(useless=[B], until=1)
    state = toy.drive(federaser.init((A, B), TWO, rng()))
    # Round 1: 4 and 8, mean 6; round 2: a alone goes to 7.  Replayed as by hand above.
    assert toy.rounds() == [1, 2, 2]
    assert (state.population, state.subset, number(state.fused.model)) == ((A,), (A,), 5.0)


def test_a_client_lost_in_a_replay_is_replayed_away_too() -> None:
    toy = Toy()
    three = Parameters(size=3, rounds=TWO.rounds)
    state = toy.drive(federaser.init((A, B, C), three, rng()))
    toy.useless = [C]
    after, done = toy.drive(federaser.apply(state, Change.of([B]), three, rng()))
    assert [order.clients for order in toy.orders] == [(A, C), (A,)]
    assert (after.population, done.evicted) == ((A,), (B, C))
    assert all(each.models.keys() == {A} for each in after.stored)


def test_strict_mode_and_the_last_client() -> None:
    toy = Toy()
    state = toy.drive(federaser.init((A, B), TWO, rng()))
    strict = Parameters(2, "strict", rounds=TWO.rounds)
    with pytest.raises(EditError, match="P = 2"):
        toy.drive(federaser.apply(state, Change.of([B]), strict, rng()))
    with pytest.raises(EditError, match="no client"):
        toy.drive(federaser.apply(state, Change.of([A, B]), TWO, rng()))


def test_the_subset_is_drawn_uniformly() -> None:
    population = clients(range(4))
    times = dict.fromkeys(population, 0)
    for seed in range(400):
        first = next(federaser.init(population, TWO, rng(seed)))
        for client in first.clients:
            times[client] += 1
    # Each is in half of the subsets: 200 of 400, standard deviation 10.
    assert all(abs(count - 200) < 40 for count in times.values())
