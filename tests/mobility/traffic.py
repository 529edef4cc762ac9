"""Helpers of the tests that run SUMO."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from testbed.config.schema import MobilityConfig
from testbed.mobility import MobilityEvent, open_source


def record(config: MobilityConfig, seed: int = 1) -> list[MobilityEvent]:
    with open_source(config, seed) as source:
        return [event for step in source.steps() for event in step.events]


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
