"""A method's models, made at will: releases, edits and retrainings, without time or traffic.

Clients do not depend on each other, so each trains once, or comes from the store; a one-shot
model of another subset then costs its fusion only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, TypeVar

import numpy as np

from testbed.config import Experiment
from testbed.editing.clients import Change, Client
from testbed.editing.fsosa import Parameters
from testbed.editing.methods import EditState, Method
from testbed.editing.orders import Fuse, Order, Train, Tune, Work
from testbed.editing.rounds import Rounds
from testbed.execution import Executor
from testbed.fusion.rules import Rule, rule
from testbed.learning.acceptance import Unusable
from testbed.learning.contribution import Contribution
from testbed.learning.task import Session, Task
from testbed.simulation.learning import Real
from testbed.streams import Name

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Federation:
    """Answers a method's work orders at once.

    Attributes
    ----------
    task : Task
    learning : Real
        Has clients train, and looks at what they send.
    method : Method
    rule : Rule
        Of the method.
    parameters : Parameters
    """

    task: Task
    learning: Real
    method: Method
    rule: Rule
    parameters: Parameters
    _known: dict[int, Contribution | Unusable] = field(default_factory=dict)

    @classmethod
    def of(
        cls, experiment: Experiment, task: Task, executor: Executor, method: Method, size: int
    ) -> "Federation":
        """Take everything but P, which is `size`, from the configuration."""
        fusing = rule(
            method.rule,
            experiment.fusion,
            experiment.fisher,
            experiment.server.billed_iterations,
            experiment.rounds.distillation,
        )
        rounds = Rounds.from_config(experiment.rounds, experiment.learning.epochs)
        parameters = Parameters(size, experiment.editing.below_subset, rounds)
        return cls(task, Real(task, executor), method, fusing, parameters)

    def sized(self, most: int) -> "Federation":
        """Return the same federation with a subset of at most `most` clients."""
        size = min(most, self.parameters.size)
        return replace(self, parameters=replace(self.parameters, size=size))

    def contributions(self, clients: Sequence[Client]) -> dict[Client, Contribution]:
        """Return what clients sent; those of whom nothing can be used are missing."""
        new = [client.partition for client in clients if client.partition not in self._known]
        for part, one in zip(new, self.learning.train(new, self.rule), strict=True):
            self._known[part] = one.contribution
        known = {client: self._known[client.partition] for client in clients}
        return {client: one for client, one in known.items() if not isinstance(one, Unusable)}

    def release(
        self, population: Sequence[Client], *names: Name
    ) -> tuple[EditState, frozenset[Client]]:
        """Make a model of a population, with the coordinator's numbers from a named stream.

        Returns
        -------
        state : EditState
        members : frozenset of Client
            Whose contributions are in the model.
        """
        asked: set[Client] = set()
        work = self.method.init(population, self.parameters, self._rng(*names))
        state: EditState = self._drive(_noting(work, asked))
        return state, frozenset(asked)

    def including(self, client: Client, population: Sequence[Client], *names: Name) -> EditState:
        """Make a model in which a client takes part: draw until the first order asks for it.

        The subset is then uniform among those that hold the client.
        """
        for attempt in count():
            work = self.method.init(population, self.parameters, self._rng(*names, attempt))
            first = next(work)
            if not isinstance(first, Fuse) and client in first.clients:
                break
        state: EditState = self._drive(work, first)
        return state

    def without(self, state: EditState, client: Client, *names: Name) -> EditState:
        """Have a client withdraw."""
        leave = Change.of(departures=(client,))
        work = self.method.apply(state, leave, self.parameters, self._rng(*names))
        edited: EditState
        edited, _ = self._drive(work)
        return edited

    def _rng(self, *names: Name) -> np.random.Generator:
        return self.task.streams.rng("audit", "coordinator", *names)

    def _drive(self, work: Work[T], order: Order | None = None) -> T:
        """Answer orders until the method returns; `order` is one that it has yielded already."""
        answer = None if order is None else self._answer(order)
        while True:
            try:
                answer = self._answer(work.send(answer))
            except StopIteration as finished:
                result: T = finished.value
                return result

    def _answer(self, order: Order) -> Any:
        match order:
            case Train(clients):
                return self.contributions(clients)
            case Tune(clients, start, epochs, turn, optimiser):
                once = tuple(dict.fromkeys(clients))
                model = self.task.initial if start is None else start
                parts = [client.partition for client in once]
                tuned = self.learning.tune(parts, model, Session(epochs, turn, optimiser))
                return {
                    client: one.model
                    for client, one in zip(once, tuned, strict=True)
                    if not isinstance(one.model, Unusable)
                }
            case Fuse(contributions):
                return self.learning.fuse(contributions, self.rule).value


def _noting(work: Work[T], asked: set[Client]) -> Work[T]:
    """Pass a method's orders on, and note whom it asks for something."""
    answer = None
    while True:
        try:
            order = work.send(answer)
        except StopIteration as finished:
            result: T = finished.value
            return result
        if not isinstance(order, Fuse):
            asked.update(order.clients)
        answer = yield order
