"""Executors: have clients work, and know what they sent.

A contribution is a pure function of (run seed, data partition, statistic), so an executor has
each made once and hands the same one out again; methods that want different statistics of a
client share its training.  That is a matter of this machine's time only: the simulation bills
every training, and no method's state reads from here.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from testbed.config import Experiment
from testbed.execution.crew import Crew, SerialCrew, open_crew
from testbed.execution.duties import deliver, keep, stock, tune
from testbed.execution.store import Counts, Store, open_store
from testbed.execution.tasks import Blueprint, Source
from testbed.execution.work import Sent, read
from testbed.learning.acceptance import Unusable
from testbed.learning.blocks import State
from testbed.learning.contribution import (
    Contribution,
    deserialise,
    deserialise_model,
    serialise_model,
)
from testbed.learning.identity import model_key, statistic_key
from testbed.learning.task import ONE_SHOT, Session, Task

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Trained:
    """A contribution and the wall-clock seconds its making took.

    Attributes
    ----------
    contribution : Contribution or Unusable
        As received.
    train_s, fisher_s : float
        Measured seconds of the training and of the statistic, when they were done.
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
    """Has clients work; answers in the order asked."""

    def train(self, parts: Sequence[int], statistic: str = "fisher") -> list[Trained]:
        """Train partitions' clients from the initial model and compute a statistic."""

    def tune(self, parts: Sequence[int], start: State, session: Session = ONE_SHOT) -> list[Tuned]:
        """Train partitions' clients further from `start`."""


@dataclass
class Clients:
    """The clients of one task; remembers what they sent.

    Parameters
    ----------
    task : Task
    crew : Crew
        Does their work.
    store : Store, optional
        Remembers from run to run.
    source : Task or Blueprint, optional
        The task in the form in which the crew receives it; default: as it is.
    """

    task: Task
    crew: Crew = field(default_factory=SerialCrew)
    store: Store | None = None
    source: Source | None = None
    _shared: bool = True
    _models: dict[int, Tuned] = field(default_factory=dict)
    _contributions: dict[tuple[int, str], Trained] = field(default_factory=dict)

    @property
    def counts(self) -> Counts | None:
        """How often what was asked of the store was there."""
        return self.store.counts if self.store else None

    def train(self, parts: Sequence[int], statistic: str = "fisher") -> list[Trained]:
        """See `Executor.train`.

        Raises
        ------
        ResultsError
            If the store cannot be read or written.
        """
        new = sorted({part for part in parts if (part, statistic) not in self._contributions})
        if self.store:
            new = self._restocked(self.store, new, statistic)
        new = [part for part in new if not self._useless(part, statistic)]
        models = [self._message(part) for part in new]
        answers = self._map(deliver, new, [(statistic,)] * len(new), models)
        for part, sent in zip(new, answers, strict=True):
            if sent.model is not None:
                self._keep(part, None, sent.model)
                self._learn(part, sent.model)
            if not self._useless(part, statistic):
                (told,) = sent.statistics
                self._keep(part, statistic, told)
                self._hear(part, statistic, told)
        return [self._contributions[part, statistic] for part in parts]

    def tune(self, parts: Sequence[int], start: State, session: Session = ONE_SHOT) -> list[Tuned]:
        """See `Executor.tune`."""
        message, count = serialise_model(start), len(parts)
        answers = self._map(tune, parts, [message] * count, [session] * count)
        return [Tuned(read(sent.message, deserialise_model), sent.seconds) for sent in answers]

    def _map(
        self, work: Callable[..., T], parts: Sequence[int], *more: Sequence[Any]
    ) -> Iterator[T]:
        source = self.task if self.source is None else self.source
        return self.crew.map(work, [source] * len(parts), parts, *more)

    def _restocked(self, store: Store, parts: Sequence[int], statistic: str) -> list[int]:
        """Recall what the store has and have made what it has not; return who is still missing.

        That is nobody, but where the store is too small to keep it or the crew has another one
        under this name, as on machines that share no folder.  There it is not tried again.
        """
        missing = [part for part in parts if not self._recall(store, part, statistic)]
        if not self._shared or not missing:
            return missing
        count, place = len(missing), (store.folder, store.limit_bytes)
        for _ in self._map(stock, missing, [(statistic,)] * count, [place] * count):
            pass
        lost = [part for part in missing if not self._recall(store, part, statistic, False)]
        self._shared = not lost
        return lost

    def _keep(self, part: int, statistic: str | None, sent: Sent) -> None:
        if self.store:
            keep(self.store, self.task, part, statistic, sent)

    def _recall(self, store: Store, part: int, statistic: str, counted: bool = True) -> bool:
        """Take a client's answer from the store; whether it is there."""
        if part not in self._models:
            model = store.get(model_key(self.task, part), counted)
            if model is None:
                return False
            self._learn(part, Sent(model.message, model.record.seconds))
        if self._useless(part, statistic):
            return True
        told = store.get(statistic_key(self.task, part, statistic), counted)
        if told is not None:
            self._hear(part, statistic, Sent(told.message, told.record.seconds))
        return told is not None

    def _learn(self, part: int, sent: Sent) -> None:
        model = read(sent.message, deserialise_model)
        self._models[part] = Tuned(model, sent.seconds)

    def _hear(self, part: int, statistic: str, sent: Sent) -> None:
        tuned, told = self._models[part], read(sent.message, deserialise)
        if not isinstance(told, Unusable) and not isinstance(tuned.model, Unusable):
            told = replace(told, model=tuned.model)
        self._contributions[part, statistic] = Trained(told, tuned.train_s, sent.seconds)

    def _useless(self, part: int, statistic: str) -> bool:
        """Whether a client's model is known to be unusable, so that nothing goes with it."""
        tuned = self._models.get(part)
        if tuned is None or not isinstance(tuned.model, Unusable):
            return False
        self._contributions[part, statistic] = Trained(tuned.model, tuned.train_s, 0.0)
        return True

    def _message(self, part: int) -> bytes | None:
        """Return the message of a model that is known."""
        tuned = self._models.get(part)
        if tuned is None or isinstance(tuned.model, Unusable):
            return None
        return serialise_model(tuned.model)


@contextmanager
def open_executor(
    experiment: Experiment,
    seed: int,
    task: Task,
    crew: Crew | None = None,
    store: Store | None = None,
) -> Iterator[Clients]:
    """Open the executor that an experiment names, for one seed.

    Parameters
    ----------
    experiment : Experiment
    seed : int
    task : Task
        Prepared from both.
    crew : Crew, optional
        Does the work; by default the one that the experiment names, until the block ends.
    store : Store, optional
        By default the one that the experiment names, if it does.
    """
    with ExitStack() as stack:
        if crew is None:
            crew = stack.enter_context(open_crew(experiment.execution))
        here = isinstance(crew, SerialCrew)
        source = task if here else Blueprint.of(experiment, seed)
        yield Clients(task, crew, store or open_store(experiment.execution), source)
