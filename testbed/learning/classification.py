"""Learning to tell classes of pictures apart."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from testbed.config import Experiment
from testbed.config.schema import DataConfig
from testbed.data import Dataset, hold_out, load_dataset, partition
from testbed.errors import ConfigError
from testbed.learning import curvature
from testbed.learning.blocks import State
from testbed.learning.compression import Upload
from testbed.learning.conditioning import Conditioning
from testbed.learning.devices import choose, factors_on_cpu, placed
from testbed.learning.evaluation import Score, evaluate
from testbed.learning.factors import Factor, Kind
from testbed.learning.fisher import Estimator, fisher
from testbed.learning.models import Shape, build
from testbed.learning.task import ONE_SHOT, Session, Task
from testbed.learning.training import Recipe, train
from testbed.streams import Streams


@dataclass(frozen=True, eq=False, kw_only=True)
class Classification(Task):
    """A task whose samples are pictures of one class each.

    Attributes
    ----------
    dataset : Dataset
    recipe : Recipe
    """

    dataset: Dataset
    recipe: Recipe

    @property
    def shape(self) -> Shape:
        """Channels, height and width of a picture."""
        channels, height, width = self.dataset.x_train.shape[1:]
        return channels, height, width

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.dataset.classes

    @property
    def epochs(self) -> int:
        """Epochs of the recipe."""
        return self.recipe.epochs

    def samples(self, part: int) -> tuple[Tensor, Tensor]:
        """Pictures and labels of a partition."""
        chosen = self.parts[part]
        return (
            torch.from_numpy(self.dataset.x_train[chosen]),
            torch.from_numpy(self.dataset.y_train[chosen]),
        )

    def train(self, part: int, start: State, session: Session = ONE_SHOT) -> dict[str, Tensor]:
        """See `Task.train`."""
        pictures, labels = self.samples(part)
        rng = self.streams.rng(*session.stream(part))
        recipe = self.recipe
        if session.epochs is not None:
            recipe = replace(recipe, epochs=session.epochs)
        by = curvature.train if session.optimiser == "curvature" else train
        return by(self.model, start, pictures, labels, recipe, rng, self.device)

    def information(
        self, part: int, state: State, kind: Kind, estimator: Estimator
    ) -> dict[str, Factor]:
        """See `Task.information`."""
        pictures, labels = (each.to(self.device) for each in self.samples(part))
        rng = self.streams.rng("client", part, "labels")
        with placed(self.model, self.device):
            made = fisher(self.model, state, pictures, labels, kind, estimator, rng)
            return factors_on_cpu(made)

    def score(self, state: State) -> Score:
        """See `Task.score`."""
        return evaluate(
            self.model,
            state,
            torch.from_numpy(self.dataset.x_test),
            torch.from_numpy(self.dataset.y_test),
        )

    def few(self) -> "Classification":
        """See `Task.few`."""
        # Standing still lets a recipe that diverges get through all of it.
        recipe = replace(self.recipe, epochs=1, lr=0.0)
        return replace(self, parts=[self.parts[0][: recipe.batch]], recipe=recipe)

    def described(self) -> Mapping[str, Any]:
        """See `Task.described`."""
        return {"name": self.dataset.name, "fingerprint": self.dataset.fingerprint}


def classified(task: Task) -> Classification:
    """Return a task of classification as such.

    Raises
    ------
    ConfigError
        If it is another kind of task.
    """
    if not isinstance(task, Classification):
        raise ConfigError(
            "a method asks for pictures of one class each, which a detection task has not; "
            "take it out of editing.methods"
        )
    return task


def prepare(experiment: Experiment, seed: int) -> Classification:
    """Load the data, split it among the pool and build the initial model.

    Raises
    ------
    DataError
        If the data set is missing or too small for the pool.
    """
    streams, learning = Streams(seed), experiment.learning
    dataset = _dataset(experiment.data)
    channels, height, width = dataset.x_train.shape[1:]
    model = build(
        learning.model,
        (channels, height, width),
        len(dataset.classes),
        streams.integer("model"),
        learning.width,
    )
    everything = partition(
        dataset.y_train, experiment.clients.pool, experiment.data, streams, dataset.writers_train
    )
    parts, holdouts = hold_out(everything, experiment.data.holdout, streams)
    return Classification(
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


@lru_cache(maxsize=1)
def _dataset(config: DataConfig) -> Dataset:
    """Load a data set; the last one is kept, for the other seeds of an experiment."""
    return load_dataset(config)
