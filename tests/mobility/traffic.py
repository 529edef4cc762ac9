"""Helpers of the tests that run SUMO."""

import os
import subprocess
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.config.schema import MobilityConfig
from testbed.errors import TraceError
from testbed.mobility import (
    MobilityEvent,
    Sighting,
    Step,
    Trace,
    open_source,
    read_trace,
    write_trace,
)
from testbed.mobility.sumo import QUIET, program

CITY = Path(__file__).resolve().parents[2] / "sumo_scenarios" / "city_grid"


def refuses_in_one_line(folder: Path, text: str, message: str) -> None:
    """Check that the trace `text` in ``bad.csv`` is refused in one line that matches."""
    path = folder / "bad.csv"
    path.write_text(text)
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(path)
    assert "\n" not in str(caught.value)


def record(config: MobilityConfig, seed: int = 1) -> list[MobilityEvent]:
    with open_source(config, seed) as source:
        return [event for step in source.steps() for event in step.events]


def steps(config: MobilityConfig, seed: int = 1) -> list[Step]:
    with open_source(config, seed) as source:
        return list(source.steps())


def replayed(config: MobilityConfig, path: Path, seed: int = 1) -> tuple[list[Step], list[Step]]:
    """Return the steps of a live run, and those of the trace of it that is left at `path`."""
    with open_source(config, seed) as source:
        live = list(source.steps())
        events = tuple(event for step in live for event in step.events)
        places = tuple(
            Sighting(step.time, vehicle, *where)
            for step in live
            for vehicle, where in sorted(step.distances.items())
        )
        write_trace(path, Trace(events, source.end, places), source.provenance)
    return live, steps(MobilityConfig(source="trace", trace=path), seed)


def written(folder: Path, end: float) -> dict[tuple[float, str], tuple[float, float]]:
    """Run the grid city by SUMO alone; return the positions that it writes itself."""
    output = folder / "fcd.xml"
    command = [program("sumo"), "-c", str(CITY / "city_grid.sumocfg"), *QUIET, "--seed", "1"]
    command += ["-e", str(end), "--fcd-output", str(output), "--precision", "6"]
    subprocess.run(command, check=True, capture_output=True)
    return {
        (float(step.attrib["time"]), vehicle.attrib["id"]): (
            float(vehicle.attrib["x"]),
            float(vehicle.attrib["y"]),
        )
        for step in ET.parse(output).getroot()
        for vehicle in step
    }


def children(parent: int | None = None) -> set[int]:
    """Return the running children of a process, by default this one, zombies left out."""
    above = os.getpid() if parent is None else parent
    return {pid for pid, found, _ in _processes() if found == above}


def group_runs(group: int) -> bool:
    """Whether any process of this process group runs, zombies left out."""
    return any(found == group for _, _, found in _processes())


def gone_within(seconds: float, group: int) -> bool:
    """Wait for the last process of a group to end."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not group_runs(group):
            return True
        time.sleep(0.02)
    return False


def _processes() -> Iterator[tuple[int, int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if fields[0] != "Z":
                yield int(entry.name), int(fields[1]), int(fields[2])
