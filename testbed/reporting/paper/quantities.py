"""What runs cost: simulated time, and serialised bytes by every tariff."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

import numpy as np

from testbed.errors import ResultsError
from testbed.experiments.rundir import Run
from testbed.ledger import TARIFFS, RequestCost
from testbed.reporting.comparison import costs
from testbed.reporting.intervals import Interval, ratio
from testbed.reporting.table import REFERENCE
from testbed.reporting.units import Unit, byte_unit, time_unit


@dataclass(frozen=True)
class Quantity:
    """One kind of cost.

    Attributes
    ----------
    key : str
        In a table's file.
    name : str
        As printed.
    of : callable
        Its value in what a request cost: seconds or bytes.
    unit : callable
        The unit in which values up to the given one read best.
    """

    key: str
    name: str
    of: Callable[[RequestCost], float]
    unit: Callable[[float], Unit]

    def total(self, run: Run) -> float:
        """Add it up over the requests; the initial training counts only where it is all."""
        everything = costs(run)
        answered = [cost for cost in everything if cost.request > 0]
        return fsum(self.of(cost) for cost in answered or everything)


def _priced(tariff: str) -> Callable[[RequestCost], float]:
    return lambda cost: cost.bytes[tariff].total


TIME = Quantity("time_s", "time", lambda cost: cost.seconds, time_unit)
BYTES: Mapping[str, Quantity] = {
    name: Quantity(f"bytes_{name}", f"bytes ({name})", _priced(name), byte_unit)
    for name in TARIFFS
}
QUANTITIES = (TIME, *BYTES.values())


def pairs(group: Sequence[Run], reference: Sequence[Run]) -> list[tuple[Run, Run]]:
    """Put the runs of a method beside those of another one with the same seeds."""
    by_seed = {run.seed: run for run in reference}
    return [(run, by_seed[run.seed]) for run in group if run.seed in by_seed]


def saved(both: Sequence[tuple[float, float]]) -> Interval | None:
    """Return by how many percent the first numbers undercut the second ones; None: nothing to."""
    if not both or not all(other > 0 for _, other in both):
        return None
    own, other = np.transpose(both)
    return ratio(100 * (other - own), other)


def need_reference(runs: Sequence[Run], what: str) -> None:
    """Refuse runs without Retrain, or with nothing beside it.

    Raises
    ------
    ResultsError
    """
    methods = {run.method for run in runs}
    if REFERENCE not in methods or len(methods) == 1:
        raise ResultsError(
            f"{what} compares methods with Retrain on the same seeds, and these runs are of "
            f"{', '.join(sorted(methods))}; run `testbed sweep` with --methods fsosa,{REFERENCE}"
        )
