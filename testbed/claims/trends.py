"""Figures over several settings: what grows and what falls along the axis of a sweep."""

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np

from testbed.claims.measured import OWN, Measured, Settings, need_several
from testbed.claims.quality import column_of
from testbed.experiments.rundir import Run
from testbed.reporting.comparison import column, costs
from testbed.reporting.intervals import Interval, mean
from testbed.reporting.paper.quantities import BYTES, TIME

_MB = 1e6
Value = Callable[[Run], float]


def rise(
    settings: Settings, of: Literal["quality", "edits", "time", "bytes"], method: str = OWN
) -> Measured:
    """Return by how much something grows from the first setting to the last one.

    Parameters
    ----------
    settings : mapping of setting to Evidence
        In order of their values.
    of : {"quality", "edits", "time", "bytes"}
        Mean quality over the requests, in points; the share of requests that were edits, in
        points; or cumulative cost, in simulated seconds or in MB.
    method : str
    """
    need_several(list(settings), "rise")
    first, *_, last = settings.values()

    def grown(value: Value) -> Interval:
        begin, end = ({run.seed: value(run) for run in each.of(method)} for each in (first, last))
        return mean([end[seed] - begin[seed] for seed in begin if seed in end])

    if of != "bytes":
        return Measured(grown(_VALUES[of]))
    first.quantity(of)  # there is a tariff
    by = {name: grown(_megabytes(name)) for name in BYTES}
    beside = {name: float(each.mean) for name, each in by.items() if name != first.tariff}
    return Measured(by[first.tariff], beside)


def _megabytes(tariff: str) -> Value:
    return lambda run: BYTES[tariff].total(run) / _MB


def _quality(run: Run) -> float:
    return float(np.mean(100 * column(run, column_of([run]))))


def _edits(run: Run) -> float:
    return 100 * float(np.mean([cost.triggered for cost in costs(run) if cost.request > 0]))


_VALUES: Mapping[str, Value] = {"quality": _quality, "edits": _edits, "time": TIME.total}
