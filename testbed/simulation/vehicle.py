"""A vehicle's job as a SimPy process: download, compute, upload, and what may interrupt it.

A job is a list of stages, each an amount of bits or of microseconds.  It keeps count of what
is done of them, so that it can be cut anywhere: by a handover, by a silence, or for good.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import simpy

from testbed.ledger.rows import Phase, Result
from testbed.network import Cell, Flow
from testbed.simulation.air import Air, Way
from testbed.simulation.billing import Step

Events = Generator[simpy.Event, Any, Any]
_BITS = 8


@dataclass(frozen=True, slots=True)
class Stage:
    """One phase of a job.

    Attributes
    ----------
    phase : str
    amount : int
        Bits of a transfer, else microseconds.
    way : {"down", "up"} or None
        Of a transfer.
    measured : float or None
        Wall-clock seconds of the real computation.
    """

    phase: Phase
    amount: int
    way: Way | None = None
    measured: float | None = None


@dataclass(slots=True)
class Progress:
    """How far a job is: stages finished, and what is done of the next one.

    Attributes
    ----------
    stage, done : int
    micros, bytes : int
        Spent and moved so far, on all visits together.
    """

    stage: int = 0
    done: int = 0
    micros: int = 0
    bytes: int = 0


class Cut(Enum):
    """What may happen to a job from outside."""

    LOST = "it ends here"
    SILENT = "the vehicle is out of reach, perhaps for a while"
    BACK = "the vehicle is in reach again"
    MOVED = "the vehicle is in another cell"


class Job:
    """One vehicle's work on one order.

    Parameters
    ----------
    env : Environment
    air : Air
    vehicle : str
    stages : sequence of Stage
    steps : list of Step
        Receives what was done.
    progress : Progress
        Where to begin; kept up to date.
    reused : bool
        The same contribution was made before in this run.
    useless : str or None
        The phase of which nothing usable comes.  It is billed, and nothing follows it.
    turn : int
        The training round; 0 where a method has none.
    silent : bool
        The vehicle is out of reach now.

    Attributes
    ----------
    process : Process
        Its value is False if the vehicle left before it delivered.
    """

    def __init__(
        self,
        env: simpy.Environment,
        air: Air,
        vehicle: str,
        stages: Sequence[Stage],
        steps: list[Step],
        progress: Progress,
        *,
        reused: bool = False,
        useless: Phase | None = None,
        turn: int = 0,
        silent: bool = False,
    ) -> None:
        self.env, self.air, self.vehicle = env, air, vehicle
        self.stages, self.steps, self.progress = stages, steps, progress
        self.reused, self.useless, self.turn = reused, useless, turn
        self._silent = silent
        self._link: tuple[Cell, Flow, Way] | None = None
        self.process = env.process(self._run())

    @property
    def phase(self) -> Phase:
        """The phase it is in, or ended in."""
        return self.stages[min(self.progress.stage, len(self.stages) - 1)].phase

    def cut(self, cause: Cut) -> None:
        """Interrupt it; nothing happens to a job that is over."""
        if self.process.is_alive:
            self.process.interrupt(cause)

    def moved(self) -> None:
        """Adapt a transfer to the place where the vehicle is now."""
        if self._link is None:
            return
        cell, flow, way = self._link
        if self.air.stuck(self.vehicle, way):
            self.cut(Cut.LOST)
        elif self.air.cell(self.vehicle, way) is cell:
            cell.rate(flow, self.air.rate(self.vehicle, way))
        else:
            self.cut(Cut.MOVED)

    def _run(self) -> Events:
        while self.progress.stage < len(self.stages):
            stage = self.stages[self.progress.stage]
            if not (yield from self._do(stage)):
                return False
            if stage.phase == self.useless:
                return True
            self.progress.stage += 1
            self.progress.done = 0
        return True

    def _do(self, stage: Stage) -> Events:
        """Do what is left of a stage; False if it was lost.  Each silence makes a new row."""
        pieces: list[Step] = []
        whole = lost = False
        while not whole and not lost:
            if self._silent:
                lost = yield from self._listen()
                continue
            start, before = int(self.env.now), self.progress.done
            try:
                if stage.way:
                    yield from self._transfer(stage.way, stage.amount)
                else:
                    yield from self._compute(stage.amount)
                whole = True
            except simpy.Interrupt as interrupt:
                lost = interrupt.cause is Cut.LOST
                self._silent = interrupt.cause is Cut.SILENT
            pieces.append(self._piece(stage, start, before))
        if not pieces:  # given up before it was heard of
            pieces.append(self._piece(stage, int(self.env.now), self.progress.done))
        result = "lost" if lost else _result(stage, self.useless)
        if result != "ok":
            pieces = [replace(piece, result=result) for piece in pieces]
        self.steps.extend(pieces)
        return not lost

    def _listen(self) -> Events:
        """Wait for a silent vehicle; True if it is given up."""
        try:
            yield self.env.event()
        except simpy.Interrupt as interrupt:
            self._silent = interrupt.cause is not Cut.BACK
            return interrupt.cause is Cut.LOST

    def _compute(self, amount: int) -> Events:
        start, before = int(self.env.now), self.progress.done
        try:
            yield self.env.timeout(amount - before)
        finally:
            self.progress.done = before + int(self.env.now) - start

    def _transfer(self, way: Way, amount: int) -> Events:
        """Connect and send what is left, in as many cells as the vehicle comes through."""
        while self.progress.done < amount:
            try:
                yield self.env.timeout(self.air.latency)
                if self.air.stuck(self.vehicle, way):
                    raise simpy.Interrupt(Cut.LOST)
                cell = self.air.cell(self.vehicle, way)
                flow = cell.send(amount - self.progress.done, self.air.rate(self.vehicle, way))
                self._link = cell, flow, way
                yield flow.done
                self.progress.done = amount
            except simpy.Interrupt as interrupt:
                if self._link is not None:
                    cell, flow, _ = self._link
                    self.progress.done += cell.cancel(flow)
                if interrupt.cause is not Cut.MOVED:
                    raise
            finally:
                self._link = None

    def _piece(self, stage: Stage, start: int, before: int) -> Step:
        """Return the row of what was done of a stage since `start`."""
        progress, end = self.progress, int(self.env.now)
        moved = progress.done // _BITS - before // _BITS if stage.way else 0
        share = (progress.done - before) / stage.amount if stage.amount else 1.0
        progress.micros += end - start
        progress.bytes += moved
        return Step(
            self.vehicle,
            stage.phase,
            start,
            end,
            network=stage.way is not None,
            down=moved if stage.way == "down" else 0,
            up=moved if stage.way == "up" else 0,
            measured=None if stage.measured is None else stage.measured * share,
            reused=self.reused and stage.way != "down",
            round=self.turn,
        )


def undisturbed(
    air: Air,
    vehicle: str,
    stages: Sequence[Stage],
    start: int,
    *,
    reused: bool = False,
    useless: Phase | None = None,
    turn: int = 0,
) -> list[Step]:
    """Return the steps of a `Job` that nothing can interrupt, where transfers share nothing.

    Parameters are those of a `Job`; `start` is in microseconds.
    """
    steps = []
    for stage in stages:
        way = stage.way
        end = start + (air.crossing(vehicle, way, stage.amount) if way else stage.amount)
        steps.append(
            Step(
                vehicle,
                stage.phase,
                start,
                end,
                network=way is not None,
                down=stage.amount // _BITS if way == "down" else 0,
                up=stage.amount // _BITS if way == "up" else 0,
                measured=stage.measured,
                reused=reused and way != "down",
                result=_result(stage, useless),
                round=turn,
            )
        )
        if stage.phase == useless:
            break
        start = end
    return steps


def _result(stage: Stage, useless: Phase | None) -> Result:
    return "unusable" if stage.phase == useless else "ok"
