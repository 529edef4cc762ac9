"""Simulated time: whole microseconds.

SimPy adds delays to a floating-point clock, so a step at 0.1 s reached in one stride or in
many would differ in its last bits, and a live run would not equal the replay of its trace.
Integers do not drift.
"""

import math
from typing import Any

import simpy
from simpy.events import URGENT

_PER_SECOND = 1_000_000


def micros(seconds: float) -> int:
    """Return a point in time, given in seconds, to the nearest microsecond."""
    return round(seconds * _PER_SECOND)


def duration(seconds: float) -> int:
    """Return a duration in microseconds, rounded up so that no work takes no time."""
    return math.ceil(round(seconds * _PER_SECOND, 3))


def seconds(micros: int) -> float:
    """Return microseconds as seconds."""
    return micros / _PER_SECOND


class Moment(simpy.Event):
    """An event at an absolute time that comes before everything else at that time.

    Membership changes are seen before the work that ends in the same microsecond, whether
    the clock got there in many steps (live traffic) or in one (a replay).
    """

    def __init__(self, env: simpy.Environment, at: int) -> None:
        super().__init__(env)
        self._ok = True
        self._value: Any = None
        env.schedule(self, priority=URGENT, delay=at - env.now)
