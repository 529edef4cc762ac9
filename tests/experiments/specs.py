"""Small experiments, and how their results are compared."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
from minute import MINUTE

from testbed.config import Experiment
from testbed.experiments.run import Done, run

SMALL: dict[str, Any] = {
    "name": "small",
    "mobility": {"participation": 0.25, "warmup": 100},
    "clients": {"initial": 6, "pool": 9},
    "data": {"test_share": 0.85},
    "learning": {"model": "small-cnn", "epochs": 1, "lr": 0.05, "batch": 16},
    "fusion": {"damping": 0.3},
    "editing": {"requests": 4, "methods": ["fsosa", "retrain", "finetune"]},
}

# Files that the same spec makes again byte for byte.
EXACT = (
    "trace.csv",
    "ledger.csv",
    "ledger.parquet",
    "metrics.csv",
    "metrics.parquet",
    "model.safetensors",
)


def small(**sections: Any) -> Experiment:
    """Return the small experiment with some keys changed, section by section."""
    merged = dict(SMALL)
    for name, value in sections.items():
        merged[name] = {**merged.get(name, {}), **value} if isinstance(value, dict) else value
    return Experiment.model_validate(merged)


def replayed(trace: Path, **sections: Any) -> Experiment:
    """Return an experiment of under a second: a minute's trace, a diagonal Fisher."""
    if not trace.exists():
        trace.write_text(MINUTE)
    merged = {
        "mobility": {"source": "trace", "trace": trace, "warmup": 10, "participation": 1.0},
        "clients": {"initial": 4, "pool": 6},
        "fisher": {"kind": "diagonal"},
        "editing": {"methods": ["fsosa"]},
    }
    for name, value in sections.items():
        merged[name] = {**merged.get(name, {}), **value} if isinstance(value, dict) else value
    return small(**merged)


def finish(experiment: Experiment, out: Path, force: bool = False) -> list[Done]:
    return list(run(experiment, out, force))


def folder(out: Path, method: str, seed: int = 0) -> Path:
    (found,) = out.glob(f"{method}-*/seed={seed}")
    return found


def contents(place: Path) -> dict[str, bytes]:
    """Return every file below a folder, hidden ones included."""
    return {
        str(path.relative_to(place)): path.read_bytes()
        for path in sorted(place.rglob("*"))
        if path.is_file()
    }


def stamps(place: Path) -> dict[str, int]:
    """Return when every file and folder below one was last written."""
    return {str(path): path.stat().st_mtime_ns for path in [place, *place.rglob("*")]}


def exact(run_folder: Path) -> dict[str, bytes]:
    return {name: (run_folder / name).read_bytes() for name in EXACT}


def rows(run_folder: Path, table: str = "ledger") -> pd.DataFrame:
    """Return a table as text; a ledger without the column that carries the config's hash."""
    frame = pd.read_csv(run_folder / f"{table}.csv", dtype=str, keep_default_na=False)
    return frame.drop(columns="run", errors="ignore")


def events(run_folder: Path) -> list[str]:
    """Return the lines of a trace without its header of origins."""
    lines = (run_folder / "trace.csv").read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


def python(code: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    """Run code in a fresh process that knows this module."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
