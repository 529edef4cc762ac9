"""What is audited: a finished run's last model, who is in it, and who withdrew.

A run folder does not say who was in the subset.  Its recorded traffic is followed again, with
placeholders instead of clients, which takes a moment: membership and subsets do not depend on
what was learned.  The requests found must be those of the folder.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from testbed.config import Experiment
from testbed.editing.clients import Client
from testbed.errors import FusionError, ResultsError
from testbed.execution import Executor
from testbed.learning.blocks import State
from testbed.learning.classification import Classification
from testbed.learning.contribution import deserialise_model
from testbed.learning.task import Task
from testbed.mobility import open_source
from testbed.simulation.placeholder import Placeholder
from testbed.simulation.world import World

# What is the same in both, unless something else than the recorded run was followed.
_SAME = ("request", "kind", "vehicle", "partition", "batch", "population", "subset", "replaced")


@dataclass(frozen=True, eq=False)
class Subject:
    """A finished run as far as an audit is concerned.

    Attributes
    ----------
    experiment : Experiment
    method : str
    task : Classification
    size : int
        P.
    members : tuple of Client
        Whose contributions the released model holds as far as they are clients.
    population : tuple of Client
        At the end.
    withdrawn : tuple of Client
        Who contributed and left, and whose partition nobody else has now.
    model : mapping of str to Tensor
        The released model.
    """

    experiment: Experiment
    method: str
    task: Classification
    size: int
    members: tuple[Client, ...]
    population: tuple[Client, ...]
    withdrawn: tuple[Client, ...]
    model: State

    @property
    def everyone(self) -> tuple[Client, ...]:
        """All who are there or withdrew; sorted."""
        return tuple(sorted({*self.population, *self.withdrawn}))


def auditable(experiment: Experiment, folder: Path) -> None:
    """Refuse a run whose model cannot be attacked, before anything is prepared.

    Raises
    ------
    ResultsError
    """
    if experiment.fidelity == "cost":
        raise ResultsError(
            f"{folder}: nothing was trained (fidelity cost), so there is no model to attack; "
            "run it with --set fidelity=train"
        )
    if experiment.data.name == "bdd100k":
        raise ResultsError(
            f"{folder}: its model detects objects; the attacks take a class's probability, "
            "audit a run of another data set"
        )


def subject(
    experiment: Experiment,
    task: Task,
    executor: Executor,
    folder: Path,
    manifest: Mapping[str, Any],
    metrics: pd.DataFrame,
) -> Subject:
    """Follow a run's requests again and collect who is where.

    Parameters
    ----------
    experiment : Experiment
        Of the run.
    task : Task
        Of the experiment and the run's seed.
    executor : Executor
        Has clients train where uploads were refused: that depends on what was learned.
    folder : Path
        The run directory, with ``trace.csv`` and ``model.safetensors``.
    manifest : mapping
    metrics : DataFrame

    Raises
    ------
    ResultsError
        If the data are others, or the requests are not those of the folder.
    """
    assert isinstance(task, Classification)
    if task.dataset.fingerprint != manifest["data"]["fingerprint"]:
        raise ResultsError(
            f"{folder}: it learned from data {manifest['data']['fingerprint']}, here are "
            f"{task.dataset.fingerprint}; bring back the data, or remove that folder and run the "
            "same command again"
        )
    method = str(manifest["method"])
    refused = manifest["counts"]["refused"] > 0
    traffic = experiment.mobility.model_copy(
        update={"source": "trace", "trace": folder / "trace.csv"}
    )
    again = experiment.model_copy(update={"mobility": traffic})
    with open_source(traffic, task.streams.seed) as source:
        world = World(again, method, task, executor if refused else Placeholder(task), source)
        outcome = world.run()
    state = world.coordinator.state
    assert state is not None
    found = pd.DataFrame([asdict(row) for row in outcome.metrics])[list(_SAME)]
    if not found.equals(metrics[list(_SAME)].astype(found.dtypes)):
        raise ResultsError(
            f"{folder}: its requests cannot be followed again with this code, so nobody knows "
            "who is in its model; remove that folder and run the same command again"
        )
    uploaded = {row.vehicle for row in outcome.ledger if row.phase == "upload"}
    left = {  # by partition, so that of several holders the last one stands
        row.partition: Client(row.vehicle, row.partition)
        for row in outcome.metrics
        if row.kind == "leave" and row.vehicle in uploaded
    }
    for client in state.population:
        left.pop(client.partition, None)
    return Subject(
        experiment,
        method,
        task,
        outcome.subset_size,
        state.subset or tuple(each for each in state.population if each.vehicle in uploaded),
        state.population,
        tuple(sorted(left.values())),
        _model(folder / "model.safetensors"),
    )


def _model(path: Path) -> State:
    try:
        return deserialise_model(path.read_bytes())
    except (OSError, FusionError) as error:
        raise ResultsError(
            f"{path}: {error}; remove that run's folder and run it again"
        ) from error
