"""Tasks, wherever they are needed.

A worker prepares its tasks instead of receiving them, so that a large data set is read from
disk and not piped through pickles.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from testbed.config import Experiment
from testbed.learning.client import prepare
from testbed.learning.task import Task

# What `prepare` reads of an experiment: sweeps over all else have one task.
_RELEVANT: Any = {
    "clients": {"pool"},
    "execution": {"cache"},
    **dict.fromkeys(("data", "learning", "detection", "fisher", "fusion"), True),
}


@dataclass(frozen=True)
class Blueprint:
    """What a task is prepared from, in a form that can be sent and compared.

    Attributes
    ----------
    experiment : str
        JSON of the keys that matter.
    seed : int
    """

    experiment: str
    seed: int

    @classmethod
    def of(cls, experiment: Experiment, seed: int) -> "Blueprint":
        """Take what matters of an experiment."""
        return cls(experiment.model_dump_json(include=_RELEVANT), seed)


Source = Task | Blueprint


def task_of(source: Source) -> Task:
    """Return a task, prepared if it has to be; the last few of a process are remembered.

    Raises
    ------
    TestbedError
        If it cannot be prepared.
    """
    return source if isinstance(source, Task) else _prepared(source)


@lru_cache(maxsize=4)
def _prepared(blueprint: Blueprint) -> Task:
    return prepare(Experiment.model_validate_json(blueprint.experiment), blueprint.seed)
