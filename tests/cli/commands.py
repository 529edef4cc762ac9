"""Running the command line, in this process or in one of its own."""

import os
import subprocess
import sys
from pathlib import Path

TESTBED = Path(sys.executable).with_name("testbed")

CONFIG = """
name: tiny
mobility: {source: trace, trace: minute.csv, warmup: 10}
clients: {initial: 4, pool: 6}
data: {test_share: 0.85}
learning: {model: small-cnn, epochs: 1, lr: 0.05, batch: 16}
fisher: {kind: diagonal}
editing: {requests: 4, methods: [fsosa, retrain]}
"""
LIVE = ("--set", "mobility.source=sumo", "--set", "mobility.participation=0.25")


def start(folder: Path, *arguments: object) -> "subprocess.Popen[str]":
    """Start ``testbed`` in a process of its own."""
    return subprocess.Popen(
        [TESTBED, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONWARNINGS": "error"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes() -> dict[int, tuple[int, str]]:
    """Return parent and name of every process, zombies left out."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
            except (FileNotFoundError, ProcessLookupError):
                continue
            state, parent = rest.split()[:2]
            if state != "Z":
                found[int(entry.name)] = (int(parent), name)
    return found


def children(parent: int) -> list[int]:
    return [process for process, (above, _) in processes().items() if above == parent]


def everything(folder: Path) -> set[str]:
    """Return all files and folders below one, hidden ones included."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}
