"""The learning task of a run, and what a client contributes to it.

A contribution is a pure function of (run seed, data partition): the initial model, the
partition, the order of batches and the sampled labels all come from named streams.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from testbed.config import Experiment
from testbed.data import Dataset, load_dataset, partition
from testbed.learning.blocks import State
from testbed.learning.compression import FULL, Upload
from testbed.learning.conditioning import AS_COMPUTED, Conditioning, condition
from testbed.learning.contribution import Contribution, received
from testbed.learning.evaluation import Score, evaluate
from testbed.learning.factors import Kind
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
        Sample indices of each data partition.
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
    )
    learning = experiment.learning
    return Task(
        dataset=dataset,
        parts=partition(dataset.y_train, experiment.clients.pool, experiment.data, streams),
        model=model,
        initial={name: value.detach().clone() for name, value in model.state_dict().items()},
        recipe=Recipe(learning.epochs, learning.lr, learning.batch, learning.momentum),
        kind=experiment.fisher.kind,
        estimator=experiment.fisher.estimator,
        streams=streams,
        conditioning=Conditioning.from_config(experiment.fusion),
        upload=Upload(experiment.fisher.upload, experiment.fisher.rank),
    )


def train_client(task: Task, part: int, start: State) -> dict[str, Tensor]:
    """Train a partition's client from `start` and return its state dict."""
    pictures, labels = task.samples(part)
    rng = task.streams.rng("client", part, "batches")
    return train(task.model, start, pictures, labels, task.recipe, rng)


def inform(task: Task, part: int, state: State) -> Contribution:
    """Add a partition's Fisher to its trained `state`; return what the coordinator receives."""
    pictures, labels = task.samples(part)
    rng = task.streams.rng("client", part, "labels")
    blocks = fisher(task.model, state, pictures, labels, task.kind, task.estimator, rng)
    blocks = condition(blocks, len(labels), task.conditioning)
    return received(Contribution(len(labels), state, blocks), task.upload)


def score(task: Task, state: State) -> Score:
    """Evaluate `state` on the test set."""
    return evaluate(
        task.model,
        state,
        torch.from_numpy(task.dataset.x_test),
        torch.from_numpy(task.dataset.y_test),
    )
