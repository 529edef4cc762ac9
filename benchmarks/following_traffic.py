"""What following the traffic costs: SUMO alone against SUMO under a SimPy world.

Run as ``python benchmarks/following_traffic.py [--repeats 5] [--end 3600]``.  Every
number is the best of the repeats, from the start of SUMO to its end, imports excluded.
The goal is 1.25 times the wall time of SUMO alone; the ratio of processor time, of all
processes together, is the steadier number on a busy machine.
"""

import argparse
import os
import subprocess
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import simpy
from rich.console import Console
from rich.table import Table

from testbed.config.schema import MobilityConfig
from testbed.mobility import MobilityEvent, MobilitySource, open_source
from testbed.mobility.scenarios import find
from testbed.mobility.sumo import QUIET, environment, program

SEED = 1
GOAL = 1.25


@dataclass(frozen=True)
class Cost:
    """Wall and processor seconds."""

    wall: float
    processor: float


def bare(config: MobilityConfig) -> Cost:
    """Time SUMO by itself."""
    command = [program("sumo"), "-c", str(find(config.scenario).config), *QUIET]
    command += ["--seed", str(SEED), "--end", str(config.end)]
    begun = _now()
    subprocess.run(command, check=True, env=environment(), capture_output=True)
    return _since(begun)


def followed(config: MobilityConfig) -> tuple[Cost, int]:
    """Time SUMO with a SimPy process that awaits every step; also count the events."""
    seen: list[MobilityEvent] = []

    def traffic(
        world: simpy.Environment, source: MobilitySource
    ) -> Generator[simpy.Event, None, None]:
        for step in source.steps():
            yield world.timeout(step.time - world.now)
            seen.extend(step.events)

    begun = _now()
    with open_source(config, SEED) as source:
        world = simpy.Environment()
        world.process(traffic(world, source))
        world.run()
    return _since(begun), len(seen)


def _now() -> Cost:
    times = os.times()
    own, children = times.user + times.system, times.children_user + times.children_system
    return Cost(time.perf_counter(), own + children)


def _since(begun: Cost) -> Cost:
    now = _now()
    return Cost(now.wall - begun.wall, now.processor - begun.processor)


def _best(costs: Sequence[Cost]) -> Cost:
    return Cost(min(cost.wall for cost in costs), min(cost.processor for cost in costs))


def main() -> None:
    """Measure every back end and membership in turn and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", default="city_grid")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--end", type=float, default=3600)
    options = parser.parse_args()
    common = {"scenario": options.scenario, "end": options.end, "warmup": 0}
    ways = [
        MobilityConfig(backend=backend, membership=membership, **common)
        for backend in ("libsumo", "traci")
        for membership in ("network", "rsu")
    ]
    followed(ways[0].model_copy(update={"end": 10}))  # imports
    followed(ways[2].model_copy(update={"end": 10}))
    alone: list[Cost] = []
    taken: list[list[Cost]] = [[] for _ in ways]
    events = [0] * len(ways)
    for _ in range(options.repeats):  # in turn, so that a busy machine hits all alike
        alone.append(bare(ways[0]))
        for number, way in enumerate(ways):
            cost, events[number] = followed(way)
            taken[number].append(cost)
    base = _best(alone)
    table = Table(
        "back end", "membership", "events", "wall s", "x bare", "CPU s", "x bare", "goal"
    )
    table.add_row("bare sumo", "", "", f"{base.wall:.2f}", "", f"{base.processor:.2f}", "", "")
    for way, costs, count in zip(ways, taken, events, strict=True):
        best = _best(costs)
        ratio = best.wall / base.wall
        table.add_row(
            *(way.backend, way.membership, str(count)),
            *(f"{best.wall:.2f}", f"{ratio:.2f}"),
            *(f"{best.processor:.2f}", f"{best.processor / base.processor:.2f}"),
            "met" if ratio <= GOAL else "missed",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
