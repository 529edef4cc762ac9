"""Totals of a ledger: what each request cost, and what all of them cost together."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from math import fsum

from testbed.ledger.rows import LedgerRow
from testbed.ledger.tariffs import TARIFFS, Bytes


@dataclass(frozen=True)
class RequestCost:
    """The cost of one request.

    Attributes
    ----------
    request : int
    seconds : float
        Simulated seconds from the start of its handling to the end of its last step.
        Steps of different vehicles overlap, so this is not the sum of the rows.
    triggered : bool
    bytes : mapping of str to Bytes
        By tariff.
    """

    request: int
    seconds: float
    triggered: bool
    bytes: Mapping[str, Bytes]


def per_request(rows: Iterable[LedgerRow]) -> tuple[RequestCost, ...]:
    """Cost of every request that has rows, the initial training (request 0) first."""
    ordered = sorted(rows, key=lambda row: row.request)
    costs = []
    for request, group in groupby(ordered, key=lambda row: row.request):
        billed = tuple(group)
        costs.append(
            RequestCost(
                request=request,
                seconds=max(r.t_end for r in billed) - min(r.t_start for r in billed),
                triggered=any(r.triggered for r in billed),
                bytes={name: price(billed) for name, price in TARIFFS.items()},
            )
        )
    return tuple(costs)


@dataclass(frozen=True)
class Totals:
    """Cumulative cost over the requests; the initial training is kept apart.

    Attributes
    ----------
    requests, triggered : int
        Handled (a batch counts once), and those that changed the model.
    seconds : float
        Sum over requests of their handling time.
    bytes : mapping of str to Bytes
        By tariff.
    """

    requests: int
    triggered: int
    seconds: float
    bytes: Mapping[str, Bytes]


def totals(rows: Iterable[LedgerRow]) -> Totals:
    """Add up the requests of one run; request 0 is left out unless it is all there is."""
    everything = per_request(rows)
    answered = [cost for cost in everything if cost.request > 0]
    costs = answered or everything
    return Totals(
        requests=len(answered),
        triggered=sum(cost.triggered for cost in answered),
        seconds=fsum(cost.seconds for cost in costs),
        bytes={name: sum((cost.bytes[name] for cost in costs), Bytes()) for name in TARIFFS},
    )
