"""Membership events without SUMO: vehicles come at random and stay for a while.

Arrivals are a Poisson process and stays are independent of it, the M/G/infinity queue.  It
begins in its steady state: the vehicles of the first moment have stayed already, so that the
number of members is Poisson distributed at every time, with the mean of Little's law.
"""

import heapq
import math
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from testbed.config.schema import ArrivalsConfig, MobilityConfig
from testbed.errors import ConfigError
from testbed.mobility.events import MobilityEvent, Trace
from testbed.mobility.replay import MadeSource
from testbed.streams import Streams

END = 3600.0
_MOST_VEHICLES = 1_000_000
_DECIMALS = 6  # of a second; the clock of the simulation counts microseconds
_SHORTEST = 1e-6

Seconds = npt.NDArray[np.float64]


class GeneratedSource(MadeSource):
    """Traffic drawn from two distributions; the same seed gives the same events.

    Parameters
    ----------
    config : MobilityConfig
        ``arrivals`` and, beside it, ``end`` (default 3600 s) and ``warmup`` (default 0).
    seed : int

    Raises
    ------
    ConfigError
        If the warm-up leaves nothing, or there would be too many vehicles.
    """

    def __init__(self, config: MobilityConfig, seed: int) -> None:
        arrivals = config.arrivals
        end = END if config.end is None else config.end
        _check(arrivals, end)
        super().__init__(
            config,
            lambda: events(arrivals, end, Streams(seed)),
            end,
            {
                "source": "generated",
                "seed": seed,
                "arrivals_per_minute": arrivals.per_minute,
                "arrivals_mean_stay": arrivals.mean_stay,
                "arrivals_stay": arrivals.stay,
                "arrivals_sigma": arrivals.sigma if arrivals.stay == "log-normal" else None,
            },
        )


def expected_population(arrivals: ArrivalsConfig) -> float:
    """Return the mean number of members, arrivals per second times mean stay (Little's law)."""
    return arrivals.per_minute / 60 * arrivals.mean_stay


def generate(arrivals: ArrivalsConfig, end: float, streams: Streams) -> Trace:
    """Draw the joins and leaves of ``end`` seconds, see `events`.

    Raises
    ------
    ConfigError
        If more than a million vehicles are to be expected.
    """
    _check(arrivals, end)
    return Trace(tuple(events(arrivals, end, streams)), end)


def events(arrivals: ArrivalsConfig, end: float, streams: Streams) -> Iterator[MobilityEvent]:
    """Draw the joins and leaves of ``end`` seconds, one after the other.

    Within a moment leaves come before joins, each by vehicle, as in live traffic.

    Parameters
    ----------
    arrivals : ArrivalsConfig
    end : float
        Simulated seconds; a later end adds events and changes none.
    streams : Streams
        Of the run; arrivals and stays have streams of their own.
    """
    leaves: list[tuple[float, str]] = []  # those to come, a heap
    for time, group in groupby(_visits(arrivals, end, streams), itemgetter(0)):
        while leaves and leaves[0][0] <= time:
            yield MobilityEvent(*heapq.heappop(leaves), "leave")
        for _, vehicle, leave in sorted(group):
            yield MobilityEvent(time, vehicle, "join")
            if leave < end:
                heapq.heappush(leaves, (leave, vehicle))
    while leaves:
        yield MobilityEvent(*heapq.heappop(leaves), "leave")


def _check(arrivals: ArrivalsConfig, end: float) -> None:
    expected = expected_population(arrivals) + arrivals.per_minute / 60 * end
    if expected > _MOST_VEHICLES:
        raise ConfigError(
            f"mobility.arrivals asks for {expected:.3g} vehicles in {end:g} s, the most are "
            f"{_MOST_VEHICLES}; lower per_minute, mean_stay or mobility.end"
        )


def _visits(
    arrivals: ArrivalsConfig, end: float, streams: Streams
) -> Iterator[tuple[float, str, float]]:
    """Yield the join of each vehicle, its name and its leave, by time of the join.

    Those of the beginning are named apart, so that the others' names depend on no draw.
    """
    first = streams.rng("arrivals", "first")
    present = int(first.poisson(expected_population(arrivals)))
    rests = _rests(arrivals, first, present)
    yield from _named("first", 0, np.zeros(present), rests)
    stays, number = streams.rng("arrivals", "stays"), 0
    for came in _arrivals(arrivals, streams.rng("arrivals", "times"), end):
        yield from _named("v", number, came, _stays(arrivals, stays, len(came)))
        number += len(came)


def _named(
    prefix: str, number: int, joins: Seconds, stays: Seconds
) -> Iterator[tuple[float, str, float]]:
    leaves = np.round(joins + np.maximum(stays, _SHORTEST), _DECIMALS)
    names = (f"{prefix}{each}" for each in range(number, number + len(joins)))
    return zip(joins.tolist(), names, leaves.tolist(), strict=True)


def _arrivals(arrivals: ArrivalsConfig, rng: np.random.Generator, end: float) -> Iterator[Seconds]:
    """Draw gaps until their sum reaches `end`, and yield the sums a thousand at a time."""
    gap, last = 60 / arrivals.per_minute, 0.0
    while last < end:
        drawn = np.cumsum(rng.exponential(gap, 1024)) + last
        last = float(drawn[-1])
        times = np.round(drawn, _DECIMALS)
        yield times[times < end]


def _stays(arrivals: ArrivalsConfig, rng: np.random.Generator, number: int) -> Seconds:
    if arrivals.stay == "exponential":
        return rng.exponential(arrivals.mean_stay, number)
    return rng.lognormal(_mu(arrivals), arrivals.sigma, number)


def _rests(arrivals: ArrivalsConfig, rng: np.random.Generator, number: int) -> Seconds:
    """Draw what is left of stays that are under way, for the steady state.

    Whoever is met is met in proportion to the length of the stay, at a uniform moment of it.
    An exponential stay has no memory; a log-normal one weighted by its length is log-normal
    with mu + sigma^2 in place of mu.
    """
    if arrivals.stay == "exponential":
        return rng.exponential(arrivals.mean_stay, number)
    whole = rng.lognormal(_mu(arrivals) + arrivals.sigma**2, arrivals.sigma, number)
    return whole * rng.uniform(size=number)


def _mu(arrivals: ArrivalsConfig) -> float:
    """Return the logarithm of the median that gives the mean stay."""
    return math.log(arrivals.mean_stay) - arrivals.sigma**2 / 2
