"""Figures of cost: what a method saves against Retrain, and what its bytes are."""

from collections import Counter
from collections.abc import Callable, Mapping
from math import fsum
from typing import Literal

from testbed.claims.measured import OWN, Evidence, Measured
from testbed.errors import ResultsError
from testbed.experiments.rundir import Run
from testbed.reporting.comparison import column
from testbed.reporting.intervals import Interval, mean, ratio
from testbed.reporting.paper.communication import breakdown
from testbed.reporting.paper.quantities import BYTES, Quantity
from testbed.reporting.paper.quantities import saved as percent
from testbed.reporting.table import REFERENCE

Cost = Literal["time", "bytes"]
Part = Literal["broadcast", "model", "Fisher"]
Priced = Callable[[Quantity], Interval]


def saved(evidence: Evidence, of: Cost, method: str = OWN, against: str = REFERENCE) -> Measured:
    """Return by how many percent a method's cumulative cost undercuts another one's.

    Parameters
    ----------
    evidence : Evidence
    of : {"time", "bytes"}
        Simulated seconds or serialised bytes of all requests, without the initial training.
    method, against : str
    """

    def priced(quantity: Quantity) -> Interval:
        both = evidence.paired(method, against)
        found = percent([(quantity.total(own), quantity.total(other)) for own, other in both])
        if found is None:
            raise ResultsError(f"{against} cost nothing, so nothing can be saved against it")
        return found

    return Measured(priced(evidence.quantity(of)), _beside(evidence, of, priced))


def relative(
    evidence: Evidence, of: Cost, method: str = OWN, against: str = REFERENCE
) -> Measured:
    """Return a method's cumulative cost as a multiple of another one's; see `saved`."""

    def multiple(value: Interval) -> Interval:
        share = value.scaled(-0.01)
        return Interval(1 + share.mean, 1 + share.high, 1 + share.low, share.n)

    found = saved(evidence, of, method, against)
    beside = {name: 1 - value / 100 for name, value in found.beside.items()}
    return Measured(multiple(found.value), beside)


def share(evidence: Evidence, part: Part, method: str = OWN) -> Measured:
    """Return which percentage of a method's bytes a part is.

    Parameters
    ----------
    evidence : Evidence
    part : {"broadcast", "model", "Fisher"}
        Released models sent to everybody; weights up and down; the rest of the uploads.
    method : str
    """
    evidence.quantity("bytes")

    def of(tariff: str) -> Interval | None:
        sent = [breakdown(run)[tariff] for run in evidence.of(method)]
        whole = [fsum(each.values()) for each in sent]
        return ratio([100 * each[part] for each in sent], whole) if all(whole) else None

    found = of(evidence.tariff)
    if found is None:
        raise ResultsError(f"{method} moved no bytes in a run, so they have no parts")
    others = {name: of(name) for name in BYTES if name != evidence.tariff}
    return Measured(found, {name: float(each.mean) for name, each in others.items() if each})


def unselected(evidence: Evidence, method: str = OWN) -> Measured:
    """Return the bytes uploaded in answer to requests that left the subset as it was.

    There nobody was selected; in answer to the others as many upload as members are replaced.

    Raises
    ------
    ResultsError
        If more upload than are replaced.
    """
    return Measured(mean([float(_unasked(run)) for run in evidence.of(method)]))


def _unasked(run: Run) -> int:
    rows = [row for row in run.ledger if row.request > 0 and row.phase == "upload"]
    replaced = dict(zip(column(run, "request"), column(run, "replaced"), strict=True))
    senders = Counter(row.request for row in rows)
    for request, count in senders.items():
        if 0 < replaced[request] < count:
            raise ResultsError(
                f"{run.folder}: {count} clients uploaded for request {request}, which replaced "
                f"{replaced[request]:g}"
            )
    return sum(row.bytes_up for row in rows if not replaced[row.request])


def _beside(evidence: Evidence, of: Cost, priced: Priced) -> Mapping[str, float]:
    if of != "bytes":
        return {}
    return {
        name: float(priced(quantity).mean)
        for name, quantity in BYTES.items()
        if name != evidence.tariff
    }
