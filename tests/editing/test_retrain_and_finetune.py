"""The two references: everything anew, and nothing forgotten."""

import numpy as np
import pytest
import torch
from exact import clients, every, uniform

from testbed.editing import finetune, fsosa, retrain
from testbed.editing.clients import Change
from testbed.editing.fsosa import Parameters
from testbed.editing.methods import METHODS
from testbed.editing.orders import Train, Tune
from testbed.errors import EditError
from testbed.learning.contribution import serialise
from testbed.streams import Streams

P3 = Parameters(size=3)


def rng(seed: int = 0) -> np.random.Generator:
    return Streams(seed).rng("sampling")


def equal(one, other) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_methods_are_complete() -> None:
    from typing import get_args

    from testbed.config.schema import Method

    assert set(METHODS) == set(get_args(Method))


@pytest.mark.parametrize("method", [name for name in METHODS if not METHODS[name].in_rounds])
def test_all_methods_start_from_the_same_one_shot_model(federation, method: str) -> None:
    expected = federation().drive(fsosa.init(clients(range(6)), P3, rng()))
    state = federation().drive(METHODS[method].init(clients(range(6)), P3, rng()))
    assert state.population == expected.population
    assert equal(state.fused.model, expected.fused.model)


# --- Retrain ---------------------------------------------------------------------------


def test_retrain_trains_the_whole_subset_at_every_request(federation) -> None:
    home = federation()
    state = home.drive(retrain.init(clients(range(6)), P3, rng()))
    outsider = next(client for client in state.population if client not in state.subset)
    for change in (Change.of([outsider]), Change.of((), clients([8])), Change.of()):
        home.orders.clear()
        state, _ = home.drive(retrain.apply(state, change, P3, rng(1)))
        assert home.kinds() == ["Train", "Fuse"]
        assert home.orders[0] == Train(state.subset)
        assert len(state.subset) == 3


def test_retrain_draws_a_fresh_uniform_subset_of_the_new_population(federation) -> None:
    home = federation()
    state = home.drive(retrain.init(clients(range(5)), P3, rng()))
    change = Change.of(clients([0]), clients([7]))

    def subset(generator):
        return next(retrain.apply(state, change, P3, generator)).clients

    law: dict = {}
    for probability, drawn in every(subset):
        law[drawn] = law.get(drawn, 0) + probability
    assert law == uniform(clients([1, 2, 3, 4, 7]), 3)


def test_retrain_is_deterministic_and_equals_a_fresh_start(federation) -> None:
    change = Change.of(clients([0]), clients([7]))
    runs = []
    for _ in range(2):
        home = federation("kfac")
        state = home.drive(retrain.init(clients(range(6)), P3, rng()))
        runs.append(home.drive(retrain.apply(state, change, P3, rng(1)))[0])
    fresh = federation("kfac").drive(fsosa.init(clients([1, 2, 3, 4, 5, 7]), P3, rng(1)))
    for one in runs:
        assert one.subset == fresh.subset
        assert equal(one.fused.model, fresh.fused.model)
        assert [serialise(each) for each in one.contributions.values()] == [
            serialise(each) for each in fresh.contributions.values()
        ]


def test_retrain_reports_what_changed(federation) -> None:
    home = federation()
    state = home.drive(retrain.init(clients(range(6)), P3, rng()))
    after, done = home.drive(retrain.apply(state, Change.of(state.subset), P3, rng(1)))
    assert done.evicted == state.subset
    assert done.admitted == after.subset


def test_retrain_keeps_the_rule_below_p(federation) -> None:
    home = federation()
    state = home.drive(retrain.init(clients(range(3)), P3, rng()))
    change = Change.of(clients([1]))
    with pytest.raises(EditError, match=r"2 clients .* P = 3"):
        home.drive(retrain.apply(state, change, Parameters(3, "strict"), rng(1)))
    after, _ = home.drive(retrain.apply(state, change, P3, rng(1)))
    assert after.subset == clients([0, 2])


# --- fine-tuning -----------------------------------------------------------------------


def test_a_newcomer_is_averaged_in_by_hand(federation) -> None:
    """M = 6: the model counts six times, the newcomer once."""
    home = federation()
    state = home.drive(finetune.init(clients(range(6)), P3, rng()))
    (newcomer,) = clients([8])
    home.orders.clear()
    after, _ = home.drive(finetune.apply(state, Change.of((), [newcomer]), P3, rng(1)))
    assert home.kinds() == ["Tune"]
    order = home.orders[0]
    assert isinstance(order, Tune)
    assert order.clients == (newcomer,)
    assert order.start is state.fused.model
    tuned = home.task.train(8, state.fused.model)
    for name, value in state.fused.model.items():
        expected = ((6 * value.double() + tuned[name].double()) / 7).float()
        assert torch.equal(after.fused.model[name], expected)
        assert after.fused.model[name].dtype == value.dtype
    assert after.population == clients([0, 1, 2, 3, 4, 5, 8])


def test_a_leave_keeps_the_very_same_model(federation) -> None:
    home = federation()
    state = home.drive(finetune.init(clients(range(6)), P3, rng()))
    home.orders.clear()
    after, done = home.drive(finetune.apply(state, Change.of(clients([0, 1])), P3, rng(1)))
    assert home.orders == []
    assert after.fused is state.fused
    assert after.population == clients([2, 3, 4, 5])
    assert (done.evicted, done.admitted, after.subset) == ((), (), ())


def test_newcomers_of_a_batch_all_start_from_the_released_model(federation) -> None:
    """Two leave, three join, M = 6: the model stands for the four who stay."""
    home = federation()
    state = home.drive(finetune.init(clients(range(6)), P3, rng()))
    change = Change.of(clients([0, 1]), clients([7, 8, 9]))
    after, _ = home.drive(finetune.apply(state, change, P3, rng(1)))
    tuned = [home.task.train(part, state.fused.model) for part in (7, 8, 9)]
    for name, value in state.fused.model.items():
        newcomers = torch.stack([each[name].double() for each in tuned]).sum(dim=0)
        expected = ((4 * value.double() + newcomers) / 7).float()
        torch.testing.assert_close(after.fused.model[name], expected, rtol=1e-6, atol=1e-7)


def test_a_batch_equals_its_leaves_before_its_joins(federation) -> None:
    home = federation()
    state = home.drive(finetune.init(clients(range(6)), P3, rng()))
    out, into = clients([0, 1]), clients([7, 8])
    batch, _ = home.drive(finetune.apply(state, Change.of(out, into), P3, rng(1)))
    left, _ = home.drive(finetune.apply(state, Change.of(out), P3, rng(1)))
    joined, _ = home.drive(finetune.apply(left, Change.of((), into), P3, rng(1)))
    assert batch.population == joined.population
    assert equal(batch.fused.model, joined.fused.model)


def test_fine_tuning_draws_nothing_after_the_start(federation) -> None:
    home, generator = federation(), rng(1)
    state = home.drive(finetune.init(clients(range(6)), P3, rng()))
    before = generator.bit_generator.state
    home.drive(finetune.apply(state, Change.of(clients([0]), clients([7])), P3, generator))
    assert generator.bit_generator.state == before


def test_fine_tuning_refuses_what_does_not_fit(federation) -> None:
    home = federation()
    state = home.drive(finetune.init(clients(range(6)), P3, rng()))
    with pytest.raises(EditError, match="already"):
        home.drive(finetune.apply(state, Change.of((), clients([3])), P3, rng(1)))
