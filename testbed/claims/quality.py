"""Figures of quality: accuracy, or mAP50-95 of detectors, beside other methods."""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from annotated_types import MinLen

from testbed.claims.measured import OWN, Evidence, Measured
from testbed.errors import ResultsError
from testbed.experiments.rundir import Run
from testbed.reporting.comparison import column
from testbed.reporting.intervals import Series, mean
from testbed.reporting.quality import measure
from testbed.reporting.table import REFERENCE

At = Literal["end", "mean"]


def quality(evidence: Evidence, method: str = OWN, at: At = "end") -> Measured:
    """Return a method's quality in percent.

    Parameters
    ----------
    evidence : Evidence
    method : str
    at : {"end", "mean"}
        After the last request, or the mean over all of them and the initial training.
    """
    name = column_of(evidence.runs)
    return Measured(mean([_one(_percent(run, name), at) for run in evidence.of(method)]))


def difference(
    evidence: Evidence, method: str = OWN, against: str = REFERENCE, at: At = "end"
) -> Measured:
    """Return a method's quality minus another one's on the same seeds, in points.

    Parameters
    ----------
    evidence : Evidence
    method, against : str
    at : {"end", "mean"}
        After the last request, or the mean over all of them and the initial training.
    """
    return Measured(mean(_gaps(evidence, method, against, at)))


def lead(
    evidence: Evidence,
    over: Annotated[Sequence[str], MinLen(1)],
    which: Literal["smallest", "largest"],
    method: str = OWN,
    at: At = "end",
) -> Measured:
    """Return how far a method is above others, in points: above the best or the worst of them.

    Parameters
    ----------
    evidence : Evidence
    over : sequence of str
        The other methods.
    which : {"smallest", "largest"}
        Lead of them.
    method : str
    at : {"end", "mean"}
        After the last request, or the mean over all of them and the initial training.
    """
    leads = [mean(_gaps(evidence, method, other, at)) for other in over]
    pick = min if which == "smallest" else max
    return Measured(pick(leads, key=lambda each: float(each.mean)))


def column_of(runs: Sequence[Run]) -> str:
    """Return the metric by which runs are judged.

    Raises
    ------
    ResultsError
        If nothing was trained.
    """
    by = measure(runs)
    if by is None:
        raise ResultsError(
            f"{runs[0].folder}: nothing was trained, so it has no quality; set fidelity to train"
        )
    return by.column


def _gaps(evidence: Evidence, method: str, against: str, at: At) -> list[float]:
    name = column_of(evidence.runs)
    both = evidence.paired(method, against)
    return [_one(_percent(own, name) - _percent(other, name), at) for own, other in both]


def _percent(run: Run, name: str) -> Series:
    return 100 * column(run, name)


def _one(values: Series, at: At) -> float:
    return float(values[-1] if at == "end" else np.mean(values))
