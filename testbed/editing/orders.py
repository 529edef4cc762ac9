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
from typing import Any, TypeVar

from testbed.editing.clients import Client
from testbed.learning.blocks import State
from testbed.learning.contribution import Contribution


@dataclass(frozen=True)
class Train:
    """Clients train from the common initial model and upload model and Fisher."""

    clients: tuple[Client, ...]


@dataclass(frozen=True, eq=False)
class Tune:
    """Clients continue from `start` and upload their model."""

    clients: tuple[Client, ...]
    start: State


@dataclass(frozen=True, eq=False)
class Fuse:
    """The coordinator projects these contributions, in canonical order."""

    contributions: tuple[Contribution, ...]


Order = Train | Tune | Fuse
T = TypeVar("T")
Work = Generator[Order, Any, T]
