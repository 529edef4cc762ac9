"""Who is a member: two rules that turn what SUMO reports into joins and leaves.

Both rules are pure bookkeeping over what one step reports, so that they are the same
for every back end and can be tested on invented vehicles.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import hypot
from typing import Protocol

from testbed.mobility.events import MobilityEvent

Positions = Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Circle:
    """A roadside unit's coverage.

    Attributes
    ----------
    x, y : float
        Position in the network's coordinates, metres.
    radius : float
        A vehicle joins at this distance or nearer, metres.
    hysteresis : float
        A member stays until it is beyond ``(1 + hysteresis) radius``, so that a vehicle
        that stands on the border does not join and leave again and again.
    """

    x: float
    y: float
    radius: float
    hysteresis: float

    @property
    def reach(self) -> float:
        """Distance beyond which a member leaves, metres."""
        return self.radius * (1 + self.hysteresis)


class Rule(Protocol):
    """Membership after each step."""

    def update(
        self, departed: Iterable[str], arrived: Iterable[str], positions: Positions
    ) -> tuple[set[str], set[str]]:
        """Take in one step; return the vehicles that leave and those that join."""


class NetworkRule:
    """A member is whoever drives in the network: departed, not yet arrived."""

    def __init__(self) -> None:
        self._members: set[str] = set()

    def update(
        self, departed: Iterable[str], arrived: Iterable[str], positions: Positions
    ) -> tuple[set[str], set[str]]:
        """Take in one step; a vehicle that departs and arrives in it is not mentioned."""
        gone = set(arrived)
        leaves = gone & self._members
        joins = set(departed) - (gone - leaves)
        self._members = (self._members - leaves) | joins
        return leaves, joins


class RsuRule:
    """A member is whoever is within reach of the roadside unit, with hysteresis."""

    def __init__(self, circle: Circle) -> None:
        self._circle = circle
        self._members: set[str] = set()

    def update(
        self, departed: Iterable[str], arrived: Iterable[str], positions: Positions
    ) -> tuple[set[str], set[str]]:
        """Take in one step; a member without a position has left.

        Such a vehicle arrived, is out of reach, or is being teleported by SUMO.
        """
        members, circle = self._members, self._circle
        centre_x, centre_y, near, far = circle.x, circle.y, circle.radius, circle.reach
        inside = {
            vehicle
            for vehicle, (x, y) in positions.items()
            if hypot(x - centre_x, y - centre_y) <= (far if vehicle in members else near)
        }
        self._members = inside
        return members - inside, inside - members


def as_events(time: float, leaves: set[str], joins: set[str]) -> tuple[MobilityEvent, ...]:
    """Order the changes of one step: leaves before joins, each by vehicle id."""
    if not leaves and not joins:
        return ()
    return (
        *(MobilityEvent(time, vehicle, "leave") for vehicle in sorted(leaves)),
        *(MobilityEvent(time, vehicle, "join") for vehicle in sorted(joins)),
    )
