"""The state after edits is the one computed from scratch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from worlds import METHODS, Ran, executor_of, quick, simulate

from testbed.editing import fsosa
from testbed.editing.orders import Fuse, Train
from testbed.fusion.fsosa import Projection, fuse
from testbed.learning.blocks import blocks

EVERY = pytest.mark.parametrize("method", METHODS)


def from_scratch(ran: Ran) -> fsosa.State:
    """Build the state of the final subset with everything computed anew."""
    state = ran.world.coordinator.state
    assert state is not None
    _, executor = executor_of(ran.experiment, ran.task.streams.seed)
    projection = Projection.from_config(ran.experiment.fusion)
    work = fsosa.build(state.population, state.subset, {})
    answer: Any = None
    try:
        while True:
            match work.send(answer):
                case Train(clients):
                    trained = executor.train([client.partition for client in clients])
                    answer = {c: one.contribution for c, one in zip(clients, trained, strict=True)}
                case Fuse(contributions):
                    answer = fuse(contributions, blocks(ran.task.model), projection)
    except StopIteration as finished:
        result: fsosa.State = finished.value
        return result


@pytest.mark.parametrize("which", ["ran", "batched"])
@pytest.mark.parametrize("method", ["fsosa", "retrain"])
def test_the_edited_model_is_the_one_built_from_scratch_bit_for_bit(
    request: pytest.FixtureRequest, which: str, method: str
) -> None:
    ran: Ran = request.getfixturevalue(which)[method]
    rebuilt = from_scratch(ran)
    assert sum(metric.subset_changed for metric in ran.outcome.metrics) > 0
    assert ran.outcome.model.keys() == rebuilt.fused.model.keys()
    for name, value in ran.outcome.model.items():
        assert value.numpy().tobytes() == rebuilt.fused.model[name].numpy().tobytes()


def test_nobody_who_left_is_left_in_the_coordinators_state(ran: Mapping[str, Ran]) -> None:
    state = ran["fsosa"].world.coordinator.state
    assert isinstance(state, fsosa.State)
    assert set(state.contributions) == set(state.subset) <= set(state.population)
    assert "b" not in {client.vehicle for client in state.contributions}


@pytest.mark.parametrize("seed", range(6))
def test_edits_are_exact_whatever_is_drawn(trace: Path, seed: int) -> None:
    ran = simulate(quick(), trace, seed=seed)
    task, _ = executor_of(ran.experiment, seed)
    state = ran.world.coordinator.state
    assert isinstance(state, fsosa.State)
    projection = Projection.from_config(ran.experiment.fusion)
    executor = ran.world.executor
    contributions = [executor.train([c.partition])[0].contribution for c in state.subset]
    rebuilt = fuse(contributions, blocks(task.model), projection)
    assert all(torch.equal(rebuilt.model[n], ran.outcome.model[n]) for n in rebuilt.model)
    assert len(state.subset) == 3


def test_replaced_and_changed_say_how_the_subset_moved(ran: Mapping[str, Ran]) -> None:
    for metric in ran["fsosa"].outcome.metrics[1:]:
        assert metric.subset_changed == metric.triggered == (metric.replaced > 0)
        # One change moves one member at most.
        assert metric.replaced <= 1
    retrained = ran["retrain"].outcome.metrics[1:]
    assert all(metric.triggered for metric in retrained)
    assert all(m.replaced <= 3 for m in retrained)
    assert not any(metric.subset_changed for metric in ran["finetune"].outcome.metrics)


def test_a_second_run_is_the_same_run(trace: Path) -> None:
    first, second = (simulate(quick(), trace).outcome for _ in range(2))
    assert first.ledger == second.ledger
    assert first.metrics == second.metrics


def test_another_seed_is_another_run(trace: Path) -> None:
    first, second = (simulate(quick(), trace, seed=seed).outcome for seed in (0, 1))
    assert [m.partition for m in first.metrics] != [m.partition for m in second.metrics]
    assert first.metrics[0].accuracy != second.metrics[0].accuracy
