"""How long a sweep will take, and how much disk it will use.

Operations and bytes are known exactly.  How long an operation takes is measured with a probe:
one batch of one client, once for everything that clients may learn.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch

from testbed.config import Experiment
from testbed.execution import Blueprint, Store
from testbed.execution.work import flops
from testbed.experiments.plan import Need, Plan
from testbed.learning.classification import Classification
from testbed.learning.contribution import serialise_model
from testbed.learning.evaluation import evaluate
from testbed.learning.statistics import contribute, statistic_bytes
from testbed.learning.task import Task
from testbed.simulation.outline import outline

_LONG_ENOUGH_S = 0.1
_TEST_PICTURES = 500
# Of a ledger row in both of its files, and of the other files of a run.
_ROW_BYTES, _RUN_BYTES = 250, 30_000


@dataclass(frozen=True)
class Estimate:
    """Seconds that one core works, and bytes.

    Attributes
    ----------
    trainings_s : float
        Of the unique trainings that are not in the store, statistics included.
    tunings_s : float
        Of models that are trained further, which belong to one run each.
    fusions_s, releases_s : float
        Of fusions and of evaluations.
    store_bytes, results_bytes : int
    """

    trainings_s: float
    tunings_s: float
    fusions_s: float
    releases_s: float
    store_bytes: int
    results_bytes: int

    @property
    def total_s(self) -> float:
        """Seconds of everything."""
        return self.trainings_s + self.tunings_s + self.fusions_s + self.releases_s


class Probe:
    """Seconds of a task's work, measured when they are first asked for.

    Parameters
    ----------
    task : Task
        Pictures and weights do not matter.
    """

    def __init__(self, task: Task) -> None:
        self._task, self._few = task, task.few()
        self._per_flop: dict[str | None, float] = {}
        self._per_release: float | None = None

    def seconds(self, operations: int, statistic: str | None = None) -> float:
        """Return how long training takes, or the making of a statistic."""
        if statistic not in self._per_flop:
            few = self._few
            took = _measured(
                lambda: (
                    few.train(0, few.initial)
                    if statistic is None
                    else contribute(few, 0, few.initial, statistic)
                )
            )
            self._per_flop[statistic] = took / max(1, flops(few, 0, statistic))
        return operations * self._per_flop[statistic]

    def release(self) -> float:
        """Return how long a classifier's evaluation takes; a detector's is not measured."""
        task = self._task
        if not isinstance(task, Classification):
            return 0.0
        if self._per_release is None:
            pictures = torch.zeros(_TEST_PICTURES, *task.shape)
            labels = torch.zeros(_TEST_PICTURES, dtype=torch.int64)
            took = _measured(lambda: evaluate(task.model, task.initial, pictures, labels))
            self._per_release = took / _TEST_PICTURES * len(task.dataset.y_test)
        return self._per_release


def estimate(plan: Plan, store: Store) -> Estimate:
    """Estimate what is left to do of a plan, given what is in the store."""
    trainings = tunings = fusions = releases = 0.0
    store_bytes = results_bytes = 0
    for job in plan.left:
        new = store.record(job.key) is None
        keys = iter(job.keys)
        for blueprint, part, statistics in job.orders:
            task, probe = _task(blueprint), _probe(blueprint.experiment)
            model = len(serialise_model(task.initial))
            if new:
                trainings += probe.seconds(flops(task, part))
                store_bytes += model
                new = False
            for statistic, key in zip(statistics, keys, strict=False):
                if not store.path(key).exists():
                    trainings += probe.seconds(flops(task, part, statistic), statistic)
                    store_bytes += statistic_bytes(task, statistic)(part) - model
    for run in plan.runs:
        if isinstance(run.need, Need):
            blueprint = run.ask.blueprint
            probe = _probe(blueprint.experiment)
            tunings += probe.seconds(run.need.tuning_flops)
            fusions += probe.seconds(run.need.fusion_flops)
            releases += run.need.releases * probe.release()
            results_bytes += run.need.rows * _ROW_BYTES + _RUN_BYTES
            results_bytes += len(serialise_model(_task(blueprint).initial))
    return Estimate(trainings, tunings, fusions, releases, store_bytes, results_bytes)


@lru_cache(maxsize=64)
def _task(blueprint: Blueprint) -> Task:
    return outline(Experiment.model_validate_json(blueprint.experiment), blueprint.seed)


@lru_cache(maxsize=64)
def _probe(experiment: str) -> Probe:
    return Probe(_task(Blueprint(experiment, 0)))


def _measured(work: Callable[[], object]) -> float:
    """Return how long some work takes: the first time, which sets torch up, does not count."""
    work()
    times, begin = 0, time.perf_counter()
    while (took := time.perf_counter() - begin) < _LONG_ENOUGH_S:
        work()
        times += 1
    return took / times
