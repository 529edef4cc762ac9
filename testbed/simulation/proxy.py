"""The roadside unit as a proxy: it files the departure of vehicles that have fallen silent."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import simpy

from testbed.mobility import MobilityEvent
from testbed.simulation.clock import Moment, duration, micros, seconds
from testbed.simulation.jobs import Jobs


@dataclass
class Proxy:
    """Holds departures back until a vehicle was silent for long enough.

    A vehicle that is back before that never left; its job has rested and goes on.

    Attributes
    ----------
    env : Environment
    jobs : Jobs
    patience_s : float
        Seconds of silence.
    file : callable
        Receives the departure, at the time of its filing.
    """

    env: simpy.Environment
    jobs: Jobs
    patience_s: float
    file: Callable[[Sequence[MobilityEvent]], None]
    _waiting: dict[str, simpy.Process] = field(default_factory=dict)

    def hear(self, events: Sequence[MobilityEvent]) -> list[MobilityEvent]:
        """Take in membership events; return those that hold at once."""
        known = []
        for event in events:
            if event.kind == "leave":
                self.jobs.silent(event.vehicle)
                self._waiting[event.vehicle] = self.env.process(self._wait(event))
            elif self._waiting.pop(event.vehicle, None):
                self.jobs.back(event.vehicle)
            else:
                known.append(event)
        return known

    def settled(self) -> simpy.Event:
        """Return the event that nobody is waited for any more."""
        return self.env.all_of(list(self._waiting.values()))

    def _wait(self, event: MobilityEvent) -> Generator[simpy.Event, Any, None]:
        filed = micros(event.time) + duration(self.patience_s)
        yield Moment(self.env, filed)
        if self._waiting.get(event.vehicle) is self.env.active_process:
            del self._waiting[event.vehicle]
            self.jobs.left(event.vehicle)
            self.file([replace(event, time=seconds(filed))])
