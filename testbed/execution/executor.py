"""Executors: run client work in this process or in a pool of processes.

A contribution is a pure function of (run seed, data partition), so an executor computes
each once and hands the same one out again.  That is a matter of this machine's time only:
the simulation bills every training, and no method's state reads from here.
"""

import ctypes
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import torch

from testbed.config import Experiment
from testbed.learning.blocks import State
from testbed.learning.client import Task, inform, prepare, train_client
from testbed.learning.contribution import (
    Contribution,
    deserialise,
    deserialise_model,
    serialise,
    serialise_model,
)

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, eq=False)
class Trained:
    """A contribution and the wall-clock seconds its making took.

    Attributes
    ----------
    contribution : Contribution
    train_s, fisher_s : float
        Measured seconds.
    """

    contribution: Contribution
    train_s: float
    fisher_s: float


@dataclass(frozen=True, eq=False)
class Tuned:
    """A model trained further and the measured seconds that took."""

    model: State
    train_s: float


class Executor(Protocol):
    """Runs client work; answers in the order asked."""

    def train(self, parts: Sequence[int]) -> list[Trained]:
        """Train partitions' clients from the initial model and compute their Fisher."""

    def tune(self, parts: Sequence[int], start: State) -> list[Tuned]:
        """Train partitions' clients further from `start`."""


def _train(task: Task, part: int) -> Trained:
    begin = time.perf_counter()
    state = train_client(task, part, task.initial)
    middle = time.perf_counter()
    contribution = inform(task, part, state)
    return Trained(contribution, middle - begin, time.perf_counter() - middle)


def _tune(task: Task, part: int, start: State) -> Tuned:
    begin = time.perf_counter()
    return Tuned(train_client(task, part, start), time.perf_counter() - begin)


@dataclass
class Serial:
    """Client work in this process."""

    task: Task
    _known: dict[int, Trained] = field(default_factory=dict)

    def train(self, parts: Sequence[int]) -> list[Trained]:
        """See `Executor.train`."""
        for part in parts:
            if part not in self._known:
                self._known[part] = _train(self.task, part)
        return [self._known[part] for part in parts]

    def tune(self, parts: Sequence[int], start: State) -> list[Tuned]:
        """See `Executor.tune`."""
        return [_tune(self.task, part, start) for part in parts]


@dataclass
class Processes:
    """Client work in spawned processes, one torch thread each."""

    pool: ProcessPoolExecutor
    _known: dict[int, Trained] = field(default_factory=dict)

    def train(self, parts: Sequence[int]) -> list[Trained]:
        """See `Executor.train`."""
        new = sorted({part for part in parts if part not in self._known})
        for part, (message, train_s, fisher_s) in zip(
            new, self.pool.map(_train_remotely, new), strict=True
        ):
            self._known[part] = Trained(deserialise(message), train_s, fisher_s)
        return [self._known[part] for part in parts]

    def tune(self, parts: Sequence[int], start: State) -> list[Tuned]:
        """See `Executor.tune`."""
        message = serialise_model(start)
        answers = self.pool.map(_tune_remotely, parts, [message] * len(parts))
        return [Tuned(deserialise_model(model), train_s) for model, train_s in answers]


@contextmanager
def open_executor(experiment: Experiment, seed: int, task: Task) -> Iterator[Executor]:
    """Open the executor the experiment names, for one seed; its processes end with the block."""
    execution = experiment.execution
    if execution.kind == "serial":
        yield Serial(task)
        return
    with ProcessPoolExecutor(
        max_workers=execution.workers or os.cpu_count(),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(experiment.model_dump_json(), seed),
    ) as pool:
        yield Processes(pool)


# A worker prepares its task once; tasks are rebuilt from the configuration instead of being
# sent, so that a large data set is read from disk and not piped through pickles.
_task: Task | None = None


def _start_worker(experiment: str, seed: int) -> None:
    global _task
    # Ctrl-C reaches every process of the terminal: the main one hears it and ends the others
    # when the trainings at hand are done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_parent()
    torch.set_num_threads(1)
    _task = prepare(Experiment.model_validate_json(experiment), seed)


def _die_with_parent() -> None:
    """Have Linux kill this worker when the main process is killed and cannot end it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is not None and os.getppid() != parent.pid:  # it died before the call
        os._exit(1)


def _worker_task() -> Task:
    if _task is None:
        raise RuntimeError("the worker was not started by open_executor")
    return _task


def _train_remotely(part: int) -> tuple[bytes, float, float]:
    trained = _train(_worker_task(), part)
    return serialise(trained.contribution), trained.train_s, trained.fisher_s


def _tune_remotely(part: int, start: bytes) -> tuple[bytes, float]:
    tuned = _tune(_worker_task(), part, deserialise_model(start))
    return serialise_model(tuned.model), tuned.train_s
