"""Traces from SUMO's floating car data, by the rules that live traffic follows."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from testbed.errors import TraceError
from testbed.mobility.columns import Recorder, Recording
from testbed.mobility.events import Provenance, Step
from testbed.mobility.fcd_files import timesteps
from testbed.mobility.membership import Rule, as_events

_EVEN = 1.5  # a step longer than this many of the shortest is a gap
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Survey:
    """What a first reading of a file finds.

    Attributes
    ----------
    times : sequence of float
    departed, arrived : mapping of float to tuple of str
        The vehicles first seen at a time, and those not seen any more from it on.
    gaps : int
        How often timesteps are missing.
    reappearances : int
        Vehicles that were out of sight in between, as in SUMO's teleports.
    """

    times: Sequence[float]
    departed: dict[float, list[str]]
    arrived: dict[float, list[str]]
    gaps: int
    reappearances: int

    @property
    def step(self) -> float:
        """The shortest time between two timesteps, seconds; 0 with a single one."""
        steps = (round(late - early, 6) for early, late in pairwise(self.times))
        return min(steps, default=0.0)


def import_fcd(
    path: Path, rule: Rule, needs_positions: bool, domain: str = "", bridge: bool = False
) -> tuple[Recording, Provenance]:
    """Turn an FCD file into a trace; times are the file's, SUMO's own stamps.

    Parameters
    ----------
    path : Path
        ``.xml`` or ``.csv``, either also ``.gz``, or ``.parquet``.
    rule : Rule
        Who is a member; a fresh one.
    needs_positions : bool
        Whether the rule looks at positions, for which the file is read a second time.
    domain : str
        Coverage area that the events name.
    bridge : bool
        Keep everyone where they were while timesteps are missing; else gaps are refused.

    Returns
    -------
    recording : Recording
        Ends one step after the last timestep.
    facts : mapping
        ``begin``, ``step_length``, and what was repaired, for the trace's header.

    Raises
    ------
    TraceError
        If the file is malformed, empty, or has a gap in time.

    Notes
    -----
    A vehicle departs when it is first seen and arrives one step after it was last seen, so
    that one that SUMO teleports stays in the network meanwhile; vehicles of the last timestep
    have not arrived.
    """
    survey = _survey(path, bridge)
    recorder = Recorder()

    def take(time: float, positions: dict[str, tuple[float, float]]) -> None:
        departed, arrived = survey.departed.get(time, []), survey.arrived.get(time, [])
        leaves, joins = rule.update(time, departed, arrived, positions)
        recorder.add(Step(time, as_events(time, leaves, joins, domain), rule.places()))

    if needs_positions:
        for step in timesteps(path):
            take(step.time, step.positions)
    else:
        for time in survey.times:
            take(time, {})
    return Recording(recorder.columns(), round(survey.times[-1] + survey.step, 6)), {
        "begin": survey.times[0],
        # A reader takes it that members are seen once in so many seconds.
        "step_length": None if survey.gaps else survey.step,
        "timesteps": len(survey.times),
        "gaps_bridged": survey.gaps,
        "reappearances": survey.reappearances,
    }


def _survey(path: Path, bridge: bool) -> Survey:
    times: list[float] = []
    wheres: list[str] = []
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    seen = Counter[str]()
    for index, step in enumerate(timesteps(path)):
        times.append(step.time)
        wheres.append(step.where)
        for vehicle in step.positions:
            first.setdefault(vehicle, index)
            last[vehicle] = index
        seen.update(step.positions.keys())
    if not times:
        raise TraceError(f"{path} has no timesteps; record it again")
    departed: dict[float, list[str]] = {}
    arrived: dict[float, list[str]] = {}
    for vehicle, index in first.items():
        departed.setdefault(times[index], []).append(vehicle)
        if last[vehicle] + 1 < len(times):
            arrived.setdefault(times[last[vehicle] + 1], []).append(vehicle)
    found = Survey(
        times,
        departed,
        arrived,
        gaps=0,
        reappearances=sum(last[v] - first[v] + 1 > seen[v] for v in first),
    )
    longest = _EVEN * found.step if found.step else math.inf
    gaps = [n for n in range(1, len(times)) if times[n] - times[n - 1] > longest + _TOLERANCE]
    if gaps and not bridge:
        n = gaps[0]
        raise TraceError(
            f"{wheres[n]}: time {times[n]:g} follows {times[n - 1]:g} where steps are "
            f"{found.step:g} s; timesteps are missing: record it again, or pass --bridge-gaps"
        )
    return Survey(times, departed, arrived, len(gaps), found.reappearances)
