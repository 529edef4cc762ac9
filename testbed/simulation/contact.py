"""Whether contact times sufficed and how long requests waited: figures of one run."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testbed.simulation.clock import seconds
from testbed.simulation.jobs import Jobs
from testbed.simulation.tally import Tally


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


def contact(tally: Tally, jobs: Jobs) -> Contact:
    """Work out the figures of a run; the initial training counts among those asked."""
    requests, batches, wasted = tally.requests, round(tally.batches), jobs.wasted
    return Contact(
        forget=Spread.of(tally.forget),
        include=Spread.of(tally.include),
        asked=jobs.asked,
        delivered=jobs.asked - jobs.lost,
        wasted_s=seconds(wasted.micros),
        wasted_bytes=wasted.bytes,
        queue_max=tally.waiting_most,
        queue_mean=tally.waiting_sum / requests if requests else 0.0,
        batch_max=tally.batch_most,
        batch_mean=requests / batches if batches else 0.0,
    )
