"""Totals of a ledger: what each request cost, and what all of them cost together."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, groupby
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


def in_order(rows: Iterable[LedgerRow]) -> Iterator[RequestCost]:
    """Yield the cost of every request, the initial training (request 0) first.

    Parameters
    ----------
    rows : iterable of LedgerRow
        In order of request, as a run writes them; those of one request are held at a time.
    """
    for request, group in groupby(rows, key=lambda row: row.request):
        billed = tuple(group)
        yield RequestCost(
            request=request,
            seconds=max(r.t_end for r in billed) - min(r.t_start for r in billed),
            triggered=any(r.triggered for r in billed),
            bytes={name: price(billed) for name, price in TARIFFS.items()},
        )


def per_request(rows: Iterable[LedgerRow]) -> tuple[RequestCost, ...]:
    """Cost of every request that has rows, in whatever order; see `in_order`."""
    return tuple(in_order(sorted(rows, key=lambda row: row.request)))


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
    return add_up(per_request(rows))


def add_up(costs: Iterable[RequestCost]) -> Totals:
    """Add up the costs of requests, as `totals` does.

    Parameters
    ----------
    costs : iterable of RequestCost
        In order of request; one is held at a time.
    """
    remaining = iter(costs)
    first = next(remaining, None)
    trained = first if first and first.request == 0 else None
    answered = chain((first,), remaining) if first and not trained else remaining
    requests = triggered = 0
    spent = dict.fromkeys(TARIFFS, Bytes())

    def seconds() -> Iterator[float]:
        nonlocal requests, triggered
        for cost in answered:
            requests += 1
            triggered += cost.triggered
            for name, priced in cost.bytes.items():
                spent[name] += priced
            yield cost.seconds

    total = fsum(seconds())
    if trained and not requests:
        return Totals(0, 0, trained.seconds, trained.bytes)
    return Totals(requests, triggered, total, spent)
