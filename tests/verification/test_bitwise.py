"""Edits against builds from scratch: production passes, whatever remembers does not."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import wrong
from certified import failed

from testbed.config import Experiment
from testbed.editing import fsosa
from testbed.editing.orders import Tune
from testbed.errors import ConfigError, EditError
from testbed.learning.task import Task
from testbed.streams import Streams
from testbed.verification.bitwise import bitwise
from testbed.verification.certificate import configured
from testbed.verification.federation import Federation, plan

CHANGES = 6


def test_production_forgets(experiment: Experiment, task: Task) -> None:
    part = bitwise(experiment, task, CHANGES)
    assert part.passed
    numbers = part.numbers
    assert (numbers["population"], numbers["subset"], numbers["changes"]) == (5, 2, CHANGES)
    assert all(0 < count <= CHANGES for count in numbers["triggered"].values())
    assert numbers["joins"] + numbers["leaves"] + numbers["batches"] == CHANGES
    # Three parts of the subset, the model's 8 tensors and the solver's report; of each of two
    # contributions n, 8 tensors and 4 blocks of two factors or of one diagonal.
    kfac, diagonal = 12 + 2 * (1 + 8 + 8), 12 + 2 * (1 + 8 + 4)
    assert numbers["values_compared"] == CHANGES * (kfac + diagonal)
    assert f"({sum(numbers['triggered'].values())} edits touched the subset)" in part.sentence


def test_a_warm_start_shows(experiment: Experiment, task: Task) -> None:
    part = bitwise(experiment, task, CHANGES, fuse=wrong.warm_start())
    sentence = failed(part)
    assert sentence.startswith("kfac, after change ")
    assert "of the model is not what a build from scratch gives" in sentence


def test_another_order_of_summation_shows(experiment: Experiment, task: Task) -> None:
    three = experiment.model_copy(
        update={"editing": experiment.editing.model_copy(update={"rho": 0.7})}
    )
    assert "of the model" in failed(bitwise(three, task, 4, fuse=wrong.newest_first))


def test_kept_contributions_show(experiment: Experiment, task: Task) -> None:
    part = bitwise(experiment, task, CHANGES, wrong.keeping_contributions)
    assert "whose contributions are kept is not what" in failed(part)


def test_a_stale_model_shows(experiment: Experiment, task: Task) -> None:
    assert "of the model" in failed(bitwise(experiment, task, CHANGES, wrong.stale_model))


def test_one_flipped_bit_of_a_contribution_shows(experiment: Experiment, task: Task) -> None:
    """A kept contribution is changed in its last bit by every edit."""

    def flipping(state: Any, *arguments: Any) -> Any:
        edited, diagnostics = yield from fsosa.apply(state, *arguments)
        contributions = dict(edited.contributions)
        client, one = next(iter(contributions.items()))
        bits = one.model["0.weight"].clone()
        bits.view(-1).view(torch.int32)[0] ^= 1
        contributions[client] = replace(one, model={**one.model, "0.weight": bits})
        return replace(edited, contributions=contributions), diagnostics

    sentence = failed(bitwise(experiment, task, 1, flipping))
    assert "0.weight of veh" in sentence
    assert "contribution is not what" in sentence


def test_nothing_verified_is_not_a_pass(experiment: Experiment, task: Task) -> None:
    """With a seed whose only change does not touch the subset."""
    for seed in range(20):
        quiet = replace(task, streams=Streams(seed))
        part = bitwise(experiment, quiet, 1)
        if 0 in part.numbers["triggered"].values():
            assert failed(part) == "No subset changed in 1 changes, so nothing was verified."
            return
    raise AssertionError("every change of every seed touched the subset")


def test_the_plan_follows_the_configuration(experiment: Experiment) -> None:
    drawn = plan(experiment, Streams(0), 30, "edits")
    assert len(drawn.population) == 5
    assert (drawn.parameters.size, drawn.parameters.below) == (2, "shrink")
    population = drawn.population
    for change in drawn.changes:
        population = change.applied(population)
        assert 2 <= len(population) <= 8
        assert {client.partition for client in population} <= set(range(8))
    assert plan(experiment, Streams(0), 30, "edits") == drawn
    assert plan(experiment, Streams(0), 30, "traffic").changes != drawn.changes
    assert plan(experiment, Streams(1), 30, "edits").changes != drawn.changes


def test_without_an_initial_number_two_thirds_take_part() -> None:
    drawn = plan(configured(None, ["clients.initial=null", "clients.pool=10"]), Streams(0), 1, "x")
    assert len(drawn.population) == 7


def test_an_empty_subset_is_refused() -> None:
    thin = configured(None, ["clients.initial=null", "clients.pool=10", "editing.rho=0.1"])
    with pytest.raises(ConfigError, match=r"rho 0.1 of 7 initial clients gives an empty subset"):
        plan(thin, Streams(0), 1, "edits")


def test_a_federation_answers_only_what_the_method_asks(
    experiment: Experiment, task: Task
) -> None:
    federation = Federation.of(task, experiment, "diagonal")

    def tuning() -> Any:
        yield Tune((), {})

    with pytest.raises(EditError, match=r"cannot carry out Tune; .* Train and Fuse only$"):
        federation.drive(tuning())
    assert federation.anew().executor is not federation.executor
