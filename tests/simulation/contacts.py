"""Traffic with places, for worlds in which contact matters."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from worlds import Ran, at, executor_of, quick

from testbed.config import Experiment
from testbed.ledger import LedgerRow
from testbed.mobility import MobilityEvent, Place, Places, Step
from testbed.simulation.world import World


def seen(text: str) -> dict[float, dict[str, Place]]:
    """Read ``"1 a@east:50 b@east:60; 2 a@west:9"``: where vehicles are at which time."""
    places: dict[float, dict[str, Place]] = {}
    for moment in filter(str.strip, text.split(";")):
        time, *sightings = moment.split()
        for sighting in sightings:
            vehicle, _, where = sighting.partition("@")
            rsu, _, metres = where.partition(":")
            places.setdefault(float(time), {})[vehicle] = Place(rsu, float(metres))
    return places


@dataclass
class Scripted:
    """Events and places as a mobility source; members stay where they were last seen."""

    events: Sequence[MobilityEvent]
    places: dict[float, dict[str, Place]] = field(default_factory=dict)
    warmup: float = 10.0
    provenance: dict[str, Any] = field(default_factory=dict)

    def counts(self) -> dict[str, int]:
        return {}

    def steps(self) -> Iterator[Step]:
        times = {event.time for event in self.events} | self.places.keys()
        members: set[str] = set()
        known: dict[str, Place] = {}
        for time in sorted(times):
            events = tuple(event for event in self.events if event.time == time)
            known |= self.places.get(time, {})
            for event in events:
                (members.add if event.kind == "join" else members.remove)(event.vehicle)
            yield Step(
                time, events, Places.of({name: known[name] for name in members & known.keys()})
            )


def play(
    wanted: Experiment, text: str, where: str = "", method: str = "fsosa", seed: int = 0
) -> Ran:
    """Run one method on events and places written by hand."""
    task, executor = executor_of(wanted, seed)
    world = World(wanted, method, task, executor, Scripted(at(text), seen(where)))
    return Ran(wanted, world, world.run(), ())


def slow(**sections: Any) -> Experiment:
    """Four vehicles, three of them sampled, whose every phase takes some seconds."""
    base: dict[str, dict[str, Any]] = {
        "clients": {"initial": 4},
        "network": {"rate_mbps": 1, "latency_ms": 0},
        "device": {"peak_tflops": 1e-3},
        "editing": {"requests": 5, "rho": 0.75},
    }
    return quick(
        **{
            name: {**base.get(name, {}), **sections.get(name, {})}
            for name in base.keys() | sections.keys()
        }
    )


def of(ran: Ran, vehicle: str, request: int = 0) -> list[LedgerRow]:
    """Return what a vehicle was billed for in one request."""
    return [row for row in ran.outcome.ledger if (row.vehicle, row.request) == (vehicle, request)]


def member(ran: Ran) -> str:
    """Return a vehicle that was asked for the initial model."""
    return next(row.vehicle for row in ran.outcome.ledger if row.phase == "upload")
