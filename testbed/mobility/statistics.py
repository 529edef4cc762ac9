"""What a run of traffic offers to an experiment: how many members, how often they change."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.mobility.events import MobilityEvent

Series = npt.NDArray[np.float64]

_CANDIDATES = 120  # warm-ups that are considered
_REST = 0.25  # share of the time that has to be left after a warm-up
_STRAY = 0.05  # share of the time after it that may be spent outside


@dataclass(frozen=True)
class Summary:
    """Membership after the warm-up.

    Attributes
    ----------
    joins_per_minute, leaves_per_minute : float
    population_start, population_min, population_max : int
        Members when the warm-up ends (M0), and the extremes afterwards.
    population_mean : float
        Average over time.
    violations : int
        Changes after which ``M0 / 2 <= M <= 2 M0`` does not hold (paper, section IV).
    violated_share : float
        Share of the time during which it does not hold.
    stay : tuple of (p10, p50, p90) or None
        Seconds between a join and its leave, over the visits that ended; None without any.
    vehicles, rejoins : int
        Distinct vehicles of the whole run, and joins beyond the first of each.
    seconds_for_requests : float or None
        From the end of the warm-up to the request counted out; None when there are fewer.
    """

    joins_per_minute: float
    leaves_per_minute: float
    population_start: int
    population_min: int
    population_mean: float
    population_max: int
    violations: int
    violated_share: float
    stay: tuple[float, float, float] | None
    vehicles: int
    rejoins: int
    seconds_for_requests: float | None


@dataclass(frozen=True)
class Population:
    """Members over time: `members[i]` from `times[i]` up to the next time.

    Attributes
    ----------
    times, members : array of shape (changes + 1,)
        The first entry is the empty start, at minus infinity.
    """

    times: Series
    members: npt.NDArray[np.int64]

    def at(self, time: float) -> int:
        """Return how many members there are just before `time`."""
        return int(self.members[np.searchsorted(self.times, time) - 1])

    def start(self, warmup: float) -> int:
        """Return M0: the members just before `warmup` or, without any, after what happens then."""
        return self.at(warmup) or int(
            self.members[np.searchsorted(self.times, warmup, side="right") - 1]
        )

    def between(self, begin: float, end: float) -> tuple[Series, npt.NDArray[np.int64], Series]:
        """Return starts, members and lengths in seconds of the constant parts in [begin, end)."""
        first, last = np.searchsorted(self.times, (begin, end)).tolist()
        times = np.append(begin, self.times[first:last])
        return times, self.members[first - 1 : last], np.diff(times, append=end)


@dataclass(frozen=True)
class Proposal:
    """How to begin with a wanted number of clients.

    Attributes
    ----------
    participation : float
        Share of the vehicles that gives exactly that number with this seed.
    expected : float
        The share that gives it on average over seeds.
    warmup : float
        Simulated second at which to count the clients.
    """

    participation: float
    expected: float
    warmup: float


def population(events: Iterable[MobilityEvent]) -> Population:
    """Return the number of members over time; changes of one moment count together."""
    times: list[float] = [-np.inf]
    members: list[int] = [0]
    for event in events:
        count = members[-1] + (1 if event.kind == "join" else -1)
        if event.time == times[-1]:
            members[-1] = count
        else:
            times.append(event.time)
            members.append(count)
    return Population(np.array(times), np.array(members))


def stays(events: Iterable[MobilityEvent]) -> Series:
    """Return the seconds between each join and its leave, in order of the leaves."""
    joined: dict[str, float] = {}
    found: list[float] = []
    for event in events:
        if event.kind == "join":
            joined[event.vehicle] = event.time
        else:
            found.append(event.time - joined.pop(event.vehicle))
    return np.array(found)


def summarise(
    events: Sequence[MobilityEvent], warmup: float, end: float, requests: int
) -> Summary:
    """Summarise membership between `warmup` and `end`.

    An event at `warmup` itself is the first one after it, unless nobody was there before.

    Parameters
    ----------
    events : sequence of MobilityEvent
        In order of time, from the beginning of the run.
    warmup, end : float
        Simulated seconds, ``warmup < end``.
    requests : int
        How many joins and leaves to time after the warm-up.
    """
    members = population(events)
    start = members.start(warmup)
    met = members.at(warmup) > 0
    later = [event for event in events if event.time > warmup or (met and event.time == warmup)]
    times, counts, lengths = members.between(warmup, end)
    if not met and len(times) > 1 and times[1] == warmup:
        counts, lengths = counts[1:], lengths[1:]
    outside = _outside(counts, start, 2)
    minutes = (end - warmup) / 60
    joins = sum(event.kind == "join" for event in later)
    lasted = stays(events)
    vehicles = {event.vehicle for event in events}
    p10, p50, p90 = np.percentile(lasted, (10, 50, 90)).tolist() if lasted.size else (0.0,) * 3
    return Summary(
        joins_per_minute=joins / minutes,
        leaves_per_minute=(len(later) - joins) / minutes,
        population_start=start,
        population_min=int(counts.min()),
        population_mean=float(counts @ lengths) / (end - warmup),
        population_max=int(counts.max()),
        violations=int(outside[1:].sum()),
        violated_share=float(lengths[outside].sum()) / (end - warmup),
        stay=(p10, p50, p90) if lasted.size else None,
        vehicles=len(vehicles),
        rejoins=sum(event.kind == "join" for event in events) - len(vehicles),
        seconds_for_requests=(
            later[requests - 1].time - warmup if len(later) >= requests else None
        ),
    )


def propose(
    events: Sequence[MobilityEvent],
    clients: int,
    begin: float,
    end: float,
    draw: Callable[[str], float],
) -> Proposal | None:
    """Propose a share of participants and a warm-up that give `clients` at the start.

    The warm-up is the earliest after which the number of all members keeps within a factor of
    the square root of 2 for 95 % of the time, or else the one after which it does so longest.
    That leaves room for the chance of who takes part, before the factor of 2 that is asked
    for.  A quarter of the time is left after it.

    Parameters
    ----------
    events : sequence of MobilityEvent
        Of all vehicles, whether they would take part or not.
    clients : int
    begin, end : float
        Simulated seconds of the whole run.
    draw : callable
        The number in [0, 1) that decides about a vehicle: it takes part if this is less than
        the share.

    Returns
    -------
    Proposal or None
        None if there are never so many members early enough.
    """
    members = population(events)
    best: tuple[float, float] | None = None
    for time in np.linspace(begin, end - _REST * (end - begin), _CANDIDATES + 1):
        second = float(np.ceil(time))
        start = members.at(second)
        if start < clients or second >= end:
            continue
        _, counts, lengths = members.between(second, end)
        share = float(lengths[_outside(counts, start, np.sqrt(2))].sum()) / (end - second)
        if best is None or share < best[0]:
            best = share, second
        if share <= _STRAY:
            break
    if best is None:
        return None
    second = best[1]
    present: set[str] = set()
    for event in events:
        if event.time >= second:
            break
        (present.add if event.kind == "join" else present.discard)(event.vehicle)
    draws = sorted(draw(vehicle) for vehicle in present)
    above = draws[clients] if clients < len(draws) else 1.0
    return Proposal(
        participation=_between(draws[clients - 1], above),
        expected=clients / len(present),
        warmup=second,
    )


def _outside(counts: npt.NDArray[np.int64], start: int, factor: float) -> npt.NDArray[np.bool_]:
    return (counts * factor < start) | (counts > factor * start)


def _between(low: float, high: float) -> float:
    """Return the number with the fewest decimals above `low` and at most `high`."""
    if high == 1:
        return 1.0
    for decimals in range(2, 17):
        found = float(np.floor(high * 10**decimals) / 10**decimals)
        if low < found <= high:
            return found
    return high
