"""Figures of the subset's law: how often an edit changes it, by how much, and the bounds."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Literal

import pandas as pd
from annotated_types import Ge, Gt, Lt

from testbed.claims.measured import OWN, Evidence, Measured, exactly
from testbed.config import subset_size
from testbed.errors import ConfigError, ResultsError
from testbed.experiments.rundir import Run
from testbed.reporting.comparison import manifest_value
from testbed.reporting.intervals import ratio
from testbed.reporting.paper.trigger import answers
from testbed.verification.exact import exact
from testbed.verification.variation import subset_distance

Ratio = Annotated[float, Gt(0), Lt(1)]
Count = Annotated[int, Ge(1)]


def triggered(
    evidence: Evidence, kind: Literal["leave", "join", "batch"], method: str = OWN
) -> Measured:
    """Return how often the subset changed, as a multiple of the sum of the bounds on it.

    P/M for each deletion, P/(M + 1) for each insertion, min(1, 2 ρ k) for a batch of k changes
    (paper, sections IV-B and V-C).  The first two are probabilities, so that 1 is expected.

    Parameters
    ----------
    evidence : Evidence
    kind : {"leave", "join", "batch"}
    method : str
    """
    found = [answers(run) for run in evidence.of(method)]
    some = [each[each["what"] == kind] for each in found]
    if not all(len(each) for each in some):
        raise ResultsError(f"no {kind} was handled, so there is nothing to count")
    changed = [float(each["changed"].sum()) for each in some]
    return Measured(ratio(changed, [float(each["bound"].sum()) for each in some]))


def replaced(evidence: Evidence, method: str = OWN) -> Measured:
    """Return the members replaced by batches, as a multiple of the bound 2 ρ k on each.

    Parameters
    ----------
    evidence : Evidence
    method : str
    """
    counts = [_replaced(run) for run in evidence.of(method)]
    if not all(len(each) for each in counts):
        raise ResultsError("no batch was handled, so there is nothing to count")
    return Measured(
        ratio(
            [float(each["replaced"].sum()) for each in counts],
            [float(each["bound"].sum()) for each in counts],
        )
    )


def _replaced(run: Run) -> pd.DataFrame:
    """Return members replaced and their bound, one row per batch."""
    metrics = run.metrics.sort_values("request")
    rho = float(manifest_value(run, "config", "editing", "rho"))
    last = metrics[metrics["t_end"].ne(metrics["t_end"].shift(-1)) & (metrics["batch"] > 1)]
    return pd.DataFrame({"replaced": last["replaced"], "bound": 2 * rho * last["batch"]})


def unstable(
    evidence: Evidence, rhos: Sequence[Ratio], populations: tuple[Count, Count]
) -> Measured:
    """Return the largest total variation of a neighbour's subset law, as a multiple of ρ.

    Exact rational numbers, over all values of ρ and all populations M with P = floor(ρ M) of at
    least 1: M - 1 and M + 1 clients beside M (paper, section V-A).

    Parameters
    ----------
    evidence : Evidence
        Not looked at.
    rhos : sequence of float
    populations : sequence of int
        The first and the last M.
    """
    first, last = populations
    worst, count = Fraction(0), 0
    for rho in rhos:
        for M in range(first, last + 1):
            P = subset_size(rho, M)
            if P < 1:
                continue
            for change in ({"departures": 1}, {"arrivals": 1}):
                if M - change.get("departures", 0) < P:
                    continue
                worst = max(worst, subset_distance(M, P, **change) / Fraction(repr(rho)))
                count += 1
    if not count:
        raise ConfigError(f"no population from {first} to {last} has a subset with rho {rhos}")
    return Measured(exactly(float(worst), count))


def violations(evidence: Evidence, largest: Count, most: Count) -> Measured:
    """Return how many changes the coupling handles with another law than the best one.

    All populations up to `largest` with up to `most` departures and arrivals, every outcome of
    every draw, exact rational numbers; see `testbed.verification.exact`.

    Parameters
    ----------
    evidence : Evidence
        Not looked at.
    largest, most : int
    """
    part = exact(largest=largest, most=most)
    return Measured(exactly(part.numbers["violations"], part.numbers["changes"]))
