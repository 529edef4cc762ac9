"""The figures of sweeps: savings, scalability, traffic, heterogeneity."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from testbed.experiments.rundir import Run
from testbed.reporting.comparison import column, requests
from testbed.reporting.figures import measured
from testbed.reporting.intervals import Interval, mean
from testbed.reporting.paper.against import Measured, draw_against
from testbed.reporting.paper.axis import ALPHA, CLIENTS, RHO, TRAFFIC
from testbed.reporting.paper.quantities import (
    BYTES,
    QUANTITIES,
    TIME,
    Quantity,
    need_reference,
    pairs,
    saved,
)
from testbed.reporting.paper.waiting import waits
from testbed.reporting.quality import Measure
from testbed.reporting.style import COLUMN, PAGE
from testbed.reporting.units import time_unit


def _saved(quantity: Quantity) -> Measured:
    def estimate(own: Sequence[Run], reference: Sequence[Run]) -> Interval | None:
        both = [
            (quantity.total(run), quantity.total(other)) for run, other in pairs(own, reference)
        ]
        return saved(both)

    return Measured(quantity.name, "saved against Retrain (%)", estimate)


def _final(by: Measure) -> Measured:
    def estimate(own: Sequence[Run], _: Sequence[Run]) -> Interval:
        return mean([100 * column(run, by.column)[-1] for run in own])

    return Measured("", f"final {by.name} (%)", estimate)


def _mean_wait(kind: str, title: str) -> Measured:
    def estimate(own: Sequence[Run], _: Sequence[Run]) -> Interval | None:
        seconds = [waits(run, kind) for run in own]
        means = [some.mean() for some in seconds if some.size]
        return mean(means) if means else None

    return Measured(title, "mean ({})", estimate, time_unit, from_zero=True)


def _per_request(quantity: Quantity) -> Measured:
    def estimate(own: Sequence[Run], _: Sequence[Run]) -> Interval:
        return mean([quantity.total(run) / max(1, requests(run)) for run in own])

    return Measured(quantity.name, "per request ({})", estimate, quantity.unit, from_zero=True)


def savings_against_rho(runs: Sequence[Run], width: float = PAGE) -> Figure:
    """Draw time and bytes saved against Retrain, over the sampling ratio."""
    need_reference(runs, "savings-rho")
    return draw_against(runs, RHO, [*map(_saved, QUANTITIES)], width, "savings-rho")


def savings_against_density(runs: Sequence[Run], width: float = PAGE) -> Figure:
    """Draw time and bytes saved against Retrain, over the traffic's joins and leaves."""
    need_reference(runs, "savings-density")
    return draw_against(runs, TRAFFIC, [*map(_saved, QUANTITIES)], width, "savings-density")


def scalability(runs: Sequence[Run], width: float = PAGE) -> Figure:
    """Draw time and bytes per request over the number of clients."""
    return draw_against(runs, CLIENTS, [*map(_per_request, QUANTITIES)], width, "clients")


def traffic(runs: Sequence[Run], width: float = PAGE) -> Figure:
    """Draw cost per request and mean waiting times over the traffic's joins and leaves."""
    measures = [
        _per_request(TIME),
        _per_request(BYTES["incremental"]),
        _mean_wait("leave", "time to forget"),
        _mean_wait("join", "time to include"),
    ]
    return draw_against(runs, TRAFFIC, measures, width, "traffic")


def heterogeneity(runs: Sequence[Run], width: float = COLUMN) -> Figure:
    """Draw final quality over the Dirichlet α by which data are spread over the clients."""
    return draw_against(runs, ALPHA, [_final(measured(runs))], width, "heterogeneity")
