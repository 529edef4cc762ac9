"""The studies of configs/: every file at every scale, and two of them run at the smallest."""

from pathlib import Path

import numpy as np
import pytest
from shared_data import bundle
from typer.testing import CliRunner

from testbed.cli.app import app
from testbed.config import load, subset_size
from testbed.config.scales import NAMES
from testbed.data import load_dataset, partition
from testbed.errors import DataError
from testbed.experiments.rundir import find_runs
from testbed.streams import Streams

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


@pytest.mark.parametrize("alpha", [0.1, 0.8])
@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_alpha_is_a_setting_of_every_study_that_has_one(file: Path, alpha: float) -> None:
    usual, found = (load(file, given) for given in ([], [f"data.alpha={alpha}"]))
    assert usual.data.alpha == (float(file.stem.split("-")[-1]) if "alpha" in file.stem else 0.5)
    assert found.data.alpha == alpha
    assert found.data.partition == ("writers" if "femnist" in file.stem else "dirichlet")
    assert found.model_copy(update={"data": usual.data}) == usual


FEMNIST = [file for file in FILES if "femnist" in file.stem]


def written(path: Path, writers: int, each: int) -> Path:
    """A bundle of blank pictures by so many writers, who all wrote equally many."""
    who = np.repeat(np.arange(writers), each)
    x, y = np.zeros((len(who), 28, 28), np.uint8), np.arange(len(who)) % 62
    np.savez(path, x_train=x, y_train=y, writer_train=who, x_test=x, y_test=y, writer_test=who)
    return path


@pytest.mark.parametrize("file", FEMNIST, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_femnist_is_a_tenth_of_the_writers_at_the_papers_scale(file: Path, tmp_path: Path) -> None:
    assert [load(file, [f"scale={scale}"]).data.users for scale in NAMES] == [1.0, 1.0, 0.1]
    paper = load(file, [f"data.path={written(tmp_path / 'all.npz', 1100, 3)}"])
    drawn = load_dataset(paper.data)
    assert paper.scale == "paper"
    assert len(np.unique(drawn.writers_train)) == 110
    assert len(drawn.y_train) == len(drawn.y_test) == 330


@pytest.mark.parametrize("file", FEMNIST, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_a_part_of_femnist_is_taken_whole_if_asked(file: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "part.npz", 105, 25)

    def sizes(*settings: str) -> list[int]:
        study = load(file, [f"data.path={path}", *settings])
        data = load_dataset(study.data)
        owned = partition(
            data.y_train, study.clients.pool, study.data, Streams(0), data.writers_train
        )
        return [len(part) for part in owned]

    with pytest.raises(DataError, match=r"10 writers .* raise data\.users"):
        sizes()
    assert sum(sizes("data.users=1")) == 105 * 25


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
