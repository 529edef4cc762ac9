"""The studies of configs/: every file at every scale, and two of them run at the smallest."""

from pathlib import Path

import pytest
from shared_data import bundle
from typer.testing import CliRunner

from testbed.cli.app import app
from testbed.config import load, subset_size
from testbed.config.scales import NAMES
from testbed.experiments.rundir import find_runs

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
FILES = sorted([*CONFIGS.glob("one_shot/*.yaml"), *CONFIGS.glob("editing/*.yaml")])
BUNDLES = {"mnist": "mnist.npz", "cifar10": "cifar10_jpeg.npz", "femnist": "femnist_leaf.npz"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
@pytest.mark.parametrize("scale", NAMES)
def test_every_study_has_every_scale(file: Path, scale: str) -> None:
    found = load(file, [f"scale={scale}"])
    schedule, clients = found.mobility.schedule, found.clients
    assert clients.initial == schedule.vehicles <= clients.pool
    assert subset_size(found.editing.rho, schedule.vehicles) >= 2
    assert schedule.changes == found.editing.requests
    joins = schedule.changes if schedule.kind == "joins" else 0
    assert schedule.vehicles + joins <= clients.pool
    assert found.learning.epochs >= found.rounds.rounds or "fats-cu" not in found.editing.methods


def run(file: Path, out: Path, *settings: str) -> None:
    """Run a study at the smallest scale in this process."""
    given = ["scale=smoke", "execution.kind=serial", *settings]
    words = [
        "run",
        str(file),
        "--out",
        str(out),
        *(part for each in given for part in ("--set", each)),
    ]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output


DIGITS = ("data.name=digits", "learning.model=small-cnn", "data.test_limit=200")


def test_all_editing_methods_answer_the_same_requests(tmp_path: Path) -> None:
    run(CONFIGS / "editing" / "base.yaml", tmp_path / "out", *DIGITS)
    runs = {run.method: run for run in find_runs(tmp_path / "out")}
    assert set(runs) == {"fsosa", "retrain", "finetune", "federaser", "fedrr", "fats-cu"}
    asked = {
        tuple(
            run.metrics[["t", "kind", "vehicle", "partition"]].itertuples(index=False, name=None)
        )
        for run in runs.values()
    }
    assert len(asked) == 1
    assert len(next(iter(asked))) == 5
    for name in ("federaser", "fedrr", "fats-cu"):
        first = [row for row in runs[name].ledger if row.request == 0 and row.phase == "train"]
        assert {row.round for row in first} == {1, 2}
        assert any(
            "client epochs, as many as F-SOSA" in note for note in runs[name].manifest["notes"]
        )
    assert {row.round for row in runs["fsosa"].ledger} == {0}
    # FATS-CU keeps every round's models; F-SOSA one contribution for each of the subset.
    stored = {name: int(run.metrics["server_bytes"].iloc[0]) for name, run in runs.items()}
    assert stored["fats-cu"] > stored["finetune"] > 0


def test_all_one_shot_rules_fuse_the_same_local_models(tmp_path: Path) -> None:
    run(CONFIGS / "one_shot" / "base.yaml", tmp_path / "out", *DIGITS, "data.limit=200")
    runs = {run.method: run for run in find_runs(tmp_path / "out")}
    assert len(runs) == 11
    uploads = {}
    for name, one in runs.items():
        assert len(one.metrics) == 1
        rows = [row for row in one.ledger if row.phase == "upload"]
        assert len(rows) == 2
        uploads[name] = {row.bytes_up for row in rows}
        chooses = any("clients hold out" in note for note in one.manifest["notes"])
        assert chooses == (
            name in ("fedfisher", "fedfisher-diagonal", "regmean", "fedlpa", "otfusion")
        )
    (model,) = uploads["fedavg"]
    assert uploads["dense"] == {model}
    assert min(uploads["fisher-merging"]) > 1.9 * model
    assert min(uploads["otfusion"]) > model  # held-out pictures are billed


@pytest.mark.parametrize("name", BUNDLES)
def test_the_real_data_sets(name: str, tmp_path: Path) -> None:
    path = bundle(BUNDLES[name])
    methods = "editing.methods=fsosa,fedavg"
    run(CONFIGS / "one_shot" / f"{name}.yaml", tmp_path / "out", f"data.path={path}", methods)
    assert len(find_runs(tmp_path / "out")) == 2
