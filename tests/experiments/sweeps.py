"""Small sweeps, and what is compared of them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from minute import MINUTE
from specs import exact, folder

from testbed.experiments.grid import Grid, Point, read_grid
from testbed.experiments.run import run
from testbed.experiments.sweep import Result, Stage, sweep

# A minute's traffic from a file, a diagonal Fisher: a run takes a fraction of a second.
TINY: Mapping[str, Any] = {
    "name": "tiny",
    "mobility": {"source": "trace", "trace": "minute.csv", "warmup": 10},
    "clients": {"initial": 4, "pool": 6},
    "data": {"test_share": 0.85},
    "learning": {"model": "small-cnn", "epochs": 1, "lr": 0.05, "batch": 16},
    "fisher": {"kind": "diagonal"},
    "editing": {"requests": 4, "methods": ["fsosa", "retrain"]},
    "execution": {"kind": "serial"},
}
# The same clients in a city's traffic.
CITY: Mapping[str, Any] = {
    **TINY,
    "name": "city",
    "mobility": {"participation": 0.25, "warmup": 60, "end": 300},
}


def write(place: Path, document: Mapping[str, Any] = TINY, **sections: Any) -> Path:
    """Write a configuration, some keys changed section by section, and the trace it may name."""
    merged = dict(document)
    for name, value in sections.items():
        merged[name] = {**merged.get(name, {}), **value} if isinstance(value, dict) else value
    (place / "minute.csv").write_text(MINUTE)
    path = place / "sweep.yaml"
    path.write_text(yaml.safe_dump(merged))
    return path


def swept(
    config: Path, axes: Sequence[str], out: Path, **options: Any
) -> tuple[Grid, Result, list[Stage]]:
    """Sweep, and return what came of it and what was said meanwhile."""
    grid, stages = read_grid(config, axes, **options), list[Stage]()
    return grid, sweep(grid, out, stages.append), stages


def results(out: Path, points: Sequence[Point]) -> dict[str, dict[str, bytes]]:
    """Return the files of every run that the same spec makes again byte for byte."""
    return {
        f"{point.name} {method} {seed}": exact(folder(out / point.name, method, seed))
        for point in points
        for method in point.experiment.editing.methods
        for seed in point.experiment.seeds
    }


def alone(out: Path, points: Sequence[Point]) -> None:
    """Run every point on its own."""
    for point in points:
        list(run(point.experiment, out / point.name))


def manifest(run_folder: Path) -> dict[str, Any]:
    """Return a manifest without what two runs of one spec may differ in."""
    content: dict[str, Any] = json.loads((run_folder / "manifest.json").read_text())
    return {name: value for name, value in content.items() if name not in ("wall_s", "store")}


def summary(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "sweep.json").read_text())
    return found
