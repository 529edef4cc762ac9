"""The epoch budget, the average, and FedAvg."""

from types import ModuleType

import numpy as np
import pytest
import torch
from exact import clients
from hypothesis import given
from hypothesis import strategies as st
from toy import A, B, C, Toy, model, number

from testbed.config.schema import RoundsConfig
from testbed.editing import federaser, fedrr
from testbed.editing.clients import Change
from testbed.editing.coupling import enough
from testbed.editing.fsosa import Parameters
from testbed.editing.orders import Fuse, Train, Tune
from testbed.editing.rounds import Rounds, average, begin, fedavg, learned, work
from testbed.errors import ConfigError, EditError


@given(st.integers(1, 30), st.integers(0, 60))
def test_epochs_are_whole_and_add_up_to_the_recipe(count: int, more: int) -> None:
    rounds = Rounds(rounds=count, epochs=count + more)
    lengths = [rounds.epochs_of(number) for number in rounds.all]
    assert sum(lengths) == count + more
    assert min(lengths) >= 1
    assert max(lengths) - min(lengths) <= 1
    assert lengths == sorted(lengths, reverse=True)


def test_rounds_after_the_last_are_as_long_as_that() -> None:
    rounds = Rounds(rounds=3, epochs=7)
    assert [rounds.epochs_of(number) for number in (1, 2, 3, 4, 9)] == [3, 2, 2, 2, 2]


def test_too_few_epochs_are_refused_in_one_line() -> None:
    rounds = Rounds(rounds=10, epochs=9)
    with pytest.raises(ConfigError, match=r"epochs = 9 .*rounds = 10.*raise .* or lower") as error:
        rounds.epochs_of(1)
    assert "\n" not in str(error.value)
    Rounds(rounds=10, epochs=10).check()


@pytest.mark.parametrize(
    ("share", "epochs", "expected"),
    [(0.5, 3, 2), (0.5, 2, 1), (0.1, 3, 1), (1.0, 4, 4), (0.7, 10, 7)],
)
def test_calibrations_are_rounded_up(share: float, epochs: int, expected: int) -> None:
    assert Rounds(rounds=1, epochs=epochs, calibration=share).calibration_of(1) == expected


def test_the_configuration_says_it_all() -> None:
    config = RoundsConfig(rounds=4, store_every=3, calibration=0.25, retraining=2)
    assert Rounds.from_config(config, 9) == Rounds(4, 9, 3, 0.25, 2)


def test_the_budget_is_that_of_f_sosa() -> None:
    """Two clients, five epochs: F-SOSA trains each once for five."""
    rounds = Rounds(rounds=2, epochs=5)
    toy = Toy()
    toy.drive(begin((A, B), 2, rounds, np.random.default_rng(0)))
    assert [order.epochs for order in toy.orders] == [3, 2]
    assert work(toy.orders, 5) == work([Train((A, B))], 5) == 10
    assert rounds.budget(2) == (
        "2 rounds of 2 clients, 3+2 epochs: 10 client epochs, as many as F-SOSA"
    )


def test_work_counts_a_client_once_a_round() -> None:
    orders = [Tune((A, A, B), None, 2, 1), Tune((A,), None), Fuse(()), Train((B,))]
    assert work(orders, 5) == 2 * 2 + 5 + 5


def test_the_average_counts_repetitions_and_not_the_order() -> None:
    models = {A: model(1.0), B: model(4.0)}
    assert number(average((A, B, A), models)) == 2.0
    assert number(average((B, A, A), models)) == 2.0


def test_the_average_keeps_types_and_takes_the_largest_count() -> None:
    models = {
        client: {
            "w": torch.tensor([value], dtype=torch.float32),
            "bn.num_batches_tracked": torch.tensor(count),
        }
        for client, value, count in ((A, 1.0, 3), (B, 2.0, 8))
    }
    mean = average((A, B), models)
    assert mean["w"].dtype == torch.float32
    assert float(mean["w"]) == 1.5
    assert int(mean["bn.num_batches_tracked"]) == 8


def test_the_average_is_taken_in_double_precision() -> None:
    many = clients(range(3))
    models = {
        client: {"w": torch.tensor([value])}
        for client, value in zip(many, (1e8, 1.0, -1e8), strict=True)
    }
    assert float(average(many, models)["w"]) == pytest.approx(1 / 3, rel=1e-6)


def test_what_is_learned() -> None:
    state = {
        "fc.weight": torch.zeros(1),
        "bn.running_mean": torch.zeros(1),
        "bn.running_var": torch.zeros(1),
        "bn.num_batches_tracked": torch.tensor(0),
    }
    assert learned(state) == ("fc.weight",)


def test_fedavg_by_hand() -> None:
    """From 0: a goes to 4 and b to 8, mean 6; then to 7 and 11, mean 9."""
    toy = Toy()
    course = toy.drive(fedavg((A, B), (1, 2), Rounds(2, 2), store=(2,)))
    assert number(course.model) == 9.0
    assert toy.orders[0].start is None
    assert number(toy.orders[1].start) == 6.0
    (stored,) = course.stored
    assert (stored.number, number(stored.start)) == (2, 6.0)
    assert {client: number(sent) for client, sent in stored.models.items()} == {A: 7.0, B: 11.0}
    assert (course.lost, course.tainted) == ((), False)


def test_who_is_lost_at_once_has_no_part() -> None:
    toy = Toy(useless=[B])
    course = toy.drive(fedavg((A, B), (1, 2), Rounds(2, 2), store=(1,)))
    assert (course.members, course.lost, course.tainted) == ((A,), (B,), False)
    assert number(course.model) == 6.0
    assert [order.clients for order in toy.orders] == [(A, B), (A,)]


def test_who_is_lost_later_taints_and_is_erased() -> None:
    toy = Toy(useless=[B], until=1)
    course = toy.drive(fedavg((A, B), (1, 2), Rounds(2, 2), store=(1,)))
    assert (course.members, course.lost, course.tainted) == ((A,), (B,), True)
    assert course.stored[0].models.keys() == {A}


def test_a_subset_that_is_lost_is_replaced() -> None:
    toy = Toy(useless=[A, B])
    for seed in range(5):
        population, course = toy.drive(
            begin((A, B, C), 2, Rounds(2, 2), np.random.default_rng(seed))
        )
        assert course.members == (C,)
        assert C in population
    with pytest.raises(EditError, match="no client delivered"):
        toy.drive(begin((A, B), 2, Rounds(2, 2), np.random.default_rng(0)))


def test_strict_mode_refuses_a_population_below_p() -> None:
    enough((A, B), 2, "strict")
    enough((A,), 2, "shrink")
    with pytest.raises(EditError, match=r"1 clients .* P = 2; set editing.below_subset=shrink"):
        enough((A,), 2, "strict")


@pytest.mark.parametrize("method", [federaser, fedrr])
def test_others_leave_for_nothing(method: ModuleType) -> None:
    two = Parameters(size=2, rounds=Rounds(rounds=2, epochs=2, retraining=1))
    toy, population = Toy(), clients(range(6))
    state = toy.drive(method.init(population, two, np.random.default_rng(0)))
    outsider = next(client for client in population if client not in state.subset)
    leave = Change.of([outsider])
    after, done = toy.drive(method.apply(state, leave, two, np.random.default_rng(0)))
    assert toy.orders == []
    assert after.fused is state.fused
    assert outsider not in after.population
    assert (done.evicted, done.admitted) == ((), ())
