"""What a crew is asked to do: functions whose arguments can be sent.

Where there is a store, its place is sent instead of messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from testbed.execution import work
from testbed.execution.entry import Entry, Record
from testbed.execution.store import Store
from testbed.execution.tasks import Source, task_of
from testbed.execution.work import Message, Sent, flops, read
from testbed.learning.acceptance import Unusable
from testbed.learning.contribution import deserialise_model
from testbed.learning.identity import code_version, model_key, statistic_key
from testbed.learning.task import Session, Task

# Folder and limit of a store.
Place = tuple[Path, int | None]


@dataclass(frozen=True)
class Answer:
    """What a client sent.

    Attributes
    ----------
    model : Sent or None
        None if it was known.
    statistics : tuple of Sent
        Those asked for; none if the model cannot be used.
    """

    model: Sent | None
    statistics: tuple[Sent, ...]


@dataclass(frozen=True)
class Stocked:
    """What had to be done until a store had all that was asked for.

    Attributes
    ----------
    trained : bool
        The client trained; otherwise its model was there.
    failed : bool
        Something that was done came to nothing.
    """

    trained: bool
    failed: bool


@lru_cache(maxsize=2)
def opened(place: Place) -> Store:
    """Open a store, once in a process."""
    return Store(*place)


def deliver(
    source: Source, part: int, statistics: Sequence[str], model: bytes | None = None
) -> Answer:
    """Have a partition's client train, unless its `model` is known, and compute statistics."""
    task = task_of(source)
    if model is not None:
        return Answer(None, _informed(task, part, model, statistics))
    trained = work.train(task, part)
    return Answer(trained, _informed(task, part, trained.message, statistics))


def stock(source: Source, part: int, statistics: Sequence[str], place: Place) -> Stocked:
    """Have a partition's client do what is not in a store yet, and put it there.

    To do it twice, at one time or after it was broken off, does no harm.

    Raises
    ------
    ResultsError
        If the store cannot be read or written.
    """
    task, store = task_of(source), opened(place)
    model = store.get(model_key(task, part), counted=False)
    trained = model is None
    message = model.message if model else keep(store, task, part, None, work.train(task, part))
    state = read(message, deserialise_model)
    if isinstance(state, Unusable):
        return Stocked(trained, failed=trained)
    failed = False
    for statistic in statistics:
        if store.get(statistic_key(task, part, statistic), counted=False) is None:
            told = work.inform(task, part, state, statistic)
            failed |= isinstance(keep(store, task, part, statistic, told), Unusable)
    return Stocked(trained, failed)


def tune(source: Source, part: int, start: bytes, session: Session) -> Sent:
    """Have a partition's client train further from a model's message."""
    return work.tune(task_of(source), part, deserialise_model(start), session)


def _informed(
    task: Task, part: int, model: Message, statistics: Sequence[str]
) -> tuple[Sent, ...]:
    state = read(model, deserialise_model)
    if isinstance(state, Unusable):
        return ()
    return tuple(work.inform(task, part, state, each) for each in statistics)


def keep(store: Store, task: Task, part: int, statistic: str | None, sent: Sent) -> Message:
    """Put what a client sent into a store, its model where there is no statistic; return it.

    Raises
    ------
    ResultsError
        If the store cannot be written.
    """
    what = "model" if statistic is None else f"statistic {statistic}"
    where = f"partition {part} of {len(task.parts)}, {task.described()['name']}"
    record = Record(
        what=f"{what}, {where}, seed {task.streams.seed}",
        seconds=sent.seconds,
        flops=flops(task, part, statistic),
        bytes=0 if isinstance(sent.message, Unusable) else len(sent.message),
        code=code_version(),
    )
    key = model_key(task, part) if statistic is None else statistic_key(task, part, statistic)
    store.put(key, Entry(sent.message, record))
    return sent.message
