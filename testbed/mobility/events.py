"""What mobility hands to the rest of the testbed: timed membership changes, and distances."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import Literal, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from testbed.errors import TraceError
from testbed.streams import Streams

Kind = Literal["join", "leave"]
Provenance = Mapping[str, str | float | int | None]
Numbers = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

_NO_CODES, _NO_NUMBERS = np.zeros(0, np.int64), np.zeros(0)


@dataclass(frozen=True, slots=True)
class MobilityEvent:
    """One vehicle becomes a member, or ceases to be one.

    Attributes
    ----------
    time : float
        Simulated seconds, SUMO's own depart or arrival stamp.
    vehicle : str
        SUMO's vehicle id.
    kind : {"join", "leave"}
    rsu : str
        Name of the coverage area that is entered or left; empty under ``network``.
    """

    time: float
    vehicle: str
    kind: Kind
    rsu: str = ""


class Place(NamedTuple):
    """Where a member is, as far as a radio link cares.

    Attributes
    ----------
    rsu : str
        Name of the roadside unit that serves it.
    metres : float
        Horizontal distance, in whole centimetres, so that text files keep it exactly.
    """

    rsu: str
    metres: float


class Places(Mapping[str, Place]):
    """Where the members are at one moment: columns, sorted by vehicle, read as a dictionary.

    Of hundreds of places at each step a link asks for a few, so none is an object before.

    Attributes
    ----------
    vehicles : sequence of str
    rsu : array of int, shape (vehicles,)
        Positions in `rsus`.
    metres : array of float, shape (vehicles,)
    rsus : sequence of str
    """

    __slots__ = ("metres", "rsu", "rsus", "vehicles")

    def __init__(
        self,
        vehicles: Sequence[str] = (),
        rsu: Codes = _NO_CODES,
        metres: Numbers = _NO_NUMBERS,
        rsus: Sequence[str] = (),
    ) -> None:
        self.vehicles, self.rsu, self.metres, self.rsus = vehicles, rsu, metres, rsus

    @classmethod
    def of(cls, places: Mapping[str, Place]) -> "Places":
        """Turn a dictionary into columns."""
        vehicles = sorted(places)
        rsus = tuple(dict.fromkeys(place.rsu for place in places.values()))
        return cls(
            vehicles,
            np.array([rsus.index(places[vehicle].rsu) for vehicle in vehicles], np.int64),
            np.array([places[vehicle].metres for vehicle in vehicles], float),
            rsus,
        )

    def __getitem__(self, vehicle: str) -> Place:
        """Return where a vehicle is."""
        at = bisect_left(self.vehicles, vehicle)
        if at == len(self.vehicles) or self.vehicles[at] != vehicle:
            raise KeyError(vehicle)
        return Place(self.rsus[self.rsu[at]], float(self.metres[at]))

    def __iter__(self) -> Iterator[str]:
        """Return the vehicles in order."""
        return iter(self.vehicles)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.vehicles)


class Sighting(NamedTuple):
    """A member's place at a time.

    Attributes
    ----------
    time : float
        Simulated seconds, the time of a step.
    vehicle : str
    rsu : str
    metres : float
        As in `Place`.
    """

    time: float
    vehicle: str
    rsu: str
    metres: float


@dataclass(frozen=True)
class Trace:
    """The membership events of one mobility run, in order of time.

    Attributes
    ----------
    events : tuple of MobilityEvent
        Non-decreasing in time; every leave follows a join of the same vehicle.
    end : float
        Simulated seconds covered; nothing happened between the last event and `end`.
    places : tuple of Sighting
        Where the members were, sorted by time and vehicle; empty under ``network``.
    """

    events: tuple[MobilityEvent, ...]
    end: float
    places: tuple[Sighting, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """What happened at one moment of simulated time.

    Attributes
    ----------
    time : float
        Simulated seconds.
    events : tuple of MobilityEvent
        Leaves before joins, each sorted by vehicle id; all at `time`.
    distances : Places
        Where every member is after the events; empty under ``network``.
    """

    time: float
    events: tuple[MobilityEvent, ...]
    distances: Places = field(default_factory=Places)


class MobilitySource(Protocol):
    """Where membership events come from: live traffic, or a recorded trace.

    A source is a context manager; it holds what it opened until it is closed.
    """

    @property
    def warmup(self) -> float:
        """Simulated second, on the clock of the steps, at which clients are counted."""

    @property
    def end(self) -> float:
        """Simulated second before which the steps stop; infinite when none is known."""

    @property
    def provenance(self) -> Provenance:
        """Say what the events were made from: enough to make them again."""

    def steps(self) -> Iterator[Step]:
        """Yield the steps that are still to come, times strictly increasing.

        Live traffic yields one step per SUMO step, a trace one per distinct time of an event
        or a sighting.
        """

    def counts(self) -> Mapping[str, int]:
        """Return how many vehicles or events there were so far."""

    def close(self) -> None:
        """Release what the source holds; closing twice does no harm."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


def participates(streams: Streams, vehicle: str, rate: float) -> bool:
    """Whether `vehicle` is one of the share `rate` that takes part in learning.

    A pure function of the seed and the vehicle's name, never of the order of arrival.
    """
    return streams.uniform("participation", vehicle) < rate


def check_order(
    events: Iterable[MobilityEvent], where: str = "event", numbers: Iterable[int] | None = None
) -> None:
    """Refuse events that are not a possible history.

    Parameters
    ----------
    events : iterable of MobilityEvent
    where : str
        What to call a position in the message, for example ``"line"``.
    numbers : iterable of int, optional
        The number of each event's position, by default counted from 1.

    Raises
    ------
    TraceError
        If time runs backwards, a vehicle joins twice, or leaves before it joined.
    """
    members: set[str] = set()
    latest = float("-inf")
    for number, event in zip(count(1) if numbers is None else numbers, events, strict=False):
        if not event.time >= latest:
            raise TraceError(
                f"{where} {number}: time {event.time:g} comes after {latest:g}; "
                "sort the events by time"
            )
        latest = event.time
        present = event.vehicle in members
        if event.kind == "join":
            if present:
                raise TraceError(f"{where} {number}: {event.vehicle!r} joins but is a member")
            members.add(event.vehicle)
        else:
            if not present:
                raise TraceError(f"{where} {number}: {event.vehicle!r} leaves but never joined")
            members.discard(event.vehicle)
