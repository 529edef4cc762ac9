"""How an algorithm asks for work.

`init` and `apply` of an editing method are generators.  They yield orders and receive the
answers; the simulation decides when and where an order runs, moves simulated time and
writes the ledger.  An algorithm knows nothing of time, bytes or processes.

============== ==========================================
order          answer
============== ==========================================
`Train`        ``dict[Client, Contribution]``
`Tune`         ``dict[Client, State]``
`Fuse`         `testbed.fusion.fsosa.Fused`
============== ==========================================

Clients whose upload was refused are missing from the first two answers; a method goes on as
if they had left.  Clients stand in the order's order.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from testbed.editing.clients import Client
from testbed.learning.blocks import State
from testbed.learning.contribution import Contribution


@dataclass(frozen=True)
class Train:
    """Clients train from the common initial model and upload it with the method's statistic."""

    clients: tuple[Client, ...]


@dataclass(frozen=True, eq=False)
class Tune:
    """Clients continue from `start` and upload their model.

    Attributes
    ----------
    clients : tuple of Client
        Somebody may stand here several times; the answer holds one model for each client.
    start : mapping of str to Tensor, or None
        None for the common initial model.
    epochs : int or None
        None for the recipe's.
    round : int
        The training round, 1, 2, ... of methods that have several: another order of batches.
    optimiser : {"sgd", "curvature"}
        ``curvature``: steps scaled by the diagonal of the curvature (FedRR).
    """

    clients: tuple[Client, ...]
    start: State | None
    epochs: int | None = None
    round: int = 0
    optimiser: Literal["sgd", "curvature"] = "sgd"


@dataclass(frozen=True, eq=False)
class Fuse:
    """The coordinator fuses these contributions, in canonical order, by the method's rule."""

    contributions: tuple[Contribution, ...]


Order = Train | Tune | Fuse
T = TypeVar("T")
Work = Generator[Order, Any, T]
