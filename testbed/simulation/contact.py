"""Whether contact times sufficed and how long requests waited: figures of one run."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from testbed.simulation.clock import seconds
from testbed.simulation.jobs import Jobs
from testbed.simulation.metric import Metric


@dataclass(frozen=True)
class Spread:
    """A distribution in seconds; None where there is nothing to distribute.

    Attributes
    ----------
    count : int
    p10, p50, p90 : float or None
        Percentiles, interpolated linearly.
    """

    count: int
    p10: float | None
    p50: float | None
    p90: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Sum up some values."""
        if not values:
            return cls(0, None, None, None)
        return cls(len(values), *(float(p) for p in np.percentile(values, (10, 50, 90))))


@dataclass(frozen=True)
class Contact:
    """What contact between vehicles and coordinator came to.

    Attributes
    ----------
    forget, include : Spread
        From a leave, or a join, to the release of the model that follows from it.
    asked, delivered : int
        Clients asked for an upload, and those who were there long enough to send it.
    wasted_s, wasted_bytes : float, int
        Spent by those who were not, in all phases together.
    queue_max, queue_mean : int, float
        Requests that wait just after one has arrived, itself included unless it is begun at
        once.
    batch_max, batch_mean : int, float
        Requests handled together.
    """

    forget: Spread
    include: Spread
    asked: int
    delivered: int
    wasted_s: float
    wasted_bytes: int
    queue_max: int
    queue_mean: float
    batch_max: int
    batch_mean: float


def contact(metrics: Sequence[Metric], jobs: Jobs) -> Contact:
    """Work out the figures of a run; the initial training counts among those asked."""
    requests = [metric for metric in metrics if metric.request > 0]
    queue = waiting([m.t for m in requests], [m.t_start for m in requests])
    # A batch has a row for each of its requests.
    batches = round(sum(1 / metric.batch for metric in requests))
    wasted = jobs.wasted
    return Contact(
        forget=_delays(requests, "leave"),
        include=_delays(requests, "join"),
        asked=jobs.asked,
        delivered=jobs.asked - jobs.lost,
        wasted_s=seconds(wasted.micros),
        wasted_bytes=wasted.bytes,
        queue_max=max(queue, default=0),
        queue_mean=fmean(queue) if queue else 0.0,
        batch_max=max((metric.batch for metric in requests), default=0),
        batch_mean=len(requests) / batches if batches else 0.0,
    )


def waiting(arrivals: Sequence[float], starts: Sequence[float]) -> list[int]:
    """Return how many requests wait just after each arrival.

    Parameters
    ----------
    arrivals, starts : sequence of float
        When each request came and when its handling began; both non-decreasing.

    Examples
    --------
    >>> waiting([0, 1, 2, 9], [0, 5, 8, 9])
    [0, 1, 2, 0]
    """
    return [
        number - bisect_right(starts, arrival, hi=number)
        for number, arrival in enumerate(arrivals, start=1)
    ]


def _delays(requests: Sequence[Metric], kind: str) -> Spread:
    # Differences of whole microseconds.
    return Spread.of([round(m.t_end - m.t, 6) for m in requests if m.kind == kind])
