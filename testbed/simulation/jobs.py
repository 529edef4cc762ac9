"""The jobs that run now, and what the going of their vehicles does to them."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import simpy

from testbed.config.schema import WorkConfig
from testbed.editing.clients import Client
from testbed.ledger.rows import Phase
from testbed.simulation.air import Air
from testbed.simulation.billing import Step
from testbed.simulation.vehicle import Cut, Job, Progress, Stage, undisturbed

Events = Generator[simpy.Event, Any, Any]


@dataclass(frozen=True)
class Assignment:
    """What one client is asked for.

    Attributes
    ----------
    client : Client
    stages : tuple of Stage
    reused : bool
        The same contribution was made before in this run.
    useless : str or None
        The phase of which nothing usable comes.
    repeatable : bool
        Asked again, the client would do exactly the same, so that what it has done keeps.
    round : int
        Of training within the request; 0 where a method has none.
    """

    client: Client
    stages: tuple[Stage, ...]
    reused: bool = False
    useless: Phase | None = None
    repeatable: bool = True
    round: int = 0


@dataclass
class Jobs:
    """Runs the jobs of clients and hears of their vehicles.

    Attributes
    ----------
    env : Environment
    air : Air
    work : WorkConfig
    holds : callable
        Whether a client is in the federation at this moment, whatever the coordinator knows.
    asked, lost : int
        Clients asked for something, and those of them who left before they delivered.
    """

    env: simpy.Environment
    air: Air
    work: WorkConfig
    holds: Callable[[Client], bool]
    asked: int = 0
    lost: int = 0
    _running: dict[str, Job] = field(default_factory=dict)
    _silent: set[str] = field(default_factory=set)
    _kept: dict[Client, Progress] = field(default_factory=dict)
    _wasted: Progress = field(default_factory=Progress)

    @property
    def wasted(self) -> Progress:
        """Microseconds and bytes spent on what was never delivered."""
        spent = [self._wasted, *self._kept.values()]
        return Progress(
            micros=sum(each.micros for each in spent), bytes=sum(each.bytes for each in spent)
        )

    def work_on(self, assignments: Sequence[Assignment], steps: list[Step]) -> Events:
        """Have clients work side by side; return in which phase some left, by client."""
        self.asked += len(assignments)
        if self.work.departure == "finish" and not self.air.shared:
            yield from self._undisturbed(assignments, steps)
            return {}
        jobs = {each.client: self._start(each, steps) for each in assignments}
        yield self.env.all_of([job.process for job in jobs.values()])
        self._running.clear()
        lost: dict[Client, Phase] = {}
        for each in assignments:
            job = jobs[each.client]
            if not job.process.value:
                lost[each.client] = job.phase
                self._keep(each, job.progress)
        self.lost += len(lost)
        return lost

    def _undisturbed(self, assignments: Sequence[Assignment], steps: list[Step]) -> Events:
        """Have clients work that nothing can interrupt: what they do is known beforehand."""
        latest = now = int(self.env.now)
        for each in assignments:
            done = undisturbed(
                self.air, each.client.vehicle, each.stages, now,
                reused=each.reused, useless=each.useless, turn=each.round,
            )  # fmt: skip
            steps.extend(done)
            latest = max(latest, done[-1].end)
        yield self.env.timeout(latest - now)

    def _start(self, wanted: Assignment, steps: list[Step]) -> Job:
        client = wanted.client
        job = Job(
            self.env,
            self.air,
            client.vehicle,
            wanted.stages,
            steps,
            self._kept.pop(client, Progress()),
            reused=wanted.reused,
            useless=wanted.useless,
            turn=wanted.round,
            silent=client.vehicle in self._silent,
        )
        self._running[client.vehicle] = job
        if self.work.departure != "finish" and not self.holds(client):
            job.cut(Cut.LOST)  # it left while it was not known to be needed
        return job

    def _keep(self, wanted: Assignment, progress: Progress) -> None:
        if self.work.departure == "resume_on_return" and wanted.repeatable:
            self._kept[wanted.client] = progress
        else:
            self._wasted.micros += progress.micros
            self._wasted.bytes += progress.bytes

    def left(self, vehicle: str) -> None:
        """Hear that a vehicle has left; its job ends unless such jobs are finished."""
        self._silent.discard(vehicle)
        if self.work.departure != "finish":
            self._cut(vehicle, Cut.LOST)

    def silent(self, vehicle: str) -> None:
        """Hear nothing of a vehicle any more; its job rests."""
        self._silent.add(vehicle)
        self._cut(vehicle, Cut.SILENT)

    def back(self, vehicle: str) -> None:
        """Hear of a silent vehicle again; its job goes on."""
        self._silent.discard(vehicle)
        self._cut(vehicle, Cut.BACK)

    def moved(self) -> None:
        """Adapt all transfers to where the vehicles are now."""
        for job in self._running.values():
            job.moved()

    def _cut(self, vehicle: str, cause: Cut) -> None:
        if vehicle in self._running:
            self._running[vehicle].cut(cause)
