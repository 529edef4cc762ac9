"""Executors: run client work in this process or in a pool of processes.

A contribution is a pure function of (run seed, data partition), so an executor computes
each once and hands the same one out again.  That is a matter of this machine's time only:
the simulation bills every training, and no method's state reads from here.

Wherever a client works, what it sends is a message, and what it sent is what can be read from
that.  A message that cannot be read, or work that fails, is an answer too: `Unusable`.
"""

import ctypes
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeVar

import torch

from testbed.config import Experiment
from testbed.errors import FusionError
from testbed.learning.acceptance import Unusable
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
_STOPS = (signal.SIGINT, signal.SIGTERM)
T = TypeVar("T")
Message = bytes | Unusable


@dataclass(frozen=True, eq=False)
class Trained:
    """A contribution and the wall-clock seconds its making took.

    Attributes
    ----------
    contribution : Contribution or Unusable
        As received.
    train_s, fisher_s : float
        Measured seconds.
    """

    contribution: Contribution | Unusable
    train_s: float
    fisher_s: float


@dataclass(frozen=True, eq=False)
class Tuned:
    """A model trained further and the measured seconds that took."""

    model: State | Unusable
    train_s: float


class Executor(Protocol):
    """Runs client work; answers in the order asked."""

    def train(self, parts: Sequence[int]) -> list[Trained]:
        """Train partitions' clients from the initial model and compute their Fisher."""

    def tune(self, parts: Sequence[int], start: State) -> list[Tuned]:
        """Train partitions' clients further from `start`."""


def _timed(
    phase: Literal["train", "fisher"], work: Callable[..., T], *arguments: Any
) -> tuple[T | Unusable, float]:
    """Do a client's work; return what came of it and the wall-clock seconds it took."""
    begin = time.perf_counter()
    made: T | Unusable
    try:
        made = work(*arguments)
    except (ArithmeticError, RuntimeError, ValueError) as error:
        if "allocate memory" in str(error):  # this machine's failure and not the client's
            raise
        made = Unusable(_line(f"{type(error).__name__.lstrip('_')}: {error}"), phase)
    return made, time.perf_counter() - begin


def _train(task: Task, part: int) -> tuple[Message, float, float]:
    """Return the message with a client's contribution, and the seconds its two parts took."""
    state, train_s = _timed("train", train_client, task, part, task.initial)
    if isinstance(state, Unusable):
        return state, train_s, 0.0
    made, fisher_s = _timed("fisher", inform, task, part, state)
    return made if isinstance(made, Unusable) else serialise(made), train_s, fisher_s


def _tune(task: Task, part: int, start: State) -> tuple[Message, float]:
    """Return the message with a client's model, and the seconds its training took."""
    made, train_s = _timed("train", train_client, task, part, start)
    return made if isinstance(made, Unusable) else serialise_model(made), train_s


def _read(message: Message, read: Callable[[bytes], T]) -> T | Unusable:
    """Return what is in a message, or why it cannot be read."""
    if isinstance(message, Unusable):
        return message
    try:
        return read(message)
    except FusionError as error:
        return Unusable(_line(str(error)))


def _line(text: str) -> str:
    """Fold white space: messages of libraries have several lines."""
    return " ".join(text.split())


def _warm_up(task: Task) -> None:
    """Do one batch of a client's work for nothing, so that no measured second is of set-up.

    Torch imports and allocates at its first step, which takes longer than a small training.
    Nothing is kept: the network is a scratch one and streams are asked by name.
    """
    few = task.parts[0][: task.recipe.batch]
    # Standing still lets a recipe that diverges get through all of it.
    still = replace(task.recipe, epochs=1, lr=0.0)
    _train(replace(task, parts=[few], recipe=still), 0)


@dataclass
class Serial:
    """Client work in this process."""

    task: Task
    _known: dict[int, Trained] = field(default_factory=dict)

    def train(self, parts: Sequence[int]) -> list[Trained]:
        """See `Executor.train`."""
        for part in parts:
            if part not in self._known:
                message, train_s, fisher_s = _train(self.task, part)
                self._known[part] = Trained(_read(message, deserialise), train_s, fisher_s)
        return [self._known[part] for part in parts]

    def tune(self, parts: Sequence[int], start: State) -> list[Tuned]:
        """See `Executor.tune`."""
        answers = [_tune(self.task, part, start) for part in parts]
        return [Tuned(_read(model, deserialise_model), train_s) for model, train_s in answers]


@dataclass
class Processes:
    """Client work in spawned processes, one torch thread each."""

    pool: ProcessPoolExecutor
    _known: dict[int, Trained] = field(default_factory=dict)

    def train(self, parts: Sequence[int]) -> list[Trained]:
        """See `Executor.train`."""
        new = sorted({part for part in parts if part not in self._known})
        for part, (message, train_s, fisher_s) in zip(
            new, self._map(_train_remotely, new), strict=True
        ):
            self._known[part] = Trained(_read(message, deserialise), train_s, fisher_s)
        return [self._known[part] for part in parts]

    def tune(self, parts: Sequence[int], start: State) -> list[Tuned]:
        """See `Executor.tune`."""
        message = serialise_model(start)
        answers = self._map(_tune_remotely, parts, [message] * len(parts))
        return [Tuned(_read(model, deserialise_model), train_s) for model, train_s in answers]

    def _map(self, work: Callable[..., T], *arguments: Sequence[Any]) -> Iterator[T]:
        with _undisturbed():  # handing out work is what starts workers
            return self.pool.map(work, *arguments)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold signals back while processes are started, and let these never hear of Ctrl-C.

    A process that is left half started ends in a traceback.  Those started in the block
    inherit the blocked signal, so that they are deaf even while they import.  To block it
    here is not enough: another thread would take it and Python raise it in this one.
    """
    heard: list[int] = []
    in_charge = threading.current_thread() is threading.main_thread()
    handlers = {
        number: signal.signal(number, lambda number, _: heard.append(number))
        for number in (_STOPS if in_charge else ())
    }
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for late in heard:
            signal.raise_signal(late)


@contextmanager
def open_executor(experiment: Experiment, seed: int, task: Task) -> Iterator[Executor]:
    """Open the executor the experiment names, for one seed; its processes end with the block."""
    execution = experiment.execution
    if execution.kind == "serial":
        _warm_up(task)
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
    _die_with_parent()
    torch.set_num_threads(1)
    _task = prepare(Experiment.model_validate_json(experiment), seed)
    _warm_up(_task)


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


def _train_remotely(part: int) -> tuple[Message, float, float]:
    return _train(_worker_task(), part)


def _tune_remotely(part: int, start: bytes) -> tuple[Message, float]:
    return _tune(_worker_task(), part, deserialise_model(start))
