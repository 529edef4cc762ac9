"""What clients do: train, compute a statistic, send a message.

Wherever a client works, what it sends is a message, and what it sent is what can be read from
that.  An upload is two messages, the model and what goes with it, since several statistics may
be wanted of one training.  Work that fails is an answer too: `Unusable`.  A machine that fails
is none: it says nothing of the client, so an error ends the run, and nothing is tried again.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from testbed.errors import FusionError, ShortageError, shortage
from testbed.learning.acceptance import Unusable
from testbed.learning.blocks import State
from testbed.learning.contribution import deserialise_model, serialise, serialise_model
from testbed.learning.flops import training_flops
from testbed.learning.statistics import contribute, statistic_flops
from testbed.learning.task import ONE_SHOT, Session, Task

T = TypeVar("T")
Message = bytes | Unusable

# What torch says of a failure that is this machine's and not the client's.
_MACHINE = ("CUDA error", "cuDNN error")


@dataclass(frozen=True)
class Sent:
    """What a client sent, and the wall-clock seconds that its making took."""

    message: Message
    seconds: float


def train(task: Task, part: int) -> Sent:
    """Have a partition's client train; it sends its model.

    Raises
    ------
    ShortageError
        If memory is used up.
    """
    return tune(task, part, task.initial, ONE_SHOT)


def tune(task: Task, part: int, start: State, session: Session) -> Sent:
    """Have a partition's client train from `start`; it sends its model.

    Raises
    ------
    ShortageError
        If memory is used up.
    """
    _warm_up(task)
    with _memory_for(f"training of the client of partition {part}"):
        return _tune(task, part, start, session)


def inform(task: Task, part: int, model: State, statistic: str) -> Sent:
    """Have a partition's client compute a statistic; it sends all but its model.

    Raises
    ------
    ShortageError
        If memory is used up.
    """
    _warm_up(task)
    with _memory_for(f"Fisher information of the client of partition {part}"):
        return _inform(task, part, model, statistic)


def read(message: Message, read: Callable[[bytes], T]) -> T | Unusable:
    """Return what is in a message, or why it cannot be read."""
    if isinstance(message, Unusable):
        return message
    try:
        return read(message)
    except FusionError as error:
        return Unusable(_line(str(error)))


def flops(task: Task, part: int, statistic: str | None = None) -> int:
    """Return the floating-point operations of a client's training, or of a statistic."""
    known = _flops.setdefault(task, {})
    if statistic not in known:
        known[statistic] = (
            training_flops(task.model, task.shape, samples=1, epochs=task.epochs)
            if statistic is None
            else statistic_flops(task, statistic)
        )
    return known[statistic] * len(task.parts[part])


_flops: WeakKeyDictionary[Task, dict[str | None, int]] = WeakKeyDictionary()
_warm: WeakSet[Task] = WeakSet()


def _tune(task: Task, part: int, start: State, session: Session) -> Sent:
    made, seconds = _timed("train", task.train, part, start, session)
    return Sent(made if isinstance(made, Unusable) else serialise_model(made), seconds)


def _inform(task: Task, part: int, model: State, statistic: str) -> Sent:
    made, seconds = _timed("fisher", contribute, task, part, model, statistic)
    if isinstance(made, Unusable):
        return Sent(made, seconds)
    return Sent(serialise(replace(made, model={})), seconds)


def _timed(
    phase: Literal["train", "fisher"], work: Callable[..., T], *arguments: Any
) -> tuple[T | Unusable, float]:
    """Do a client's work; return what came of it and the wall-clock seconds it took."""
    begin = time.perf_counter()
    made: T | Unusable
    try:
        made = work(*arguments)
    except (ArithmeticError, RuntimeError, ValueError) as error:
        if shortage(error) or any(sign in str(error) for sign in _MACHINE):
            raise
        made = Unusable(_line(f"{type(error).__name__.lstrip('_')}: {error}"), phase)
    return made, time.perf_counter() - begin


@contextmanager
def _memory_for(work: str) -> Iterator[None]:
    """Say what was done when memory was used up, and what to do."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        found = shortage(error)
        if found is None:
            raise
        raise ShortageError(
            f"{work}: {found}; lower learning.batch, detection.image_size or execution.workers, "
            "and run the same command again"
        ) from error


def _line(text: str) -> str:
    """Fold white space: messages of libraries have several lines."""
    return " ".join(text.split())


def _warm_up(task: Task) -> None:
    """Do one batch of a client's work for nothing, so that no measured second is of set-up.

    Torch imports and allocates at its first step, which takes longer than a small training.
    Nothing is kept: the network is a scratch one and streams are asked by name.
    """
    if task in _warm:
        return
    _warm.add(task)
    few = task.few()
    with _memory_for("training of the client of partition 0, in its first batch"):
        model = read(_tune(few, 0, few.initial, ONE_SHOT).message, deserialise_model)
    if not isinstance(model, Unusable):
        with _memory_for("Fisher information of the client of partition 0, in its first batch"):
            _inform(few, 0, model, "fisher")
