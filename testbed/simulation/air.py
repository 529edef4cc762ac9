"""The air between vehicles and roadside units: who is in reach, and at what rate.

Under `network` membership no distance is known: everybody has the preset's peak rate, alone.
Otherwise each coverage area has one cell for the way up and one for the way down, shared by
the vehicles in it, and a vehicle's rate follows its distance.

A vehicle that has left keeps the place where it was last seen, as though it stood still there.
"""

from collections.abc import Iterable, Mapping
from functools import cache, partial
from typing import Literal

import simpy

from testbed.config.schema import Experiment
from testbed.mobility import MobilityEvent, Place, Places
from testbed.network import Cell, Radio, draw
from testbed.network.sharing import Policy, alone
from testbed.simulation.clock import duration
from testbed.streams import Streams

Way = Literal["down", "up"]
_BITS = 8


class Air:
    """Cells, and the places and rates of vehicles.

    Parameters
    ----------
    env : Environment
    experiment : Experiment
    streams : Streams
        Of the run; shadowing is drawn for each area, vehicle and visit by name.

    Parameters
    ----------
    env : Environment
    experiment : Experiment
    streams : Streams
    located : bool
        Members are seen at distances from roadside units.

    Attributes
    ----------
    shared : bool
        Transfers share cells, and their rates follow the vehicles.
    latency : int
        Microseconds until the first bit of a connection arrives.
    """

    def __init__(
        self, env: simpy.Environment, experiment: Experiment, streams: Streams, located: bool
    ) -> None:
        config = experiment.network
        self._env = env
        self._draw = cache(partial(draw, streams))
        self.shared = located
        self._policy: Policy = config.sharing if self.shared else "none"
        self._slots = config.slots
        self._radios: Mapping[Way, Radio] = {
            "up": Radio.from_config(config),
            "down": Radio.from_config(config, downlink=True),
        }
        self._cells: dict[tuple[str, Way], Cell] = {}
        self._places = Places()
        self._gone: dict[str, Place | None] = {}
        self._visits: dict[str, int] = {}
        self._over = False
        self.latency = duration(config.latency_ms / 1e3)

    def follow(self, events: Iterable[MobilityEvent], distances: Places) -> None:
        """Take in a step: each join begins a visit, and members are where they were seen."""
        if not self.shared:
            return
        for event in events:
            if event.kind == "join":
                self._visits[event.vehicle] = self._visits.get(event.vehicle, 0) + 1
                self._gone.pop(event.vehicle, None)
            else:
                self._gone[event.vehicle] = self._places.get(event.vehicle)
        self._places = distances

    def end(self) -> None:
        """Say that nobody will move any more."""
        self._over = True

    def stuck(self, vehicle: str, way: Way) -> bool:
        """Whether nothing gets through and that will not change."""
        return (self._over or vehicle in self._gone) and self.rate(vehicle, way) == 0

    def cell(self, vehicle: str, way: Way) -> Cell:
        """Return the cell a vehicle sends or receives in."""
        place = self._place(vehicle)
        key = place.rsu if place else "", way
        if key not in self._cells:
            self._cells[key] = Cell(self._env, self._policy, self._slots)
        return self._cells[key]

    def rate(self, vehicle: str, way: Way) -> float:
        """Return the bits per second a vehicle would have alone; 0 where nothing gets through."""
        radio = self._radios[way]
        place = self._place(vehicle) if self.shared else None
        if place is None:
            return radio.peak
        visit = self._visits.get(vehicle, 0)
        return radio.rate(place.metres, self._draw(place.rsu, vehicle, visit))

    def crossing(self, vehicle: str, way: Way, bits: int) -> int:
        """Return the microseconds of a transfer, where vehicles share nothing."""
        return self.latency + alone(bits, self.rate(vehicle, way)) if bits else 0

    def _place(self, vehicle: str) -> Place | None:
        return self._gone[vehicle] if vehicle in self._gone else self._places.get(vehicle)

    def broadcast(self, vehicles: Iterable[str], size: int) -> int:
        """Return the microseconds in which `size` bytes reach everybody.

        Under `network` membership each has its own link.  Otherwise every area sends once, all
        at the same time, at the rate of its worst vehicle that can receive anything at all;
        distances are those at the start.
        """
        present = (vehicle for vehicle in vehicles if vehicle not in self._gone)
        rates = [rate for vehicle in present if (rate := self.rate(vehicle, "down")) > 0]
        if not rates:
            return 0
        return self.latency + duration(size * _BITS / min(rates))
