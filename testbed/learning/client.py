"""A run's learning task, and what a client contributes to it."""

from testbed.config import Experiment
from testbed.learning import classification
from testbed.learning.blocks import State
from testbed.learning.conditioning import condition
from testbed.learning.contribution import Contribution, received
from testbed.learning.task import Task


def prepare(experiment: Experiment, seed: int) -> Task:
    """Load the data, split it among the pool and build the initial model.

    Raises
    ------
    DataError
        If the data set is missing or too small for the pool.
    ConfigError
        If the model needs an extra that is not installed.
    """
    if experiment.data.name == "bdd100k":
        # Only those who train detectors pay for the import of what detection needs.
        from testbed.learning.detection import task as detection

        return detection.prepare(experiment, seed)
    return classification.prepare(experiment, seed)


def inform(task: Task, part: int, state: State) -> Contribution:
    """Add a partition's Fisher to its trained `state`; return what the coordinator receives."""
    samples = len(task.parts[part])
    blocks = task.information(part, state, task.kind, task.estimator)
    blocks = condition(blocks, samples, task.conditioning)
    return received(Contribution(samples, state, blocks), task.upload)
