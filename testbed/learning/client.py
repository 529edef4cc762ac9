"""The learning task of a run, and what a client contributes to it.

A contribution is a pure function of (run seed, data partition): the initial model, the
partition, the order of batches and the sampled labels all come from named streams.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from testbed.config import Experiment
from testbed.data import Dataset, hold_out, load_dataset, partition
from testbed.learning import curvature
from testbed.learning.blocks import State
from testbed.learning.compression import FULL, Upload
from testbed.learning.conditioning import AS_COMPUTED, Conditioning, condition
from testbed.learning.contribution import Contribution, received
from testbed.learning.devices import CPU, choose, factors_on_cpu, placed
from testbed.learning.evaluation import Score, evaluate
from testbed.learning.factors import Factor, Kind
from testbed.learning.fisher import Estimator, fisher
from testbed.learning.models import Shape, build
from testbed.learning.training import Recipe, train
from testbed.streams import Streams


@dataclass(frozen=True, eq=False)
class Task:
    """Everything that client training in one run depends on.

    Attributes
    ----------
    dataset : Dataset
    parts : sequence of array
        Sample indices of each data partition, to train on.
    holdouts : sequence of array
        Sample indices that each partition's client never trains on.
    model : Module
        Scratch network; its weights are meaningless between calls.
    initial : mapping of str to Tensor
        W0, the common initial model.
    recipe : Recipe
    kind : {"kfac", "diagonal"}
    estimator : {"exact", "sampled", "empirical"}
    streams : Streams
    conditioning : Conditioning
        What a client does to its Fisher blocks before it sends them.
    upload : Upload
        The form in which the Fisher is sent.
    device : device
        Where clients compute.
    """

    dataset: Dataset
    parts: Sequence[np.ndarray]
    model: nn.Module
    initial: State
    recipe: Recipe
    kind: Kind
    estimator: Estimator
    streams: Streams
    conditioning: Conditioning = AS_COMPUTED
    upload: Upload = FULL
    holdouts: Sequence[np.ndarray] = ()
    device: torch.device = CPU

    @property
    def shape(self) -> Shape:
        """Channels, height and width of a picture."""
        channels, height, width = self.dataset.x_train.shape[1:]
        return channels, height, width

    def samples(self, part: int) -> tuple[Tensor, Tensor]:
        """Pictures and labels of a partition."""
        chosen = self.parts[part]
        return (
            torch.from_numpy(self.dataset.x_train[chosen]),
            torch.from_numpy(self.dataset.y_train[chosen]),
        )


def prepare(experiment: Experiment, seed: int) -> Task:
    """Load the data, split it among the pool and build the initial model.

    Raises
    ------
    DataError
        If the data set is missing or too small for the pool.
    """
    streams = Streams(seed)
    dataset = load_dataset(experiment.data)
    channels, height, width = dataset.x_train.shape[1:]
    model = build(
        experiment.learning.model,
        (channels, height, width),
        len(dataset.classes),
        streams.integer("model"),
        experiment.learning.width,
    )
    learning = experiment.learning
    everything = partition(
        dataset.y_train, experiment.clients.pool, experiment.data, streams, dataset.writers_train
    )
    parts, holdouts = hold_out(everything, experiment.data.holdout, streams)
    return Task(
        dataset=dataset,
        parts=parts,
        holdouts=holdouts,
        model=model,
        initial={name: value.detach().clone() for name, value in model.state_dict().items()},
        recipe=Recipe(learning.epochs, learning.lr, learning.batch, learning.momentum),
        kind=experiment.fisher.kind,
        estimator=experiment.fisher.estimator,
        streams=streams,
        conditioning=Conditioning.from_config(experiment.fusion),
        upload=Upload(experiment.fisher.upload, experiment.fisher.rank),
        device=choose(learning.device),
    )


@dataclass(frozen=True)
class Session:
    """Which training of a client is meant; the default is the one of its contribution.

    Attributes
    ----------
    epochs : int or None
        None for the recipe's.
    round : int
        The training round of methods that have several: another order of batches.
    optimiser : {"sgd", "curvature"}
    """

    epochs: int | None = None
    round: int = 0
    optimiser: Literal["sgd", "curvature"] = "sgd"


ONE_SHOT = Session()


def train_client(
    task: Task, part: int, start: State, session: Session = ONE_SHOT
) -> dict[str, Tensor]:
    """Train a partition's client from `start` and return its state dict."""
    pictures, labels = task.samples(part)
    names = ("batches",) if session.round == 0 else ("batches", session.round)
    rng = task.streams.rng("client", part, *names)
    recipe = task.recipe
    if session.epochs is not None:
        recipe = replace(recipe, epochs=session.epochs)
    by = curvature.train if session.optimiser == "curvature" else train
    return by(task.model, start, pictures, labels, recipe, rng, task.device)


def information(
    task: Task, part: int, state: State, kind: Kind, estimator: Estimator
) -> dict[str, Factor]:
    """Compute a partition's Fisher as it is, on the task's device."""
    pictures, labels = (each.to(task.device) for each in task.samples(part))
    rng = task.streams.rng("client", part, "labels")
    with placed(task.model, task.device):
        made = fisher(task.model, state, pictures, labels, kind, estimator, rng)
        return factors_on_cpu(made)


def inform(task: Task, part: int, state: State) -> Contribution:
    """Add a partition's Fisher to its trained `state`; return what the coordinator receives."""
    samples = len(task.parts[part])
    blocks = information(task, part, state, task.kind, task.estimator)
    blocks = condition(blocks, samples, task.conditioning)
    return received(Contribution(samples, state, blocks), task.upload)


def score(task: Task, state: State) -> Score:
    """Evaluate `state` on the test set."""
    return evaluate(
        task.model,
        state,
        torch.from_numpy(task.dataset.x_test),
        torch.from_numpy(task.dataset.y_test),
    )
