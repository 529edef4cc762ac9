"""The learning task that the certificate edits, taken from the configuration."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from testbed.config import Experiment, subset_size
from testbed.editing.clients import Change, Client
from testbed.editing.fsosa import Parameters
from testbed.editing.orders import Fuse, Order, Train
from testbed.errors import ConfigError, EditError
from testbed.execution.executor import Clients
from testbed.fusion.fsosa import Fused, Projection, fuse
from testbed.learning.acceptance import Unusable
from testbed.learning.blocks import blocks
from testbed.learning.fisher import Kind
from testbed.learning.task import Task
from testbed.streams import Streams
from testbed.verification.changes import fleet, random_changes

T = TypeVar("T")
Fusing = Callable[..., Fused]

# Without clients.initial two thirds of the partitions are taken at the start.
_SHARE = (2, 3)


@dataclass(frozen=True)
class Plan:
    """Who is there, and what changes.

    Attributes
    ----------
    population : tuple of Client
        At the start.
    parameters : Parameters
    changes : tuple of Change
    """

    population: tuple[Client, ...]
    parameters: Parameters
    changes: tuple[Change, ...]


def plan(experiment: Experiment, streams: Streams, count: int, name: str) -> Plan:
    """Draw `count` changes of the configured pool from the stream called `name`.

    Raises
    ------
    ConfigError
        If rho gives an empty subset.
    """
    clients, editing = experiment.clients, experiment.editing
    initial = clients.initial or -(-clients.pool * _SHARE[0] // _SHARE[1])
    size = subset_size(editing.rho, initial)
    if size < 1:
        raise ConfigError(
            f"editing.rho {editing.rho} of {initial} initial clients gives an empty subset "
            "(P = 0); raise editing.rho or clients.initial"
        )
    pool = fleet(clients.pool)
    rng = streams.rng("verification", name)
    changes = random_changes(pool, initial, (size, clients.pool), count, rng)
    return Plan(pool[:initial], Parameters(size, editing.below_subset), changes)


@dataclass(frozen=True, eq=False)
class Federation:
    """Answers work orders at once, with real training and real fusion.

    Attributes
    ----------
    task : Task
    projection : Projection
    fuse : callable
        The fusion, with the signature of `testbed.fusion.fsosa.fuse`.
    """

    task: Task
    projection: Projection
    fuse: Fusing = fuse
    executor: Clients = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "executor", Clients(self.task))

    def anew(self) -> "Federation":
        """Return the same federation with nobody trained yet."""
        return replace(self)

    @classmethod
    def of(
        cls, task: Task, experiment: Experiment, kind: Kind, fuse: Fusing = fuse
    ) -> "Federation":
        """Take the projection from the configuration and the Fisher's kind from `kind`."""
        projection = Projection.from_config(experiment.fusion)
        return cls(replace(task, kind=kind), projection, fuse)

    def drive(self, work: Generator[Order, Any, T]) -> T:
        """Feed a method's orders until it returns.

        Raises
        ------
        EditError
            If the method yields an order that F-SOSA does not.
        """
        answer: Any = None
        while True:
            try:
                order = work.send(answer)
            except StopIteration as finished:
                result: T = finished.value
                return result
            answer = self._answer(order)

    def _answer(self, order: Order) -> Any:
        match order:
            case Train(clients):
                trained = self.executor.train([client.partition for client in clients])
                return {
                    client: one.contribution
                    for client, one in zip(clients, trained, strict=True)
                    if not isinstance(one.contribution, Unusable)
                }
            case Fuse(contributions):
                return self.fuse(contributions, blocks(self.task.model), self.projection)
            case _:
                raise EditError(
                    f"the certificate cannot carry out {type(order).__name__}; "
                    "verify a method that yields Train and Fuse only"
                )
