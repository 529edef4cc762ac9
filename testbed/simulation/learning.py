"""What comes of a method's orders: the only place where the simulation meets learning."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from testbed.editing.methods import EditState
from testbed.editing.storage import storage_bytes
from testbed.execution import Executor, Trained, Tuned
from testbed.fusion.fsosa import Fused
from testbed.fusion.rules import Rule, network_of
from testbed.learning.acceptance import accept, inspect, inspect_model
from testbed.learning.blocks import State as Model
from testbed.learning.blocks import blocks
from testbed.learning.contribution import Contribution
from testbed.learning.evaluation import Score
from testbed.learning.statistics import extra_like, kind_of
from testbed.learning.task import Session, Task

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Timed(Generic[T]):
    """What came of the coordinator's work, and the wall-clock seconds that it took."""

    value: T
    seconds: float

    @classmethod
    def of(cls, work: Callable[[], T]) -> "Timed[T]":
        """Do some work and look at the clock."""
        begin = perf_counter()
        value = work()
        return cls(value, perf_counter() - begin)


@runtime_checkable
class Learning(Protocol):
    """Answers orders; knows nothing of simulated time and of bytes."""

    def train(self, parts: Sequence[int], rule: Rule) -> list[Trained]:
        """Have clients train from the initial model; what cannot be used is `Unusable`."""

    def tune(self, parts: Sequence[int], start: Model, session: Session) -> list[Tuned]:
        """Have clients train further from `start`; what cannot be used is `Unusable`."""

    def fuse(self, contributions: Sequence[Contribution], rule: Rule) -> Timed[Fused]:
        """Fuse contributions, given in canonical order."""

    def score(self, model: Model) -> Timed[Score]:
        """Evaluate a released model."""

    def stored(self, state: EditState) -> int:
        """Return the serialised size of what the coordinator keeps."""


def kept(state: Any) -> Any:
    """Return a method's state without what is said of its solves, which serves no edit.

    Its length would follow from the weights learned.
    """
    return replace(state, fused=Fused(state.fused.model, {}))


@dataclass(frozen=True)
class Real:
    """Clients that really train, and a coordinator that looks at what they send."""

    task: Task
    executor: Executor

    def train(self, parts: Sequence[int], rule: Rule) -> list[Trained]:
        """See `Learning.train`."""
        return [
            replace(one, contribution=accept(one.contribution, self._inspection(part, rule)))
            for part, one in zip(parts, self.executor.train(parts, rule.statistic), strict=True)
        ]

    def tune(self, parts: Sequence[int], start: Model, session: Session) -> list[Tuned]:
        """See `Learning.tune`."""
        return [
            replace(one, model=accept(one.model, self._inspect_model))
            for one in self.executor.tune(parts, start, session)
        ]

    def fuse(self, contributions: Sequence[Contribution], rule: Rule) -> Timed[Fused]:
        """See `Learning.fuse`."""
        network, rng = network_of(self.task), self.task.streams.rng("fusion")
        return Timed.of(lambda: rule.fuse(contributions, network, rng))

    def score(self, model: Model) -> Timed[Score]:
        """See `Learning.score`."""
        return Timed.of(lambda: self.task.score(model))

    def stored(self, state: EditState) -> int:
        """See `Learning.stored`."""
        return storage_bytes(kept(state))

    def _inspection(self, part: int, rule: Rule) -> Callable[[Contribution], str | None]:
        """Return the check of what the client of a partition sends."""
        task, statistic = self.task, rule.statistic
        kind, extra = kind_of(task, statistic), extra_like(task, part, statistic)
        return lambda sent: inspect(sent, blocks(task.model), task.initial, kind, extra)

    def _inspect_model(self, sent: Model) -> str | None:
        return inspect_model(sent, self.task.initial)
