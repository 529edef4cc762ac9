"""FATS-CU: the law of its lists, how often they change, and where training resumes."""

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import exact
import numpy as np
import pytest
from driving import drive
from exact import clients
from toy import A, B, C, Toy, model, number

from testbed.editing import fats_cu
from testbed.editing.clients import Change, Client
from testbed.editing.fats_cu import Lists, State, couple
from testbed.editing.fsosa import Parameters
from testbed.editing.orders import Order, Tune
from testbed.editing.rounds import Rounds
from testbed.editing.storage import storage_bytes
from testbed.errors import ConfigError, EditError
from testbed.fusion.fsosa import Fused
from testbed.learning.blocks import State as Model

TWO = Parameters(size=2, rounds=Rounds(rounds=2, epochs=2))


class Scripted:
    """A stand-in for a Generator that returns the arrays it is given, one after the other."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def integers(self, high: int, size: Any) -> np.ndarray:
        answer = np.array(self.answers.pop(0) if np.prod(size) else []).reshape(size)
        assert (answer < high).all()
        return answer


def trained() -> State:
    """Round 1 draws a twice: 4.  Round 2 draws a and b: 6 and 10, mean 8."""
    toy = Toy()
    state: State = toy.drive(fats_cu.init((B, A), TWO, Scripted([[0, 0], [1, 0]])))
    assert [order.clients for order in toy.orders] == [(A, A), (A, B)]
    return state


def test_two_clients_by_hand() -> None:
    state = trained()
    assert (state.population, state.subset) == ((A, B), (A, B))
    assert state.lists == ((A, A), (A, B))
    assert [number(start) for start in state.starts] == [4.0]
    assert number(state.fused.model) == 8.0


def test_a_leave_goes_back_to_the_first_round_of_the_departed() -> None:
    """b is in round 2 only: a is drawn twice instead, and goes from 4 to 6."""
    toy = Toy()
    after, done = toy.drive(fats_cu.apply(trained(), Change.of([B]), TWO, Scripted([[0, 0]])))
    (order,) = toy.orders
    assert (order.round, order.clients, number(order.start)) == (2, (A, A), 4.0)
    assert (after.lists, number(after.fused.model)) == (((A, A), (A, A)), 6.0)
    assert (after.population, done.evicted, done.admitted) == ((A,), (B,), ())


def test_a_leave_from_the_first_round_begins_anew() -> None:
    """b alone: 8, then 12."""
    toy = Toy()
    script = Scripted([[0, 0], [0, 0]])
    after, _ = toy.drive(fats_cu.apply(trained(), Change.of([A]), TWO, script))
    assert (toy.rounds(), toy.orders[0].start) == ([1, 2], None)
    assert [number(start) for start in after.starts] == [8.0]
    assert number(after.fused.model) == 12.0


def test_a_join_takes_draws_over_and_keeps_the_others() -> None:
    """c takes the second draw of round 1: 4 and 12, mean 8.  Round 2 stays: 8 and 12."""
    toy = Toy()
    script = Scripted([1, 0], [1, 2])
    after, done = toy.drive(fats_cu.apply(trained(), Change.of((), [C]), TWO, script))
    assert after.lists == ((A, C), (A, B))
    assert toy.rounds() == [1, 2]
    assert number(after.fused.model) == 10.0
    assert (done.evicted, done.admitted) == ((), (C,))


def test_a_join_into_the_second_round_keeps_the_first() -> None:
    """c takes the draw of a in round 2: from 4 to 14, and b to 10, mean 12."""
    toy = Toy()
    script = Scripted([1, 2], [0, 2])
    after, _ = toy.drive(fats_cu.apply(trained(), Change.of((), [C]), TWO, script))
    assert (toy.rounds(), after.lists) == ([2], ((A, A), (B, C)))
    assert number(after.fused.model) == 12.0


def test_repetitions_weigh_and_are_trained_once() -> None:
    """Two draws of a and one of b: (4 + 4 + 8) / 3."""
    toy = Toy()
    parameters = Parameters(size=3, rounds=Rounds(rounds=1, epochs=1))
    state = toy.drive(fats_cu.init((A, B), parameters, Scripted([[0, 1, 0]])))
    assert toy.orders[0].clients == (A, A, B)
    assert number(state.fused.model) == pytest.approx(16 / 3)


@pytest.mark.parametrize("kind", ["leave", "join"])
def test_who_is_in_no_list_costs_nothing(kind: str) -> None:
    toy = Toy()
    state = State((A, B, C), ((A, A), (A, B)), (model(4.0),), Fused(model(8.0), {}))
    if kind == "leave":
        change, script = Change.of([C]), Scripted([])
    else:
        state = State((A, B), state.lists, state.starts, state.fused)
        change, script = Change.of((), [C]), Scripted([1, 2], [2, 1])
    after, done = toy.drive(fats_cu.apply(state, change, TWO, script))
    assert toy.orders == []
    assert after.fused is state.fused
    assert (after.lists, after.starts) == (state.lists, state.starts)
    assert (done.evicted, done.admitted) == ((), ())
    assert after.population == change.applied(state.population)


# --- the law ---------------------------------------------------------------------------


class Arrays(exact.Branching):
    """Enumerates arrays of draws."""

    def integers(self, high: int, size: Any = None) -> Any:
        count = int(np.prod(size))
        return np.array([self._draw(high) for _ in range(count)], dtype=int).reshape(size)


def everything(population: exact.Subset, rounds: int, size: int) -> Iterator[Lists]:
    """All lists, in the order of their draws."""
    for draws in product(population, repeat=rounds * size):
        rows = [draws[index : index + size] for index in range(0, len(draws), size)]
        yield tuple(tuple(sorted(row)) for row in rows)


def law_of(population: exact.Subset, rounds: int, size: int) -> dict[Lists, Fraction]:
    law: dict[Lists, Fraction] = defaultdict(Fraction)
    for lists in everything(population, rounds, size):
        law[lists] += Fraction(1, len(population) ** (rounds * size))
    return dict(law)


@pytest.mark.parametrize(
    ("change", "rounds", "size"),
    [
        (Change.of(clients([1])), 2, 2),
        (Change.of(clients([0, 2])), 2, 2),
        (Change.of((), clients([7])), 2, 2),
        (Change.of((), clients([7, 8])), 2, 1),
        (Change.of(clients([1]), clients([7])), 3, 1),
        (Change.of(clients([0, 1]), clients([7])), 1, 2),
    ],
)
def test_lists_keep_the_law_of_a_fresh_training(
    monkeypatch: pytest.MonkeyPatch, change: Change, rounds: int, size: int
) -> None:
    monkeypatch.setattr(exact, "Branching", Arrays)
    before = clients(range(3))
    survivors = Change.of(departures=change.departures).applied(before)
    after: dict[Lists, Fraction] = defaultdict(Fraction)
    touched = Fraction(0)
    for lists, weight in law_of(before, rounds, size).items():
        for probability, (drawn, first) in exact.every(
            lambda rng, lists=lists: couple(lists, survivors, change, rng)
        ):
            after[drawn] += weight * probability
            touched += weight * probability * (first <= rounds)
            assert drawn[: first - 1] == lists[: first - 1]
    assert after == law_of(change.applied(before), rounds, size)
    if len(change.departures) + len(change.arrivals) == 1:
        larger = max(len(before), len(change.applied(before)))
        assert touched == 1 - (1 - Fraction(1, larger)) ** (rounds * size)


@pytest.mark.parametrize("kind", ["leave", "join"])
def test_the_trigger_rate_matches_theory(kind: str) -> None:
    """M = 20, K = 4, T = 5; the method is driven with answers that cost nothing."""
    parameters = Parameters(size=4, rounds=Rounds(rounds=5, epochs=5))
    population, runs, triggered = clients(range(20)), 2000, 0
    if kind == "leave":
        change, theory = Change.of(population[3:4]), 1 - (1 - 1 / 20) ** 20
    else:
        change, theory = Change.of((), clients([99])), 1 - (1 - 1 / 21) ** 20
    generator, nothing = np.random.default_rng(5), model(0.0)

    def answer(order: Order) -> dict[Client, Model]:
        assert isinstance(order, Tune)
        return dict.fromkeys(order.clients, nothing)

    for _ in range(runs):
        state = drive(fats_cu.init(population, parameters, generator), answer)
        after, _ = drive(fats_cu.apply(state, change, parameters, generator), answer)
        triggered += after.fused is not state.fused
    deviation = (theory * (1 - theory) / runs) ** 0.5
    assert abs(triggered / runs - theory) < 4 * deviation


# --- refusals and edges ----------------------------------------------------------------


def test_a_refused_client_departs_by_the_same_rule() -> None:
    """b delivers in round 1 and not in round 2, so training goes back to round 1."""
    toy = Toy(useless=[B], until=1)
    script = Scripted([[0, 1], [1, 1]], [[0, 0], [0, 0]])
    state = toy.drive(fats_cu.init((A, B), TWO, script))
    assert toy.rounds() == [1, 2, 1, 2]
    assert (state.population, state.lists) == ((A,), ((A, A), (A, A)))
    # a alone: 4, then 6.
    assert [number(start) for start in state.starts] == [4.0]
    assert number(state.fused.model) == 6.0


def test_a_client_refused_at_first_sight_keeps_the_rounds_before() -> None:
    toy = Toy(useless=[B])
    script = Scripted([[0, 0], [0, 1]], [[0, 0]])
    state = toy.drive(fats_cu.init((A, B), TWO, script))
    assert toy.rounds() == [1, 2, 2]
    assert number(state.fused.model) == 6.0


def test_everybody_at_once() -> None:
    toy = Toy()
    script = Scripted([[0, 0], [0, 0]])
    after, done = toy.drive(fats_cu.apply(trained(), Change.of([A, B], [C]), TWO, script))
    assert (after.population, number(after.fused.model)) == ((C,), 18.0)
    assert (done.evicted, done.admitted) == ((A, B), (C,))


def test_nobody_is_left() -> None:
    with pytest.raises(EditError, match="no client"):
        Toy().drive(fats_cu.apply(trained(), Change.of([A, B]), TWO, np.random.default_rng(0)))
    with pytest.raises(EditError, match="no client"):
        Toy([A, B]).drive(fats_cu.init((A, B), TWO, np.random.default_rng(0)))


def test_strict_mode_and_too_few_epochs() -> None:
    rng = np.random.default_rng(0)
    strict = Parameters(2, "strict", rounds=TWO.rounds)
    with pytest.raises(EditError, match="P = 2"):
        Toy().drive(fats_cu.apply(trained(), Change.of([B]), strict, rng))
    with pytest.raises(ConfigError, match=r"lower rounds\.rounds"):
        Toy().drive(fats_cu.init((A, B), Parameters(2, rounds=Rounds(3, 2)), rng))


def test_a_model_is_stored_for_every_round() -> None:
    toy, sizes = Toy(), []
    for rounds in (2, 3, 4):
        parameters = Parameters(size=1, rounds=Rounds(rounds, rounds))
        state = toy.drive(fats_cu.init((A,), parameters, np.random.default_rng(0)))
        assert len(state.starts) == rounds - 1
        sizes.append(storage_bytes(state))
    assert sizes == sorted(set(sizes))
