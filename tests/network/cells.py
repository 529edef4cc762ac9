"""Scripts of transfers, played by a cell and by a slow, obvious model of it."""

import math
from dataclasses import dataclass, field
from fractions import Fraction

import simpy
from simpy.events import URGENT

from testbed.network import Cell, Flow
from testbed.network.sharing import Policy

MICROS = 1_000_000


@dataclass(frozen=True)
class Act:
    """At `at` microseconds: send `bits`, or change (`rate`), or end (None) flow `flow`."""

    at: int
    flow: int
    rate: int | None
    bits: int | None = None


@dataclass
class Played:
    """When flows ended, and the bits sent by those that were cancelled."""

    ends: dict[int, int] = field(default_factory=dict)
    cancelled: dict[int, int] = field(default_factory=dict)


def play(acts: list[Act], policy: Policy, slots: int = 1) -> Played:
    """Play by the cell itself; acts come before what ends in the same microsecond."""
    env = simpy.Environment()
    cell = Cell(env, policy, slots)
    flows: dict[int, Flow] = {}
    played = Played()

    def note(number: int) -> None:
        if number not in played.cancelled:
            played.ends[number] = int(env.now)

    def do(act: Act) -> None:
        if act.bits is not None:
            assert act.rate is not None
            flow = flows[act.flow] = cell.send(act.bits, act.rate)
            flow.done.callbacks.append(lambda event: note(act.flow))
        elif act.rate is None:
            if act.flow not in played.cancelled and act.flow not in played.ends:
                over = flows[act.flow].done.triggered
                sent = cell.cancel(flows[act.flow])
                if not over:
                    played.cancelled[act.flow] = sent
        else:
            cell.rate(flows[act.flow], act.rate)

    for act in acts:
        event = simpy.Event(env)
        event._ok, event._value = True, None
        event.callbacks.append(lambda event, act=act: do(act))
        env.schedule(event, priority=URGENT, delay=act.at)
    env.run()
    return played


def reckon(acts: list[Act], policy: Policy, slots: int = 1) -> Played:
    """Work the same out microsecond by microsecond of interest, with fractions."""
    rates: dict[int, int] = {}
    left: dict[int, Fraction] = {}
    bits: dict[int, int] = {}
    played = Played()
    now, todo = 0, sorted(acts, key=lambda act: act.at)

    def shares() -> dict[int, Fraction]:
        able = [number for number in left if rates[number]]
        if policy == "slots":
            able = able[:slots]
        parts = len(able) if policy == "fair" else 1
        return {number: Fraction(rates[number], parts * MICROS) for number in able}

    while True:
        share = shares()
        due = min((now + math.ceil(left[n] / share[n]) for n in share), default=None)
        at = todo[0].at if todo else None
        if at is None and due is None:
            return played
        then = min(moment for moment in (at, due) if moment is not None)
        for number, rate in share.items():
            left[number] -= rate * (then - now)
        now = then
        acting = [act for act in todo if act.at == now]
        todo = [act for act in todo if act.at > now]
        gone = {act.flow for act in acting if act.bits is None and act.rate is None}
        for number in [n for n in left if left[n] <= 0 and n not in gone]:
            played.ends[number] = now
            del left[number]
        for act in acting:
            if act.bits is not None:
                rates[act.flow], bits[act.flow] = act.rate or 0, act.bits
                left[act.flow] = Fraction(act.bits)
            elif act.flow not in left:
                continue
            elif act.rate is None:
                played.cancelled[act.flow] = math.floor(
                    bits[act.flow] - max(left.pop(act.flow), 0)
                )
            else:
                rates[act.flow] = act.rate
