"""What following the traffic costs: SUMO alone against SUMO under a SimPy world.

Run as ``python benchmarks/mobility.py [--repeats 5]``.  Every number is the best
of the repeats, from the start of SUMO to its end, imports excluded.  Following includes a
SimPy process that awaits every step, keeps all events and distances, and writes them as a
trace.  The ratio of processor time, of all processes together, is the steadier one on a busy
machine.  At the end, the time from opening a trace of one hour to its first step.
"""

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import simpy
from rich.console import Console
from rich.table import Table

from testbed.config.schema import MobilityConfig
from testbed.mobility import MobilitySource, Recorder, Recording, open_source, write_trace
from testbed.mobility.building import cached_routes
from testbed.mobility.scenarios import find
from testbed.mobility.sumo import QUIET, environment, program

SEED = 1
CITY = "city_grid"
# By vehicles on the road: seconds between departures, seconds simulated, goals.
LOADS = {
    200: (1.4, 3600.0, {"libsumo": 1.10, "traci": 1.6}),
    900: (0.29, 1200.0, {"libsumo": 1.45, "traci": 1.6}),
}
START_GOAL = 1.0


@dataclass(frozen=True)
class Cost:
    """Wall and processor seconds."""

    wall: float
    processor: float


def bare(density: float, end: float) -> Cost:
    """Time SUMO by itself."""
    scenario = find(CITY)
    command = [program("sumo"), "-c", str(scenario.config), *QUIET, "--seed", str(SEED)]
    command += ["--route-files", str(cached_routes(scenario, density)), "--end", str(end)]
    begun = _now()
    subprocess.run(command, check=True, env=environment(), capture_output=True)
    return _since(begun)


def followed(config: MobilityConfig, path: Path) -> tuple[Cost, int, float]:
    """Time SimPy beside SUMO; return how many rows and, on average, vehicles there were."""
    recorder = Recorder()
    running: list[int] = []

    def traffic(
        world: simpy.Environment, source: MobilitySource
    ) -> Generator[simpy.Event, None, None]:
        present = 0
        for step in source.steps():
            yield world.timeout(step.time - world.now)
            recorder.add(step)
            present += sum(1 if event.kind == "join" else -1 for event in step.events)
            running.append(present)

    begun = _now()
    with open_source(config, SEED) as source:
        world = simpy.Environment()
        world.process(traffic(world, source))
        world.run()
        write_trace(path, Recording(recorder.columns(), source.end), source.provenance)
    return _since(begun), len(recorder), sum(running) / len(running)


def replay_start(path: Path) -> float:
    """Seconds from opening a trace to its first step."""
    begun = time.perf_counter()
    with open_source(MobilityConfig(source="trace", trace=path), SEED) as source:
        next(source.steps())
    return time.perf_counter() - begun


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
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    table = Table(
        *("departure every", "vehicles", "back end", "members", "rows"),
        *("wall s", "x bare", "CPU s", "x bare", "goal"),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.parquet"
        for density, end, goals in LOADS.values():
            _compare(table, density, end, goals, options.repeats, path)
        followed(MobilityConfig(end=3600, warmup=0, membership="rsu"), path)
        started = min(replay_start(path) for _ in range(options.repeats))
    Console().print(table)
    Console().print(
        f"replay of an hour of the default city starts in {started:.2f} s; goal "
        f"{START_GOAL:g} s {'met' if started <= START_GOAL else 'missed'}"
    )


def _compare(
    table: Table,
    density: float,
    end: float,
    goals: Mapping[str, float],
    repeats: int,
    path: Path,
) -> None:
    ways = [
        MobilityConfig(density=density, end=end, warmup=0, backend=backend, membership=membership)
        for backend in ("libsumo", "traci")
        for membership in ("network", "rsu")
    ]
    for way in ways:  # imports, and the routes
        followed(way.model_copy(update={"end": 10}), path)
    alone: list[Cost] = []
    taken: list[list[Cost]] = [[] for _ in ways]
    rows = [0] * len(ways)
    vehicles = 0.0
    for _ in range(repeats):  # in turn, so that a busy machine hits all alike
        alone.append(bare(density, end))
        for number, way in enumerate(ways):
            cost, rows[number], running = followed(way, path)
            taken[number].append(cost)
            vehicles = running if way.membership == "network" else vehicles
    base = _best(alone)
    table.add_row(
        *(f"{density:g} s", f"{vehicles:.0f}", "bare sumo", "", ""),
        *(f"{base.wall:.2f}", "", f"{base.processor:.2f}", "", ""),
    )
    for way, costs, count in zip(ways, taken, rows, strict=True):
        best = _best(costs)
        ratio, goal = best.wall / base.wall, goals[way.backend]
        table.add_row(
            *("", "", way.backend, way.membership, str(count)),
            *(f"{best.wall:.2f}", f"{ratio:.2f}"),
            *(f"{best.processor:.2f}", f"{best.processor / base.processor:.2f}"),
            f"{goal:g} {'met' if ratio <= goal else 'missed'}",
        )


if __name__ == "__main__":
    main()
