"""Who is a member: rules that turn what SUMO reports into joins, leaves and distances.

The rules are pure bookkeeping over what one step reports, so that they are the same for
every back end and can be tested on invented vehicles.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress, repeat
from typing import Protocol

import numpy as np

from testbed.mobility.events import MobilityEvent, Places

Positions = Mapping[str, tuple[float, float]]

_TOLERANCE = 1e-6  # seconds; times of steps are rounded to microseconds


@dataclass(frozen=True, slots=True)
class Circle:
    """A roadside unit's coverage.

    Attributes
    ----------
    x, y : float
        Position in the network's coordinates, metres.
    radius : float
        A vehicle is covered at this distance or nearer, metres.
    hysteresis : float
        A vehicle that it serves stays covered until it is beyond ``(1 + hysteresis) radius``,
        so that one that stands on the border does not join and leave again and again.
    name : str
    """

    x: float
    y: float
    radius: float
    hysteresis: float
    name: str = "rsu"

    @property
    def reach(self) -> float:
        """Distance beyond which a served vehicle is covered no more, metres."""
        return self.radius * (1 + self.hysteresis)


class Rule(Protocol):
    """Membership after each step."""

    def update(
        self, time: float, departed: Iterable[str], arrived: Collection[str], positions: Positions
    ) -> tuple[set[str], set[str]]:
        """Take in one step; return the vehicles that leave and those that join."""

    def places(self) -> Places:
        """Return where every member is; empty where distance does not matter."""


class NetworkRule:
    """A member is whoever drives in the network: departed, not yet arrived."""

    def __init__(self) -> None:
        self._members: set[str] = set()

    def update(
        self, time: float, departed: Iterable[str], arrived: Collection[str], positions: Positions
    ) -> tuple[set[str], set[str]]:
        """Take in one step; a vehicle that departs and arrives in it is not mentioned."""
        gone = set(arrived)
        leaves = gone & self._members
        joins = set(departed) - (gone - leaves)
        self._members -= leaves
        self._members |= joins
        return leaves, joins

    def places(self) -> Places:
        """Return nothing: distance does not matter."""
        return Places()


class CoverageRule:
    """A member is whoever visits one of some areas, or the one of them that is followed.

    Parameters
    ----------
    areas : sequence of Circle
        At least one, of different names and the same hysteresis.
    minimum_stay : float
        A visit makes a member once it has lasted so many seconds.
    grace : float
        A visit outlives gaps of up to so many seconds, at its last known place.  Arrivals and
        hand-overs to an area that is not followed end it at once.
    follow : str, optional
        The only area whose visitors are members; by default all areas are one domain.
    """

    def __init__(
        self,
        areas: Sequence[Circle],
        minimum_stay: float = 0.0,
        grace: float = 0.0,
        follow: str | None = None,
    ) -> None:
        self._serving = Serving(areas)
        self._minimum_stay, self._grace, self._follow = minimum_stay, grace, follow
        self._visits, self._visitors = Places(), set[str]()
        self._began: dict[str, float] = {}  # visits that have not made a member yet
        self._missed: dict[str, float] = {}  # visitors out of sight, since when

    def update(
        self, time: float, departed: Iterable[str], arrived: Collection[str], positions: Positions
    ) -> tuple[set[str], set[str]]:
        """Take in one step.

        A vehicle without a position arrived, is out of reach, or is being teleported by SUMO.
        """
        seen = self._serving.update(positions)
        served = here = set(seen.vehicles)
        if self._follow is not None:
            seen = _of_area(seen, self._follow)
            here = set(seen.vehicles)
        hidden = self._visitors - here
        gone = {name for name in hidden if name in served or name in arrived} if hidden else hidden
        self._missed = {name: self._missed.get(name, time) for name in hidden - gone}
        over = gone | {
            name
            for name, since in self._missed.items()
            if time - since >= self._grace - _TOLERANCE
        }
        kept = {name: self._visits[name] for name in hidden - over}
        self._missed = {name: self._missed[name] for name in kept}
        leaves = over - self._began.keys()
        for name in over - leaves:
            del self._began[name]
        self._began.update(dict.fromkeys(here - self._visitors, time))
        joins = {
            name
            for name, since in self._began.items()
            if name in here and time - since >= self._minimum_stay - _TOLERANCE
        }
        for name in joins:
            del self._began[name]
        self._visits = Places.of({**kept, **seen}) if kept else seen
        self._visitors = here | kept.keys()
        return leaves, joins

    def places(self) -> Places:
        """Return where every member is, or was last seen."""
        if not self._began:
            return self._visits
        return _among(self._visits, [name not in self._began for name in self._visits])


def _of_area(places: Places, rsu: str) -> Places:
    return _among(places, (places.rsu == places.rsus.index(rsu)).tolist() if places else [])


def _among(places: Places, chosen: Sequence[bool]) -> Places:
    at = np.flatnonzero(chosen)
    vehicles = list(compress(places.vehicles, chosen))
    return Places(vehicles, places.rsu[at], places.metres[at], places.rsus)


class Serving:
    """Which area serves each vehicle: the nearest that covers it, among equals the first by name.

    A vehicle is handed over when its area covers it no more, or when its distance is more than
    ``1 + hysteresis`` times that to another that covers it.

    Parameters
    ----------
    areas : sequence of Circle
    """

    def __init__(self, areas: Sequence[Circle]) -> None:
        areas = sorted(areas, key=lambda area: area.name)
        self._names = [area.name for area in areas]
        self._x, self._y, self._radius, self._reach = np.array(
            [(area.x, area.y, area.radius, area.reach) for area in areas]
        ).T
        self._numbers = np.arange(len(areas))
        self._factor = 1 + areas[0].hysteresis
        self._served: dict[str, int] = {}

    def update(self, positions: Positions) -> Places:
        """Return the places of the vehicles that are covered now."""
        if not positions:
            self._served = {}
            return Places()
        vehicles = sorted(positions)
        flat = chain.from_iterable(map(positions.__getitem__, vehicles))
        x, y = np.fromiter(flat, float, 2 * len(vehicles)).reshape(-1, 2, 1).swapaxes(0, 1)
        distance = np.hypot(x - self._x, y - self._y)
        before = np.fromiter(map(self._served.get, vehicles, repeat(-1)), int, len(vehicles))
        own = before[:, None] == self._numbers
        covered = distance <= np.where(own, self._reach, self._radius)
        # A served vehicle changes only to what is nearer by more than the hysteresis.
        weighed = np.where(own, distance / self._factor, distance)
        area = np.where(covered, weighed, np.inf).argmin(axis=1)
        inside = covered.any(axis=1)
        at = np.flatnonzero(inside)
        area = area[at]
        names = list(compress(vehicles, inside.tolist()))
        self._served = dict(zip(names, area.tolist(), strict=True))
        return Places(names, area, np.round(distance[at, area], 2), self._names)


def as_events(
    time: float, leaves: set[str], joins: set[str], rsu: str = ""
) -> tuple[MobilityEvent, ...]:
    """Order the changes of one step: leaves before joins, each by vehicle id."""
    if not leaves and not joins:
        return ()
    return (
        *(MobilityEvent(time, vehicle, "leave", rsu) for vehicle in sorted(leaves)),
        *(MobilityEvent(time, vehicle, "join", rsu) for vehicle in sorted(joins)),
    )
