"""Membership events without SUMO: vehicles come at random and stay for a while.

Arrivals are a Poisson process and stays are independent of it, the M/G/infinity queue.  It
begins in its steady state: the vehicles of the first moment have stayed already, so that the
number of members is Poisson distributed at every time, with the mean of Little's law.
"""

import math

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
        super().__init__(
            config,
            generate(arrivals, end, Streams(seed)),
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
    """Draw the joins and leaves of ``end`` seconds.

    Parameters
    ----------
    arrivals : ArrivalsConfig
    end : float
        Simulated seconds; a later end adds events and changes none.
    streams : Streams
        Of the run; arrivals and stays have streams of their own.

    Raises
    ------
    ConfigError
        If more than a million vehicles are to be expected.
    """
    mean = expected_population(arrivals)
    expected = mean + arrivals.per_minute / 60 * end
    if expected > _MOST_VEHICLES:
        raise ConfigError(
            f"mobility.arrivals asks for {expected:.3g} vehicles in {end:g} s, the most are "
            f"{_MOST_VEHICLES}; lower per_minute, mean_stay or mobility.end"
        )
    first = streams.rng("arrivals", "first")
    present = int(first.poisson(mean))
    rests = _rests(arrivals, first, present)
    came = _arrivals(arrivals, streams.rng("arrivals", "times"), end)
    lasting = _stays(arrivals, streams.rng("arrivals", "stays"), len(came))
    joins = np.concatenate([np.zeros(present), came])
    stays = np.maximum(np.concatenate([rests, lasting]), _SHORTEST)
    leaves = np.round(joins + stays, _DECIMALS)
    rows = []
    for number, (join, leave) in enumerate(zip(joins.tolist(), leaves.tolist(), strict=True)):
        # Those of the beginning are named apart, so that the others' names depend on no draw.
        vehicle = f"first{number}" if number < present else f"v{number - present}"
        rows.append(MobilityEvent(join, vehicle, "join"))
        if leave < end:
            rows.append(MobilityEvent(leave, vehicle, "leave"))
    # Within a moment leaves come before joins, each by vehicle, as in live traffic.
    rows.sort(key=lambda event: (event.time, event.kind == "join", event.vehicle))
    return Trace(tuple(rows), end)


def _arrivals(arrivals: ArrivalsConfig, rng: np.random.Generator, end: float) -> Seconds:
    """Draw gaps until their sum reaches `end`."""
    gap = 60 / arrivals.per_minute
    drawn = np.zeros(0)
    while not drawn.size or drawn[-1] < end:
        more = np.cumsum(rng.exponential(gap, 1024))
        drawn = np.concatenate([drawn, more + (drawn[-1] if drawn.size else 0)])
    times = np.round(drawn, _DECIMALS)
    found: Seconds = times[times < end]
    return found


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
