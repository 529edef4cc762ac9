"""A run without learning: orders are answered by placeholders and written down.

Nothing that costs time or bytes depends on a learned weight: not who is sampled, not when a
client is done, not how large a message is.  Where nobody's work is refused, a run whose
orders are answered from here has the ledger of the real one.

A model is an empty mapping here, which every method's arithmetic leaves empty.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import nan
from typing import Any

import torch

from testbed.editing.methods import EditState
from testbed.editing.weighing import Layout, weigh
from testbed.execution import Trained, Tuned
from testbed.fusion.fsosa import Fused
from testbed.fusion.rules import Rule
from testbed.learning.blocks import State as Model
from testbed.learning.blocks import blocks
from testbed.learning.contribution import Contribution
from testbed.learning.evaluation import Score
from testbed.learning.factors import Diagonal, Fisher, zero
from testbed.learning.shapes import once
from testbed.learning.statistics import extra_like, kind_of
from testbed.learning.task import Session, Task
from testbed.simulation.learning import Timed


@dataclass(frozen=True, eq=False, kw_only=True)
class Blank(Contribution):
    """Stands for a contribution that nobody made.

    Attributes
    ----------
    layout : Layout
        Of the contribution.
    """

    layout: Layout


@dataclass(eq=False)
class Placeholder:
    """Answers orders without a tensor, see `testbed.simulation.learning.Learning`.

    Attributes
    ----------
    task : Task
    trainings : set of (int, str)
        The partitions and statistics that were asked for.
    tunings : Counter of (int, Session)
        How often a partition was asked to train a model further, by session.
    fusions : Counter of int
        How often so many contributions were fused.
    """

    task: Task
    trainings: set[tuple[int, str]] = field(default_factory=set)
    tunings: Counter[tuple[int, Session]] = field(default_factory=Counter)
    fusions: Counter[int] = field(default_factory=Counter)

    def train(self, parts: Sequence[int], rule: Rule) -> list[Trained]:
        """Write down who would train, and return a blank for each."""
        return [self._trained(part, rule.statistic) for part in parts]

    def tune(self, parts: Sequence[int], start: Model, session: Session) -> list[Tuned]:
        """Write down who would train further."""
        self.tunings.update((part, session) for part in parts)
        return [Tuned({}, 0.0)] * len(parts)

    def fuse(self, contributions: Sequence[Contribution], rule: Rule) -> Timed[Fused]:
        """Write down how many would be fused."""
        self.fusions[len(contributions)] += 1
        return Timed(Fused({}, {}), 0.0)

    def score(self, model: Model) -> Timed[Score]:
        """Return a score without a number."""
        return Timed(Score(loss=nan), 0.0)

    def stored(self, state: EditState) -> int:
        """Return what the state would weigh with its tensors."""
        return weigh(state, self._layout_of)

    def _trained(self, part: int, statistic: str) -> Trained:
        key = part, statistic
        self.trainings.add(key)
        return once(self.task, ("blank", *key), lambda: Trained(self._blank(*key), 0.0, 0.0))

    def _blank(self, part: int, statistic: str) -> Blank:
        task, samples = self.task, len(self.task.parts[part])
        extra = extra_like(task, part, statistic)
        key = statistic, task.kind, len(str(samples)), *((n, v.shape) for n, v in extra.items())
        layout = once(
            task.model,
            ("layout", key),
            lambda: Layout.of(
                Contribution(
                    samples, self._model, _fisher(task, statistic), _without_memory(extra)
                )
            ),
        )
        return Blank(samples, {}, {}, layout=layout)

    def _layout_of(self, value: Any) -> Layout | None:
        if isinstance(value, Blank):
            return value.layout
        if isinstance(value, Fused):
            return self._fused
        return self._plain if value == {} else None

    @cached_property
    def _model(self) -> Model:
        return _without_memory(self.task.initial)

    @cached_property
    def _plain(self) -> Layout:
        return once(self.task.model, "layout of a model", lambda: Layout.of(self._model))

    @cached_property
    def _fused(self) -> Layout:
        fused = Fused(self._model, {})
        return once(self.task.model, "layout of a fused model", lambda: Layout.of(fused))


def _without_memory(tensors: Model) -> Model:
    """Return tensors of the same names and shapes, in the order of a received message."""
    return {name: value.to("meta") for name, value in sorted(tensors.items())}


def _fisher(task: Task, statistic: str) -> Fisher:
    """Return the Fisher in a statistic, without memory, in the order of a received message."""
    kind = kind_of(task, statistic)
    if kind is None:
        return {}
    with torch.device("meta"):
        found = {block.name: zero(block, kind) for block in blocks(task.model)}
    order = sorted(found, key=lambda name: (isinstance(found[name], Diagonal), name))
    return {name: found[name] for name in order}
