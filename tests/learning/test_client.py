"""A contribution is a function of (seed, partition), of nothing else."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from testbed.config import Experiment
from testbed.learning.client import inform, prepare
from testbed.learning.compression import Upload
from testbed.learning.contribution import deserialise, serialise
from testbed.learning.task import Task


def experiment(**fisher: str) -> Experiment:
    return Experiment.model_validate(
        {"clients": {"pool": 12}, "learning": {"epochs": 2, "batch": 16}, "fisher": fisher}
    )


def message(task: Task, part: int) -> bytes:
    return serialise(inform(task, part, task.train(part, task.initial)))


@pytest.fixture(scope="module")
def task() -> Task:
    return prepare(experiment(), seed=0)


@pytest.fixture(scope="module")
def messages(task: Task) -> list[bytes]:
    return [message(task, part) for part in (2, 5, 7)]


def test_order_does_not_matter(task: Task, messages: list[bytes]) -> None:
    assert [message(task, part) for part in (7, 5, 2)] == messages[::-1]


def test_a_task_prepared_anew_gives_the_same_bits(messages: list[bytes]) -> None:
    torch.manual_seed(1234)
    assert message(prepare(experiment(), seed=0), 5) == messages[1]


def test_other_clients_data_does_not_matter(task: Task, messages: list[bytes]) -> None:
    others = [part if number == 5 else part[:1] for number, part in enumerate(task.parts)]
    assert message(replace(task, parts=others), 5) == messages[1]


def test_the_seed_and_the_partition_matter(task: Task, messages: list[bytes]) -> None:
    assert len(set(messages)) == 3
    assert message(prepare(experiment(), seed=1), 5) != messages[1]
    # The same samples under another number: only the order of the batches differs.
    swapped = list(task.parts)
    swapped[2] = task.parts[5]
    assert message(replace(task, parts=swapped), 2) != messages[1]


def test_sampled_labels_come_from_a_stream_of_their_own() -> None:
    sampled = prepare(experiment(estimator="sampled"), seed=0)
    assert message(sampled, 5) == message(sampled, 5)
    exact = prepare(experiment(), seed=0)
    state = sampled.train(5, sampled.initial)
    # Drawing labels leaves training alone.
    assert all(
        torch.equal(value, exact.train(5, exact.initial)[name]) for name, value in state.items()
    )
    assert not torch.equal(
        inform(sampled, 5, state).fisher["0"].g, inform(exact, 5, state).fisher["0"].g
    )


@pytest.mark.parametrize("form", ["half", "low-rank"])
def test_the_contribution_is_what_the_coordinator_receives(task: Task, form: str) -> None:
    upload = Upload(form, rank=4)
    sent = inform(task, 5, task.initial)
    got = inform(replace(task, upload=upload), 5, task.initial)
    assert serialise(got) == serialise(deserialise(serialise(sent, upload)))
    assert serialise(got) != serialise(sent)
    assert got.samples == sent.samples


def test_a_task_holds_what_the_experiment_says(task: Task) -> None:
    assert task.shape == (1, 8, 8)
    assert (task.recipe.epochs, task.recipe.lr, task.recipe.batch) == (2, 0.01, 16)
    assert len(task.parts) == 12
    pictures, labels = task.samples(5)
    assert pictures.dtype == torch.float32
    assert labels.dtype == torch.int64
    assert np.array_equal(labels.numpy(), task.dataset.y_train[task.parts[5]])
    assert inform(task, 5, task.initial).samples == len(labels)


def test_training_helps_and_leaves_w0_alone(task: Task) -> None:
    before = {name: value.clone() for name, value in task.initial.items()}
    recipe = replace(task.recipe, epochs=20)
    whole = replace(task, recipe=recipe, parts=[np.arange(400)])
    trained = whole.train(0, whole.initial)
    assert all(torch.equal(task.initial[name], before[name]) for name in before)
    assert whole.score(trained).accuracy > whole.score(whole.initial).accuracy + 0.3
