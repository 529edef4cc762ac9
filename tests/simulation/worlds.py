"""Small worlds: hand-written traffic, real training on a handful of digits."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from testbed.config import Experiment
from testbed.execution.executor import Clients, Executor
from testbed.learning.client import prepare
from testbed.learning.task import Task
from testbed.mobility import MobilityEvent, Trace, open_source, write_trace
from testbed.simulation.progress import Progress
from testbed.simulation.world import Outcome, World

METHODS = ("fsosa", "retrain", "finetune")
SMALL: dict[str, dict[str, Any]] = {
    "mobility": {"warmup": 10},
    "clients": {"initial": 6, "pool": 9},
    "data": {"test_share": 0.85, "holdout": 0},
    "learning": {"model": "small-cnn", "epochs": 1, "lr": 0.05, "batch": 16},
    "fusion": {"damping": 0.3},
    "editing": {"requests": 8},
}


def experiment(**sections: Any) -> Experiment:
    """Return the small experiment with some keys changed, section by section."""
    merged: dict[str, Any] = {name: dict(keys) for name, keys in SMALL.items()}
    for name, value in sections.items():
        if isinstance(value, dict):
            merged[name] = {**merged.get(name, {}), **value}
        else:
            merged[name] = value
    return Experiment.model_validate(merged)


def at(text: str) -> list[MobilityEvent]:
    """Read ``"1 +a +b; 20 -a"``: at 1 s a and b join, at 20 s a leaves."""
    events = []
    for moment in text.split(";"):
        time, *changes = moment.split()
        events += [
            MobilityEvent(float(time), change[1:], "join" if change[0] == "+" else "leave")
            for change in changes
        ]
    return events


# Six at the start, three newcomers for whom there is room, one for whom there is not.
TRAFFIC = (
    "1 +a +b +c +d +e +f; 12 +g; 15 -a; 15.5 +h; 21 +i; 22 +j; 23 +late; 30 -b; 31 -j;"
    " 44 +a; 50 -d; 61 +k"
)


def record(path: Path, events: Iterable[MobilityEvent], end: float | None = None) -> Path:
    """Write events as a trace file."""
    events = tuple(events)
    write_trace(path, Trace(events, end=events[-1].time if end is None else end), {})
    return path


@cache
def _prepared(key: str, seed: int) -> tuple[Task, Clients]:
    task = prepare(Experiment.model_validate_json(key), seed)
    return task, Clients(task)


def executor_of(wanted: Experiment, seed: int = 0) -> tuple[Task, Clients]:
    """Prepare the learning of an experiment, once for all tests that share it."""
    relevant = {
        "clients": {"pool"},
        **dict.fromkeys(("data", "learning", "fisher", "fusion"), True),
    }
    return _prepared(wanted.model_dump_json(include=relevant), seed)


@dataclass(frozen=True)
class Ran:
    """What one simulated run did."""

    experiment: Experiment
    world: World
    outcome: Outcome
    seen: Sequence[Progress]

    @property
    def task(self) -> Task:
        return self.world.task


def simulate(
    wanted: Experiment,
    trace: Path,
    method: str = "fsosa",
    seed: int = 0,
    wrapped: Callable[[Executor], Executor] = lambda executor: executor,
) -> Ran:
    """Run one method on a recorded trace, with the executor wrapped in another one."""
    mobility = wanted.mobility.model_copy(update={"source": "trace", "trace": trace})
    wanted = wanted.model_copy(update={"mobility": mobility})
    task, executor = executor_of(wanted, seed)
    seen: list[Progress] = []
    with open_source(wanted.mobility, seed) as source:
        world = World(wanted, method, task, wrapped(executor), source, seen.append)
        return Ran(wanted, world, world.run(), seen)


def quick(**sections: Any) -> Experiment:
    """Return the small experiment with a diagonal Fisher, which needs no iterations."""
    return experiment(**{"fisher": {"kind": "diagonal"}, **sections})


def run(
    folder: Path, text: str, method: str = "fsosa", end: float | None = None, **sections: Any
) -> Ran:
    """Run a quick experiment on events written as `at` reads them."""
    return simulate(quick(**sections), record(folder / "t.csv", at(text), end), method)
