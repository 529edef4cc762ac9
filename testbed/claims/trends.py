"""Figures over several settings: what grows and what falls along the axis of a sweep."""

import numpy as np

from testbed.claims.measured import OWN, Evidence, Measured, Settings, need_several
from testbed.claims.quality import column_of
from testbed.errors import ConfigError, ResultsError
from testbed.experiments.rundir import Run
from testbed.reporting.comparison import column, costs
from testbed.reporting.intervals import mean, ratio

_WHAT = ("quality", "time", "bytes", "edits")


def rise(settings: Settings, of: str, method: str = OWN) -> Measured:
    """Return by how much something grows from the first setting to the last one.

    Parameters
    ----------
    settings : mapping of setting to Evidence
        In order of their values.
    of : {"quality", "time", "bytes", "edits"}
        Mean quality over the requests, in points; cumulative cost, in percent of that in the
        first setting; or the share of requests that changed the subset, in points.
    method : str
    """
    if of not in _WHAT:
        raise ConfigError(f"of: {of!r} does not grow; known: {', '.join(_WHAT)}")
    need_several(list(settings), "rise")
    first, *_, last = settings.values()
    begin, end = (_by_seed(each, of, method) for each in (first, last))
    common = [seed for seed in begin if seed in end]
    if of in ("time", "bytes"):
        if not all(begin[seed] for seed in common):
            raise ResultsError(f"{method} cost no {of} in the first setting, to compare with")
        grown = [100 * (end[seed] - begin[seed]) for seed in common]
        return Measured(ratio(grown, [begin[seed] for seed in common]))
    return Measured(mean([end[seed] - begin[seed] for seed in common]))


def _by_seed(evidence: Evidence, of: str, method: str) -> dict[int, float]:
    return {run.seed: _value(evidence, run, of) for run in evidence.of(method)}


def _value(evidence: Evidence, run: Run, of: str) -> float:
    if of == "quality":
        return float(np.mean(100 * column(run, column_of(evidence.runs))))
    if of == "edits":
        changed = [cost.triggered for cost in costs(run) if cost.request > 0]
        return 100 * float(np.mean(changed))
    return evidence.quantity(of).total(run)
