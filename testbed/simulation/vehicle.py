"""A vehicle as a SimPy process: download, compute, upload.

A vehicle that has asked to leave finishes what it was asked before: the coordinator
handles its request after the work in hand.
"""

from collections.abc import Generator, Sequence
from typing import Any

import simpy

from testbed.ledger.rows import Phase, Result
from testbed.simulation.billing import Step
from testbed.simulation.costs import Costs

Process = Generator[simpy.Event, Any, None]


def transfer(
    env: simpy.Environment,
    costs: Costs,
    vehicle: str,
    phase: Phase,
    steps: list[Step],
    *,
    down: int = 0,
    up: int = 0,
    reused: bool = False,
    result: Result = "ok",
) -> Process:
    """Carry one message over the link and bill it."""
    start = int(env.now)
    yield env.timeout(costs.transfer(down + up))
    end = int(env.now)
    steps.append(Step(vehicle, phase, start, end, True, down, up, reused=reused, result=result))


def compute(
    env: simpy.Environment,
    vehicle: str,
    phase: Phase,
    steps: list[Step],
    micros: int,
    measured: float,
    reused: bool = False,
    result: Result = "ok",
) -> Process:
    """Work for `micros` and bill it."""
    start = int(env.now)
    yield env.timeout(micros)
    end = int(env.now)
    steps.append(Step(vehicle, phase, start, end, measured=measured, reused=reused, result=result))


def serve(
    env: simpy.Environment,
    costs: Costs,
    vehicle: str,
    work: Sequence[tuple[Phase, int, float]],
    upload: int,
    steps: list[Step],
    reused: bool,
    useless: Phase | None = None,
) -> Process:
    """Download a model, do `work`, upload the result.

    Parameters
    ----------
    env : Environment
    costs : Costs
    vehicle : str
    work : sequence of (phase, microseconds, measured seconds)
    upload : int
        Bytes of the result.
    steps : list of Step
        Receives what was done.
    reused : bool
        The same contribution was made before in this run.
    useless : str or None
        The phase of which nothing usable came.  It is billed, and nothing follows it.
    """
    yield from transfer(env, costs, vehicle, "download", steps, down=costs.model_bytes)
    for phase, micros, measured in work:
        result = _result(phase, useless)
        yield from compute(env, vehicle, phase, steps, micros, measured, reused, result)
        if phase == useless:
            return
    result = _result("upload", useless)
    yield from transfer(
        env, costs, vehicle, "upload", steps, up=upload, reused=reused, result=result
    )


def _result(phase: Phase, useless: Phase | None) -> Result:
    return "unusable" if phase == useless else "ok"
