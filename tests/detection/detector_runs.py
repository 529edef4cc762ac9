"""Run folders as a detector's run leaves them, with made-up scores."""

import math
from dataclasses import dataclass
from pathlib import Path

from bdd100k_tools import CLASSES
from testbed.config import Experiment
from testbed.experiments.detection import write_detection
from testbed.experiments.rundir import Metric, write_manifest, write_table
from testbed.learning.evaluation import Detail
from testbed.ledger import COLUMNS, EVERYONE, LedgerRow
from testbed.simulation.metric import Judged

BOXES = {name: 10 * (place + 1) for place, name in enumerate(CLASSES)} | {"train": 0}
GROUPS = {"timeofday=daytime": (5, 300), "timeofday=night": (3, 190)}
PICTURES = 8
SHIFT = {"coco": 0.0, "bdd100k": 0.01, "ultralytics": -0.01}


@dataclass(frozen=True)
class Step:
    """A request, whether it changed the model, and the model's mAP50-95 after it."""

    kind: str
    triggered: bool
    quality: float
    batch: int = 1


STEPS = (
    Step("init", True, 0.30),
    Step("leave", True, 0.28),
    Step("join", False, 0.28),
    Step("leave", True, 0.32),
    Step("join", False, 0.32),
)


def details(quality: float) -> tuple[Detail, ...]:
    """Classes all score the same; AP50 is twice AP; night is half as good."""
    made = []
    for convention, shift in SHIFT.items():
        ap = quality + shift
        n = sum(BOXES.values())
        made.append(Detail(convention, "all", "all", PICTURES, n, ap, 2 * ap))
        for name, count in BOXES.items():
            own = ap if count else math.nan
            made.append(Detail(convention, "all", name, PICTURES, count, own, 2 * own))
    for group, (pictures, count) in GROUPS.items():
        own = quality / 2 if "night" in group else quality
        made.append(Detail("coco", group, "all", pictures, count, own, 2 * own))
    return tuple(made)


def write_detector_run(
    root: Path,
    method: str = "fsosa",
    seed: int = 0,
    steps: tuple[Step, ...] = STEPS,
    places: tuple[Path, Path] = (Path("pictures"), Path("labels.json")),
) -> Path:
    """Write a run whose test pictures and labels are at `places`; return its folder."""
    folder = root / f"{method}-0a1b2c3d" / f"seed={seed}"
    rows, metrics = [], []
    for request, step in enumerate(steps):
        now = 300.0 + 10 * request
        metrics.append(
            Metric(
                request=request, t=now, kind=step.kind, vehicle=f"v{request}" if request else "",
                partition=request or -1, t_start=now, t_end=now + 1, batch=step.batch,
                population=20, subset=10, subset_changed=step.triggered, replaced=0,
                triggered=step.triggered, server_bytes=100, accuracy=math.nan, loss=1.5,
                map50_95=step.quality, map50=2 * step.quality, iterations=0, residual=0.0,
                converged=True,
            )
        )  # fmt: skip
        rows.append(
            LedgerRow(
                run=f"{method}-0a1b2c3d", seed=seed, method=method, rho=0.5, density=None,
                request=request, kind=step.kind, vehicle=EVERYONE, phase="broadcast", round=0,
                t_start=now, t_end=now + 1, compute_s_measured=None, compute_s_billed=0.0,
                network_s=1.0, bytes_down=1000, bytes_up=0, byte_basis="serialised",
                population=20, subset=10, reused=False, triggered=step.triggered, result="ok",
            )
        )  # fmt: skip
    write_table(folder, "ledger", rows, COLUMNS)
    write_table(folder, "metrics", metrics, tuple(Metric.__dataclass_fields__))
    released = [
        Judged(request, details(step.quality))
        for request, step in enumerate(steps)
        if step.triggered
    ]
    write_detection(folder, released)
    for name in ("trace.csv", "model.safetensors"):
        (folder / name).touch()
    config = {
        "name": "detectors",
        "data": {
            "name": "bdd100k",
            "path": "pictures",
            "labels": "labels.json",
            "test_path": str(places[0]),
            "test_labels": str(places[1]),
        },
        "fisher": {"kind": "diagonal", "estimator": "empirical"},
        "editing": {"methods": [method]},
    }
    write_manifest(
        folder,
        {
            "status": "finished", "method": method, "seed": seed, "hash": "0a1b2c3d",
            "config": Experiment.model_validate(config).model_dump(mode="json"),
            "population_initial": 20, "subset_size": 10, "notes": [], "warnings": [],
            "versions": {"python": "3.11.9"},
            "data": {"name": "bdd100k", "fingerprint": "f" * 16},
            "mobility": {"scenario": "city_grid"},
            "counts": {"requests": len(steps) - 1},
            "contact": {
                "forget": {"count": 0, "p10": None, "p50": None, "p90": None},
                "include": {"count": 0, "p10": None, "p50": None, "p90": None},
                "asked": 1, "delivered": 1, "wasted_s": 0.0, "wasted_bytes": 0,
                "queue_max": 0, "queue_mean": 0.0, "batch_max": 1, "batch_mean": 1.0,
            },
            "wall_s": 1.0,
        },
    )  # fmt: skip
    return folder
