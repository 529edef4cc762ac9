"""Where a run writes down what happens, as it happens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from testbed.ledger import LedgerRow
from testbed.mobility import Step
from testbed.simulation.metric import Metric


@dataclass(frozen=True)
class Books:
    """Takers of what is written down; whoever keeps nothing of it runs in flat memory.

    Attributes
    ----------
    rows : callable
        Receives the ledger rows of each handled change.
    metrics : callable
        Receives the metrics of the requests in it.
    steps : callable
        Receives each step of the traffic that was used.
    """

    rows: Callable[[Sequence[LedgerRow]], None]
    metrics: Callable[[Sequence[Metric]], None]
    steps: Callable[[Step], None]
