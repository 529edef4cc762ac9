"""Executors: run client work in this process or in a pool of processes.

A contribution is a pure function of (run seed, data partition, statistic), so an executor
computes each once and hands the same one out again; methods that want different statistics
of a client share its training.  That is a matter of this machine's time only: the simulation
bills every training, and no method's state reads from here.

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
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

import torch

from testbed.config import Experiment
from testbed.errors import FusionError
from testbed.learning.acceptance import Unusable
from testbed.learning.blocks import State
from testbed.learning.client import prepare
from testbed.learning.contribution import (
    Contribution,
    deserialise,
    deserialise_model,
    serialise,
    serialise_model,
)
from testbed.learning.statistics import contribute
from testbed.learning.task import ONE_SHOT, Session, Task

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
        Measured seconds of the training and of the statistic.
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

    def train(self, parts: Sequence[int], statistic: str = "fisher") -> list[Trained]:
        """Train partitions' clients from the initial model and compute a statistic."""

    def tune(self, parts: Sequence[int], start: State, session: Session = ONE_SHOT) -> list[Tuned]:
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


def _train(task: Task, part: int) -> tuple[Message, float]:
    """Return the message with a client's model, and the seconds its training took."""
    return _tune(task, part, task.initial, ONE_SHOT)


def _inform(task: Task, part: int, model: State, statistic: str) -> tuple[Message, float]:
    """Return the message with a client's contribution, and the seconds its statistic took."""
    made, fisher_s = _timed("fisher", contribute, task, part, model, statistic)
    return made if isinstance(made, Unusable) else serialise(made), fisher_s


def _tune(task: Task, part: int, start: State, session: Session) -> tuple[Message, float]:
    """Return the message with a client's model, and the seconds its training took."""
    made, train_s = _timed("train", task.train, part, start, session)
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
    few = task.few()
    message, _ = _train(few, 0)
    model = _read(message, deserialise_model)
    if not isinstance(model, Unusable):
        _inform(few, 0, model, "fisher")


@dataclass
class _Memory:
    """Answers given before: models by partition, contributions by partition and statistic."""

    models: dict[int, Tuned] = field(default_factory=dict)
    contributions: dict[tuple[int, str], Trained] = field(default_factory=dict)

    def untrained(self, parts: Sequence[int]) -> list[int]:
        """Return the partitions without a model, sorted."""
        return sorted({part for part in parts if part not in self.models})

    def uninformed(self, parts: Sequence[int], statistic: str) -> list[int]:
        """Return the partitions with a model and without a contribution, sorted."""
        for part in parts:
            tuned = self.models[part]
            if isinstance(tuned.model, Unusable):
                self.contributions[part, statistic] = Trained(tuned.model, tuned.train_s, 0.0)
        return sorted({part for part in parts if (part, statistic) not in self.contributions})

    def learn(self, part: int, answer: tuple[Message, float]) -> None:
        """Keep a model."""
        self.models[part] = Tuned(_read(answer[0], deserialise_model), answer[1])

    def hear(self, part: int, statistic: str, answer: tuple[Message, float]) -> None:
        """Keep a contribution."""
        made = _read(answer[0], deserialise)
        self.contributions[part, statistic] = Trained(made, self.models[part].train_s, answer[1])

    def state(self, part: int) -> State:
        """Return a model that can be used."""
        model = self.models[part].model
        assert not isinstance(model, Unusable)
        return model

    def answer(self, parts: Sequence[int], statistic: str) -> list[Trained]:
        """Return what is known of partitions."""
        return [self.contributions[part, statistic] for part in parts]


@dataclass
class Serial:
    """Client work in this process."""

    task: Task
    _memory: _Memory = field(default_factory=_Memory)

    def train(self, parts: Sequence[int], statistic: str = "fisher") -> list[Trained]:
        """See `Executor.train`."""
        memory = self._memory
        for part in memory.untrained(parts):
            memory.learn(part, _train(self.task, part))
        for part in memory.uninformed(parts, statistic):
            memory.hear(part, statistic, _inform(self.task, part, memory.state(part), statistic))
        return memory.answer(parts, statistic)

    def tune(self, parts: Sequence[int], start: State, session: Session = ONE_SHOT) -> list[Tuned]:
        """See `Executor.tune`."""
        answers = [_tune(self.task, part, start, session) for part in parts]
        return [Tuned(_read(model, deserialise_model), train_s) for model, train_s in answers]


@dataclass
class Processes:
    """Client work in spawned processes, one torch thread each."""

    pool: ProcessPoolExecutor
    _memory: _Memory = field(default_factory=_Memory)

    def train(self, parts: Sequence[int], statistic: str = "fisher") -> list[Trained]:
        """See `Executor.train`."""
        memory = self._memory
        new = memory.untrained(parts)
        both = self._map(_train_remotely, new, [statistic] * len(new))
        for part, (trained, informed) in zip(new, both, strict=True):
            memory.learn(part, trained)
            if informed is not None:
                memory.hear(part, statistic, informed)
        new = memory.uninformed(parts, statistic)
        models = [serialise_model(memory.state(part)) for part in new]
        late = self._map(_inform_remotely, new, models, [statistic] * len(new))
        for part, made in zip(new, late, strict=True):
            memory.hear(part, statistic, made)
        return memory.answer(parts, statistic)

    def tune(self, parts: Sequence[int], start: State, session: Session = ONE_SHOT) -> list[Tuned]:
        """See `Executor.tune`."""
        message, count = serialise_model(start), len(parts)
        answers = self._map(_tune_remotely, parts, [message] * count, [session] * count)
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


def _train_remotely(
    part: int, statistic: str
) -> tuple[tuple[Message, float], tuple[Message, float] | None]:
    """Return what training a client gave and, if that can be used, what its statistic gave."""
    trained = _train(_worker_task(), part)
    model = _read(trained[0], deserialise_model)
    if isinstance(model, Unusable):
        return trained, None
    return trained, _inform(_worker_task(), part, model, statistic)


def _inform_remotely(part: int, model: bytes, statistic: str) -> tuple[Message, float]:
    return _inform(_worker_task(), part, deserialise_model(model), statistic)


def _tune_remotely(part: int, start: bytes, session: Session) -> tuple[Message, float]:
    return _tune(_worker_task(), part, deserialise_model(start), session)
