"""Synthetic but consistent run directories."""

from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.config import Experiment
from testbed.experiments.rundir import Metric, write_manifest, write_table
from testbed.ledger import COLUMNS, COORDINATOR, EVERYONE, LedgerRow
from testbed.reporting.comparison import load
from testbed.reporting.settings import read

MODEL = 250_000  # bytes; the Fisher is as large
M0 = 20
METRIC_COLUMNS = tuple(Metric.__dataclass_fields__)


class World:
    """Membership changes, the same for every method of one seed."""

    def __init__(self, seed: int, requests: int) -> None:
        rng = np.random.default_rng(seed)
        self.times = 300 + np.cumsum(rng.exponential(20, requests))
        self.kinds: list[str] = []
        members = M0
        for _ in range(requests):
            join = members <= 12 or (members < 36 and rng.random() < 0.5)
            self.kinds.append("join" if join else "leave")
            members += 1 if join else -1
        self.luck = rng.random(requests)
        self.drift = np.cumsum(rng.normal(0, 0.002, requests))


class Builder:
    """Writes one run; every number follows from the world and the method."""

    def __init__(self, method: str, seed: int, world: World, batch: int) -> None:
        self.method, self.seed, self.world, self.batch = method, seed, world, batch
        self.rows: list[LedgerRow] = []
        self.metrics: list[Metric] = []
        self.subset = 0 if method == "finetune" else M0 // 2
        self.members = M0
        self.now = 300.0
        self.accuracy = 0.93

    def build(self) -> None:
        self._bill(0, "init", self.subset or M0, triggered=True)
        self._measure([0], "init", 0.0, triggered=True)
        total = len(self.world.kinds)
        for first in range(1, total + 1, self.batch):
            self._handle(list(range(first, min(first + self.batch, total + 1))))

    def _handle(self, together: list[int]) -> None:
        kinds = [self.world.kinds[request - 1] for request in together]
        self.members += sum(1 if kind == "join" else -1 for kind in kinds)
        luck = min(self.world.luck[request - 1] for request in together)
        triggered, uploads = {
            "fsosa": (luck < 0.5, 1),
            "retrain": (True, self.subset),
            "fats-cu": (True, 3 * self.subset),
        }.get(self.method, ("join" in kinds, kinds.count("join")))
        self.now = start = max(self.now, float(self.world.times[together[-1] - 1]))
        kind = kinds[0] if len(together) == 1 else "batch"
        missed = self.method == "fsosa" and 4 in together
        self._bill(together[-1], kind, uploads if triggered else 0, triggered, missed)
        if triggered:
            lag = {"retrain": 0.0, "fsosa": 0.0005}.get(self.method, -0.03)
            self.accuracy = min(1.0, float(0.93 + self.world.drift[together[-1] - 1] + lag))
        self._measure(together, "", start, triggered=triggered)

    def _bill(
        self, request: int, kind: str, uploads: int, triggered: bool, missed: bool = False
    ) -> None:
        row = LedgerRow(
            run=f"{self.method}-0a1b2c3d", seed=self.seed, method=self.method, rho=0.5,
            density=None, request=request, kind=kind, vehicle="", phase="train", round=0,
            t_start=self.now, t_end=self.now, compute_s_measured=None, compute_s_billed=0.0,
            network_s=0.0, bytes_down=0, bytes_up=0, byte_basis="serialised",
            population=self.members, subset=self.subset, reused=False, triggered=triggered,
            result="ok",
        )  # fmt: skip
        for number in range(uploads):
            worker = replace(row, vehicle=f"veh{number}")
            slow = 4.0 + 0.3 * number
            self.rows += [
                replace(worker, phase="download", t_end=self.now + 0.1, bytes_down=MODEL),
                replace(worker, phase="train", t_start=self.now + 0.1, t_end=self.now + slow),
                replace(
                    worker, phase="upload", t_start=self.now + slow, t_end=self.now + slow + 0.2,
                    bytes_up=2 * MODEL,
                ),
            ]  # fmt: skip
        if uploads:
            self.now += 4.0 + 0.3 * (uploads - 1) + 0.2
            self.rows.append(
                replace(
                    row, vehicle=COORDINATOR, phase="solve", t_start=self.now,
                    t_end=self.now + 0.5,
                    result="unconverged" if missed else "ok",
                )
            )  # fmt: skip
            self.now += 0.5
        self.rows.append(
            replace(
                row, vehicle=EVERYONE, phase="broadcast", t_start=self.now, t_end=self.now + 0.1,
                bytes_down=MODEL * self.members,
            )
        )  # fmt: skip
        self.now += 0.1

    def _measure(self, together: list[int], kind: str, start: float, *, triggered: bool) -> None:
        for request in together:
            self.metrics.append(
                Metric(
                    request=request,
                    t=float(self.world.times[request - 1]) if request else 300.0,
                    kind=kind or self.world.kinds[request - 1],
                    vehicle=f"veh{request}" if request else "",
                    partition=request or -1,
                    t_start=start or 300.0, t_end=self.now, batch=len(together),
                    population=self.members, subset=self.subset, subset_changed=triggered,
                    replaced=int(triggered), triggered=triggered, server_bytes=MODEL,
                    accuracy=self.accuracy,
                    map50_95=nan,
                    map50=nan,
                    loss=0.3, iterations=12, residual=1e-7,
                    converged=not (self.method == "fsosa" and 4 in together),
                )
            )  # fmt: skip


def write_run(
    root: Path, method: str, seed: int = 0, requests: int = 31, batch: int = 1,
    warnings: tuple[str, ...] = (), notes: tuple[str, ...] = (), population_initial: int = M0,
    **config: Any,
) -> Path:  # fmt: skip
    """Write one run below `root` and return its folder."""
    builder = Builder(method, seed, World(seed, requests), batch)
    builder.build()
    folder = root / f"{method}-0a1b2c3d" / f"seed={seed}"
    write_table(folder, "ledger", builder.rows, COLUMNS)
    write_table(folder, "metrics", builder.metrics, METRIC_COLUMNS)
    manifest = {
        "status": "finished",
        "method": method,
        "seed": seed,
        "hash": "0a1b2c3d",
        "config": Experiment.model_validate({"name": "synthetic", **config}).model_dump(
            mode="json"
        ),
        "population_initial": population_initial,
        "subset_size": builder.subset,
        "notes": list(notes),
        "warnings": list(warnings),
        "versions": {"python": "3.11.9", "sumo": "1.28.0", "testbed": "0.1.0"},
        "data": {"name": "digits", "fingerprint": "f" * 64},
        "mobility": {"scenario": "city_grid", "events": requests},
        "counts": {"requests": requests},
        "contact": {
            "forget": {"count": 3, "p10": 0.5, "p50": 1.0 + seed, "p90": 90.0},
            "include": {"count": 0, "p10": None, "p50": None, "p90": None},
            "asked": 40, "delivered": 36 + seed, "wasted_s": 12.5, "wasted_bytes": 3_000_000,
            "queue_max": 4 + seed, "queue_mean": 0.5, "batch_max": batch, "batch_mean": batch,
        },
        "wall_s": 12.5,
    }  # fmt: skip
    for name in ("trace.csv", "model.safetensors"):
        (folder / name).touch()
    write_manifest(folder, manifest)
    return folder


@pytest.fixture(scope="session")
def make_run():
    return write_run


@pytest.fixture(scope="session")
def experiment(tmp_path_factory):
    """Three methods, two seeds, 31 requests; read-only."""
    root = tmp_path_factory.mktemp("results") / "synthetic"
    for method in ("retrain", "finetune", "fsosa"):
        for seed in (0, 1):
            write_run(root, method, seed)
    return root


@pytest.fixture(scope="session")
def runs(experiment):
    return load(experiment)


@pytest.fixture(scope="session")
def batched(tmp_path_factory):
    """The same with requests handled three at a time, one seed; read-only."""
    root = tmp_path_factory.mktemp("results") / "batched"
    for method in ("retrain", "finetune", "fsosa"):
        write_run(root, method, batch=3)
    return load(root)


RHOS, GAPS, SEEDS = (0.3, 0.5), (1.8, 3.6), (0, 1)


@pytest.fixture(scope="session")
def sweep(tmp_path_factory):
    """ρ times density, three methods, two seeds, as `testbed sweep` lays them out; read-only."""
    root = tmp_path_factory.mktemp("results") / "sweep"
    for rho in RHOS:
        for gap in GAPS:
            for method in ("retrain", "finetune", "fsosa"):
                for seed in SEEDS:
                    write_run(
                        root / f"rho={rho},mobility.density={gap}", method, seed, requests=8,
                        editing={"rho": rho}, mobility={"density": gap}, seeds=SEEDS,
                    )  # fmt: skip
    return root


@pytest.fixture(scope="session")
def swept(sweep):
    return read(sweep)


@pytest.fixture(scope="session")
def grid(tmp_path_factory):
    """Six settings of two keys, five methods, two seeds, in one folder; read-only."""
    root = tmp_path_factory.mktemp("results") / "grid"
    for rho in (0.3, 0.5, 0.7):
        for gap in (3.6, 7.2):
            for method in ("fsosa", "retrain", "finetune", "federaser", "fats-cu"):
                for seed in SEEDS:
                    write_run(
                        root / f"rho={rho},density={gap}", method, seed, requests=10,
                        editing={"rho": rho}, mobility={"density": gap}, seeds=SEEDS,
                    )  # fmt: skip
    return read(root)


@pytest.fixture(scope="session")
def by_rho(sweep):
    return read(sweep, ["density=3.6"])


@pytest.fixture(scope="session")
def untrained(by_rho):
    """The same runs as cost fidelity leaves them: nothing was trained."""
    return tuple(
        replace(run, metrics=run.metrics.assign(accuracy=nan, loss=nan)) for run in by_rho
    )
