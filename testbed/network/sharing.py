"""Transfers that share a cell, on a clock of whole microseconds.

Everything is counted in integers, so what is sent is exactly the integral of the shared rate,
and a transfer ends in the first microsecond by which its last bit is through.

Under fair sharing each of n flows gets the n-th part of the air's time.  A cell therefore
keeps a clock of its own that runs n times slower: on it every flow sends at its full rate, and
a start, an end or a move leaves all other flows' ends where they were.
"""

import heapq
import math
from itertools import islice
from typing import Literal

import simpy

Policy = Literal["fair", "slots", "none"]
_MICROS = 1_000_000
_SLACK = 64


class Flow:
    """One transfer.  Its state belongs to the cell.

    Attributes
    ----------
    bits : int
    done : simpy.Event
        Succeeds, with the value None, when the last bit is sent.
    """

    __slots__ = ("bits", "done", "left", "number", "rate", "sent", "since", "turn")

    def __init__(self, env: simpy.Environment, bits: int, number: int) -> None:
        self.bits, self.number = bits, number
        self.done = env.event()
        self.sent = 0  # whole bits, once it is over
        self.rate = 0  # whole bits per second
        self.left = 0  # bits x 1e6 x the cell's unit, as of `since`
        self.since = 0  # on the cell's clock
        self.turn = 0  # which of its entries among the ends is valid


class Cell:
    """The air of one roadside unit in one direction.

    A flow without any rate stalls until its rate rises, and takes nothing from the others.

    Parameters
    ----------
    env : simpy.Environment
        `env.now` is in whole microseconds.
    policy : {"fair", "slots", "none"}
        Of n flows each has the n-th part of its rate (`fair`); the `slots` flows that have
        waited longest send at their full rate; or every flow has its full rate (`none`).
    slots : int
        For the policy `slots`.
    """

    def __init__(self, env: simpy.Environment, policy: Policy, slots: int = 1) -> None:
        self._env, self._policy, self._slots = env, policy, slots
        self._flows: dict[Flow, None] = {}
        self._running: dict[Flow, None] = {}
        self._ends: list[tuple[int, int, int, Flow]] = []
        self._sent = 0  # flows so far
        self._at = int(env.now)
        self._clock = 0  # in microseconds / _unit
        self._unit = 1  # a multiple of every number of sharers so far
        self._wake: int | None = None

    def send(self, bits: int, rate: float) -> Flow:
        """Begin a transfer at `rate` bits per second, were it alone.

        Rates are rounded to whole bits per second, to no less than 1 unless they are 0.

        Raises
        ------
        ValueError
            For a negative number of bits, or a rate that is negative or no finite number.
        """
        if bits < 0:
            raise ValueError(f"cannot send {bits} bits; give 0 or more")
        whole = _whole(rate)
        self._sent += 1
        flow = Flow(self._env, bits, self._sent)
        if bits == 0:
            flow.done.succeed()
            return flow
        self._move()
        flow.left = bits * _MICROS * self._unit
        flow.rate = whole
        self._flows[flow] = None
        self._settle(flow)
        return flow

    def rate(self, flow: Flow, rate: float) -> None:
        """Give a flow another rate; 0 stalls it.  Nothing happens to one that is over."""
        whole = _whole(rate)
        if flow in self._flows and whole != flow.rate:
            self._move()
            self._finish()
            self._pause(flow)
            flow.rate = whole
            self._settle(flow)

    def cancel(self, flow: Flow) -> int:
        """End a transfer and return the whole bits sent; `done` will not succeed any more."""
        if flow in self._flows:
            self._move()
            self._pause(flow)
            del self._flows[flow]
            flow.sent = flow.bits - max(0, -(-flow.left // (_MICROS * self._unit)))
            self._settle()
        return flow.sent

    @property
    def _sharers(self) -> int:
        return max(1, len(self._running)) if self._policy == "fair" else 1

    def _move(self) -> None:
        """Move the cell's clock to the present."""
        now = int(self._env.now)
        self._clock += (now - self._at) * self._unit // self._sharers  # without remainder
        self._at = now

    def _finish(self) -> None:
        """End the flows whose last bit is through."""
        while (end := self._next()) is not None and end <= self._clock:
            flow = heapq.heappop(self._ends)[-1]
            self._pause(flow)
            del self._flows[flow]
            flow.sent = flow.bits
            flow.done.succeed()

    def _settle(self, touched: Flow | None = None) -> None:
        """Decide who sends from now on, and when to look again."""
        self._finish()
        if self._policy == "slots":
            able = (flow for flow in self._flows if flow.rate)
            turn = dict.fromkeys(islice(able, self._slots))
            for flow in [flow for flow in self._running if flow not in turn]:
                self._pause(flow)
            for flow in turn:
                self._resume(flow)
        elif touched in self._flows and touched.rate:
            self._resume(touched)
        self._refine()
        if (end := self._next()) is not None:
            self._look_at(self._at + -(-(end - self._clock) * self._sharers // self._unit))

    def _pause(self, flow: Flow) -> None:
        """Book what a flow has sent."""
        if flow in self._running:
            del self._running[flow]
            flow.left -= flow.rate * (self._clock - flow.since)
            flow.turn += 1

    def _resume(self, flow: Flow) -> None:
        if flow not in self._running:
            self._running[flow] = None
            flow.since = self._clock
            heapq.heappush(self._ends, _entry(flow))

    def _refine(self) -> None:
        """Make the unit of the clock divisible by the number of sharers."""
        if not self._flows:
            self._clock, self._unit = 0, 1
        factor = math.lcm(self._unit, self._sharers) // self._unit
        if factor > 1:
            self._unit *= factor
            self._clock *= factor
            for flow in self._flows:
                flow.left *= factor
                flow.since *= factor
        if factor > 1 or len(self._ends) > 2 * len(self._running) + _SLACK:
            self._ends = [_entry(flow) for flow in self._running]
            heapq.heapify(self._ends)

    def _next(self) -> int | None:
        """Return when, on the cell's clock, the first of the running flows ends."""
        while self._ends and self._ends[0][2] != self._ends[0][3].turn:
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    def _look_at(self, due: int) -> None:
        # One that comes too early looks again; so most changes need no new one.
        if self._wake is None or due < self._wake:
            self._wake = due
            self._env.timeout(due - self._at, due).callbacks.append(self._look)

    def _look(self, event: simpy.Event) -> None:
        if event.value == self._wake:
            self._wake = None
            self._move()
            self._settle()


def alone(bits: int, rate: float) -> int:
    """Return the microseconds of a transfer that shares its cell with nobody.

    >>> alone(1, 3e6), alone(10, 3e6)
    (1, 4)
    """
    return -(-bits * _MICROS // _whole(rate))


def _entry(flow: Flow) -> tuple[int, int, int, Flow]:
    return flow.since - (-flow.left // flow.rate), flow.number, flow.turn, flow


def _whole(rate: float) -> int:
    if not 0 <= rate < math.inf:
        raise ValueError(f"the rate {rate} bit/s is not possible; give 0 or more")
    return max(1, round(rate)) if rate else 0
