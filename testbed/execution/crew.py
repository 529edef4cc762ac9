"""Crews: where pieces of work are done: in this process, a pool of processes, a cluster.

Work is a function of a module with arguments that can be pickled.  Where it is done never
changes what comes of it.
"""

import ctypes
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch

from testbed.config.schema import ExecutionConfig
from testbed.errors import TestbedError

_PR_SET_PDEATHSIG = 1
_STOPS = (signal.SIGINT, signal.SIGTERM)
T = TypeVar("T")


class WorkerLostError(TestbedError):
    """Who did a piece of work was killed; no other piece is to blame."""


class Crew(Protocol):
    """Does work; answers in the order asked, whoever is done first."""

    @property
    def size(self) -> int:
        """How many pieces of work are done at one time."""

    def map(self, work: Callable[..., T], *arguments: Sequence[Any]) -> Iterator[T]:
        """Call `work` with the first of each of the `arguments`, the second, and so on."""


@dataclass(frozen=True)
class SerialCrew:
    """Work in this process, one piece after another, each when its answer is wanted."""

    size: int = 1

    def map(self, work: Callable[..., T], *arguments: Sequence[Any]) -> Iterator[T]:
        """See `Crew.map`."""
        return (work(*each) for each in zip(*arguments, strict=True))


@dataclass(frozen=True)
class ProcessCrew:
    """Work in spawned processes, one torch thread each; they start with the first piece."""

    pool: ProcessPoolExecutor
    size: int

    def map(self, work: Callable[..., T], *arguments: Sequence[Any]) -> Iterator[T]:
        """See `Crew.map`.

        Raises
        ------
        WorkerLostError
            While the answers are read, if a process was killed; there is no other then.
        """
        with undisturbed():  # handing out work is what starts workers
            asked = [self.pool.submit(work, *each) for each in zip(*arguments, strict=True)]
        return _answers(asked)


def _answers(asked: list[Future[T]]) -> Iterator[T]:
    """Yield answers in order, and keep none.

    `ProcessPoolExecutor.map` would cancel what is left when an answer is an error, and the
    pool's thread ends in a traceback if its processes are ended then.
    """
    asked.reverse()
    try:
        while asked:
            yield asked.pop().result()
    except BrokenProcessPool as error:
        raise WorkerLostError(
            "a worker process was killed, as a rule because the memory was used up; lower "
            "execution.workers and run the same command again"
        ) from error


@contextmanager
def open_crew(execution: ExecutionConfig) -> Iterator[Crew]:
    """Open the crew that a configuration names; its processes end with the block.

    An error in the block ends them at once, in the middle of their work.
    """
    # Sums over several threads would be rounded differently.
    torch.set_num_threads(1)
    if execution.kind == "serial":
        yield SerialCrew()
        return
    if execution.kind == "ray":
        from testbed.execution.ray_crew import open_ray

        with open_ray(execution) as ray_crew:
            yield ray_crew
        return
    others = multiprocessing.active_children()
    size = execution.workers or os.cpu_count() or 1
    with ProcessPoolExecutor(
        max_workers=size,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
    ) as pool:
        try:
            yield ProcessCrew(pool, size)
        except BaseException:
            for worker in multiprocessing.active_children():
                if worker not in others:
                    worker.terminate()
            raise


@contextmanager
def undisturbed() -> Iterator[None]:
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


def _start_worker() -> None:
    _die_with_parent()
    torch.set_num_threads(1)


def _die_with_parent() -> None:
    """Have Linux kill this worker when the main process is killed and cannot end it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is not None and os.getppid() != parent.pid:  # it died before the call
        os._exit(1)
