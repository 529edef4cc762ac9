"""The task of a run without learning: shapes and partitions, no pictures.

Points of a sweep that differ in what neither touches share both.
"""

from dataclasses import replace
from functools import lru_cache

from torch import nn

from testbed.config import Experiment
from testbed.config.schema import DataConfig
from testbed.data import Dataset, IntArray, hold_out, load_labels, partition
from testbed.execution import Blueprint
from testbed.learning.classification import Classification
from testbed.learning.client import prepare
from testbed.learning.compression import Upload
from testbed.learning.conditioning import Conditioning
from testbed.learning.models import Shape, build
from testbed.learning.task import Task
from testbed.learning.training import Recipe
from testbed.streams import Streams

_Parts = tuple[IntArray, ...]

# One network for each name, so that what follows from its shapes is worked out once.
_detectors: dict[str, Task] = {}


def outline(experiment: Experiment, seed: int) -> Task:
    """Return the task of an experiment with black pictures and any weights.

    The pictures of detection are read, because which of them can be used is seen no sooner.
    Where a task was returned before for the same data, clients, recipe and seed, it is
    returned again.

    Raises
    ------
    DataError
        If the data set is missing or too small for the pool.
    ConfigError
        If the model needs an extra that is not installed.
    """
    return _outline(Blueprint.of(experiment, seed))


@lru_cache(maxsize=64)
def _outline(blueprint: Blueprint) -> Task:
    experiment, seed = Experiment.model_validate_json(blueprint.experiment), blueprint.seed
    if experiment.data.name == "bdd100k":
        task = prepare(experiment, seed)
        like = _detectors.setdefault(experiment.learning.model, task)
        return replace(task, model=like.model, initial=like.initial)
    learning, data = experiment.learning, _labels(experiment.data)
    channels, height, width = data.x_train.shape[1:]
    shape, classes = (channels, height, width), len(data.classes)
    model = _network(learning.model, shape, classes, learning.width)
    parts, holdouts = _parts(experiment.data, experiment.clients.pool, seed)
    return Classification(
        dataset=data,
        parts=parts,
        holdouts=holdouts,
        model=model,
        initial=model.state_dict(),
        recipe=Recipe(learning.epochs, learning.lr, learning.batch, learning.momentum),
        kind=experiment.fisher.kind,
        estimator=experiment.fisher.estimator,
        streams=Streams(seed),
        conditioning=Conditioning.from_config(experiment.fusion),
        upload=Upload(experiment.fisher.upload, experiment.fisher.rank),
    )


@lru_cache(maxsize=4)
def _labels(config: DataConfig) -> Dataset:
    return load_labels(config)


@lru_cache(maxsize=64)
def _parts(config: DataConfig, pool: int, seed: int) -> tuple[_Parts, _Parts]:
    data, streams = _labels(config), Streams(seed)
    everything = partition(data.y_train, pool, config, streams, data.writers_train)
    return hold_out(everything, config.holdout, streams)


@lru_cache(maxsize=16)
def _network(name: str, shape: Shape, classes: int, width: int) -> nn.Module:
    return build(name, shape, classes, seed=0, width=width)
