"""A small federation on a recorded minute of traffic."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.config import Experiment

SMALL: dict[str, Any] = {
    "name": "small",
    "mobility": {"source": "trace", "warmup": 10},
    "clients": {"initial": 6, "pool": 9},
    "data": {"test_share": 0.85},
    "learning": {"model": "small-cnn", "epochs": 1, "lr": 0.05, "batch": 16},
    "fisher": {"kind": "diagonal"},
    "editing": {"requests": 8, "rho": 0.4, "methods": ["fsosa"]},
}
# Six at the start; newcomers for whom there is room, a leave, a return.
TRAFFIC = (
    *((1.0, name, "join") for name in "abcdef"),
    (20.0, "g", "join"),
    (22.0, "h", "join"),
    (24.0, "a", "leave"),
    (26.0, "b", "leave"),
    (28.0, "i", "join"),
    (30.0, "a", "join"),
    (32.0, "c", "leave"),
    (34.0, "d", "leave"),
)


def small(
    folder: Path, traffic: Sequence[tuple[float, str, str]] = TRAFFIC, **sections: Any
) -> Experiment:
    """Return the small experiment with some keys changed; its trace is written to `folder`."""
    trace = folder / "trace.csv"
    lines = [f"{time},{vehicle},{kind}" for time, vehicle, kind in traffic]
    trace.write_text("\n".join(["time,vehicle,kind", *lines, ""]))
    merged = {**SMALL, "mobility": {**SMALL["mobility"], "trace": trace}}
    for name, value in sections.items():
        merged[name] = {**merged.get(name, {}), **value} if isinstance(value, dict) else value
    return Experiment.model_validate(merged)
