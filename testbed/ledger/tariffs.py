"""Tariffs: the same ledger rows, priced by different conventions.

The published byte figures cannot come from charging only what an edit needs, so every
result is priced by three named conventions, side by side:

``incremental``
    What the algorithm needs: newly sampled clients download the initial model and upload
    their contribution, and the new model is sent to the active clients when it changed.
``broadcast``
    The same, and every request sends the resulting model to every active client.
``paper``
    Every request sends the model to every active client, and a request in which members of
    a subset uploaded is charged the uploads of the whole subset, as a recomputation would
    be; what was lost on the way is not charged, nor is the download of the initial model.
    With P = M/2 and a Fisher as large as the model this gives the published saving of 25 %
    over retraining.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from testbed.ledger.rows import LedgerRow


@dataclass(frozen=True)
class Bytes:
    """Priced bytes: towards the vehicles and from them."""

    down: int = 0
    up: int = 0

    @property
    def total(self) -> int:
        """Both directions together."""
        return self.down + self.up

    def __add__(self, other: "Bytes") -> "Bytes":
        return Bytes(self.down + other.down, self.up + other.up)


def incremental(rows: Iterable[LedgerRow]) -> Bytes:
    """Price one request's rows by what the algorithm needs."""
    down = up = 0
    for row in rows:
        if row.phase != "broadcast" or row.triggered:
            down += row.bytes_down
            up += row.bytes_up
    return Bytes(down, up)


def broadcast(rows: Iterable[LedgerRow]) -> Bytes:
    """Price one request's rows with a model broadcast at every request."""
    down = up = 0
    for row in rows:
        down += row.bytes_down
        up += row.bytes_up
    return Bytes(down, up)


def paper(rows: Iterable[LedgerRow]) -> Bytes:
    """Price one request's rows as the published figures imply."""
    down = up = whole = subset = 0
    for row in rows:
        if row.phase == "broadcast":
            down += row.bytes_down
        elif row.phase == "upload" and row.result != "lost":
            up += row.bytes_up
            subset = row.subset
            whole = max(whole, row.bytes_up)
    # All uploads have the same size, but for the rest of one begun on an earlier visit.
    if subset:
        up = whole * subset
    return Bytes(down, up)


TARIFFS: Mapping[str, Callable[[Iterable[LedgerRow]], Bytes]] = {
    "incremental": incremental,
    "broadcast": broadcast,
    "paper": paper,
}
