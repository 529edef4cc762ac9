"""What can lie along the x axis of a figure of a sweep."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from testbed.errors import ResultsError
from testbed.experiments.rundir import Run
from testbed.reporting.comparison import column, manifest_value, requests
from testbed.reporting.settings import changing, configuration

_MINUTE = 60.0


@dataclass(frozen=True)
class Axis:
    """What lies along the x axis.

    Attributes
    ----------
    keys : tuple of str
        Of the configuration; the first one that varies is taken.
    label : str
    place : callable
        Where the runs of one setting stand.
    sweep : str
        The arguments of ``testbed sweep`` that make such runs.
    """

    keys: tuple[str, ...]
    label: str
    place: Callable[[Sequence[Run]], float]
    sweep: str

    def key(self, runs: Sequence[Run], what: str) -> str:
        """Return the key that varies.

        Raises
        ------
        ResultsError
            If none does.
        """
        found = changing(runs)
        for key in self.keys:
            if key in found:
                return key
        raise ResultsError(
            f"{what} needs runs with several values of {' or '.join(self.keys[:2])}; make them "
            f"with `testbed sweep {self.sweep}`"
        )


def _configured(key: str) -> Callable[[Sequence[Run]], float]:
    return lambda runs: float(configuration(runs[0])[key])


def _changes(runs: Sequence[Run]) -> float:
    """Return joins and leaves per minute of simulated time, over all runs."""
    spans = [float(np.ptp(column(run, "t"))) for run in runs]
    return _MINUTE * sum(map(requests, runs)) / sum(spans) if sum(spans) else 0.0


RHO = Axis(
    ("editing.rho",),
    "sampling ratio ρ",
    _configured("editing.rho"),
    "configs/sweeps/rho.yaml --grid rho=0.1,0.3,0.5,0.7",
)
TRAFFIC = Axis(
    (
        "mobility.density",
        "mobility.scale",
        "mobility.arrivals.per_minute",
        "mobility.schedule.interval",
        "mobility.participation",
    ),
    "joins and leaves per minute",
    _changes,
    "configs/sweeps/density.yaml --grid density=7.2,3.6,1.8",
)
CLIENTS = Axis(
    ("mobility.schedule.vehicles", "clients.initial"),
    "clients at the start",
    lambda runs: float(manifest_value(runs[0], "population_initial")),
    "configs/sweeps/clients.yaml --grid mobility.schedule.vehicles=20,50,100,200,500",
)
ALPHA = Axis(
    ("data.alpha",),
    "Dirichlet α",
    _configured("data.alpha"),
    "configs/sweeps/alpha.yaml --grid alpha=0.1,0.5,0.8",
)
