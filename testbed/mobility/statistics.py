"""What a run of traffic offers to an experiment: how many members, how often they change."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testbed.mobility.events import MobilityEvent


@dataclass(frozen=True)
class Summary:
    """Membership after the warm-up.

    Attributes
    ----------
    joins_per_minute, leaves_per_minute : float
    population_start, population_min, population_max : int
        Members when the warm-up ends, and the extremes afterwards.
    population_mean : float
        Average over time.
    stay : tuple of (p10, p50, p90) or None
        Seconds between a join and its leave, over the visits that ended; None without any.
    seconds_for_requests : float or None
        From the end of the warm-up to the request counted out; None when there are fewer.
    """

    joins_per_minute: float
    leaves_per_minute: float
    population_start: int
    population_min: int
    population_mean: float
    population_max: int
    stay: tuple[float, float, float] | None
    seconds_for_requests: float | None


def summarise(
    events: Sequence[MobilityEvent], warmup: float, end: float, requests: int
) -> Summary:
    """Summarise membership between `warmup` and `end`.

    An event at `warmup` itself is the first one after it.

    Parameters
    ----------
    events : sequence of MobilityEvent
        In order of time, from the beginning of the run.
    warmup, end : float
        Simulated seconds, ``warmup < end``.
    requests : int
        How many joins and leaves to time after the warm-up.
    """
    joined: dict[str, float] = {}
    stays: list[float] = []
    start = lowest = highest = 0
    area, since = 0.0, warmup
    later: list[MobilityEvent] = []
    for event in events:
        population = len(joined)
        if event.kind == "join":
            joined[event.vehicle] = event.time
        else:
            stays.append(event.time - joined.pop(event.vehicle))
        if event.time < warmup:
            start = lowest = highest = len(joined)
            continue
        area += population * (event.time - since)
        since = event.time
        lowest, highest = min(lowest, len(joined)), max(highest, len(joined))
        later.append(event)
    area += len(joined) * (end - since)
    minutes = (end - warmup) / 60
    joins = sum(event.kind == "join" for event in later)
    p10, p50, p90 = np.percentile(stays, (10, 50, 90)).tolist() if stays else (0.0, 0.0, 0.0)
    return Summary(
        joins_per_minute=joins / minutes,
        leaves_per_minute=(len(later) - joins) / minutes,
        population_start=start,
        population_min=lowest,
        population_mean=area / (end - warmup),
        population_max=highest,
        stay=(p10, p50, p90) if stays else None,
        seconds_for_requests=(
            later[requests - 1].time - warmup if len(later) >= requests else None
        ),
    )
