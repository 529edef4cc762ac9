"""One run that fails never stops a sweep, and is tried again by the same command."""

import errno
import json
import multiprocessing
import os
import shutil
import signal
import socket
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from damage import flip_bits
from sklearn.datasets import load_digits
from specs import folder
from sweeps import results, summary, swept, write

from testbed.errors import ConfigError, ResultsError
from testbed.execution.crew import WorkerLostError
from testbed.experiments import cells, stages
from testbed.experiments.grid import read_grid
from testbed.experiments.plan import asks
from testbed.experiments.rundir import find_runs
from testbed.experiments.sweep import Stage, store_of, sweep


def marks(out: Path) -> dict[str, str]:
    """Return the reasons that stand beside the runs."""
    found = {}
    for path in out.glob("*/*/seed=*.failed.json"):
        content = json.loads(path.read_text())
        assert path.parent.name.startswith(f"{content['method']}-")
        assert path.name == f"seed={content['seed']}.failed.json"
        assert path.parents[1].name == content["point"]
        found[f"{content['point']} {content['method']} seed={content['seed']}"] = content["reason"]
    return found


def test_a_run_that_cannot_begin_is_reported_and_the_others_are_done(tmp_path: Path) -> None:
    config = write(tmp_path)
    _, result, stages = swept(config, ["clients.initial=4,6"], tmp_path / "out", seeds="0:2")
    bad = {
        f"clients.initial=6 {method} seed={seed}"
        for method in ("fsosa", "retrain")
        for seed in (0, 1)
    }
    assert set(result.failed) == bad
    assert {why.split(";")[0] for why in result.failed.values()} == {
        "clients.initial asks for 6 vehicles that take part"
    }
    assert marks(tmp_path / "out") == result.failed == summary(tmp_path / "out")["failed"]
    assert len(find_runs(tmp_path / "out" / "clients.initial=4")) == 4
    assert (stages[-1].done, stages[-1].total, stages[-1].failed) == (8, 8, 4)
    # Nobody trained for them alone.
    assert result.cost.trained <= 2 * 6


def test_a_failure_that_learning_brings_about_is_one_too(tmp_path: Path) -> None:
    config = write(tmp_path, learning={"epochs": 3})
    axes = ["learning.lr=0.05,1e9"]
    grid, result, _ = swept(config, axes, tmp_path / "out")
    assert set(result.failed) == {
        f"learning.lr=1000000000 {method} seed=0" for method in ("fsosa", "retrain")
    }
    assert all("lower learning.lr" in why for why in result.failed.values())
    assert all("\n" not in why for why in result.failed.values())
    assert len(results(tmp_path / "out", grid.points[:1])) == 2
    assert len(marks(tmp_path / "out")) == 2
    assert not list((tmp_path / "out").glob("*/*/.*.partial-*"))


def bundle(path: Path) -> None:
    """Write handwritten digits as a data set with a file of its own."""
    digits = load_digits()
    pictures = (digits.images * 15).astype(np.uint8)
    part = {"x_train": pictures[300:], "y_train": digits.target[300:].astype(np.uint8)}
    test = {"x_test": pictures[:300], "y_test": digits.target[:300].astype(np.uint8)}
    np.savez(path, **part, **test)


def test_the_same_command_tries_again(tmp_path: Path) -> None:
    config = write(tmp_path)
    axes = [f"data={{name: digits}},{{name: npz, path: {tmp_path / 'late.npz'}}}"]
    grid, result, _ = swept(config, axes, tmp_path / "out")
    late = "data.name=npz,data.path=late.npz"
    assert set(result.failed) == {f"{late} {method} seed=0" for method in ("fsosa", "retrain")}
    assert all("late.npz" in why for why in result.failed.values())
    assert set(marks(tmp_path / "out")) == set(result.failed)
    bundle(tmp_path / "late.npz")
    _, again, _ = swept(config, axes, tmp_path / "out")
    assert (again.failed, again.skipped, again.cost.runs) == ({}, 2, 2)
    assert marks(tmp_path / "out") == {}
    assert summary(tmp_path / "out")["failed"] == {}
    assert len(results(tmp_path / "out", grid.points)) == 4


def test_pictures_that_turn_out_to_be_broken_are_the_failure_of_their_runs(
    tmp_path: Path,
) -> None:
    bundle(tmp_path / "good.npz")
    with np.load(tmp_path / "good.npz") as good:
        arrays = dict(good)
    arrays["x_train"] = np.full(arrays["x_train"].shape, np.nan, np.float32)
    arrays["x_test"] = arrays["x_test"].astype(np.float32) / 255
    np.savez(tmp_path / "bad.npz", **arrays)
    config = write(tmp_path, data={"name": "npz"})
    axes = [f"data.path={tmp_path / 'good.npz'},{tmp_path / 'bad.npz'}"]
    _, result, _ = swept(config, axes, tmp_path / "out", methods="fsosa")
    assert list(result.failed) == ["data.path=bad.npz fsosa seed=0"]
    assert "bad.npz" in result.failed["data.path=bad.npz fsosa seed=0"]
    assert len(find_runs(tmp_path / "out" / "data.path=good.npz")) == 1


def test_a_failure_of_the_program_itself_is_named_and_does_not_stop_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = cells.run_cell

    def faulty(experiment, cell, *arguments, **options):
        if cell.method == "retrain":
            raise ZeroDivisionError("division\nby zero")
        return real(experiment, cell, *arguments, **options)

    monkeypatch.setattr(cells, "run_cell", faulty)
    _, result, _ = swept(write(tmp_path), ["rho=0.5"], tmp_path / "out")
    assert result.failed == {"rho=0.5 retrain seed=0": "ZeroDivisionError: division by zero"}
    assert len(find_runs(tmp_path / "out")) == 1


def test_a_run_whose_folder_is_in_the_way_fails_alone(tmp_path: Path) -> None:
    config, out = write(tmp_path), tmp_path / "out"
    grid, *_ = swept(config, ["rho=0.5"], out, methods="fsosa")
    place = folder(out / "rho=0.5", "fsosa").parent
    other = place.with_name(asks(read_grid(config, ["rho=0.5"], methods="retrain"), out)[0]
                            .cell.folder.parent.name)  # fmt: skip
    other.write_text("a file where a folder should be")
    _, result, _ = swept(config, ["rho=0.5"], out)
    (why,) = result.failed.values()
    assert str(other) in why
    assert (result.skipped, other.read_text()) == (1, "a file where a folder should be")
    other.unlink()
    _, again, _ = swept(config, ["rho=0.5"], out)
    assert (again.failed, again.cost.runs) == ({}, 1)
    assert len(results(out, grid.points)) == 1


def full() -> ResultsError:
    error = ResultsError("cannot write: No space left on device; choose another folder")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    return error


def test_a_full_disk_stops_the_sweep_and_the_same_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, done = cells.run_cell, list[str]()

    def filling(experiment, cell, *arguments, **options):
        if done:
            raise full()
        done.append(cell.method)
        return real(experiment, cell, *arguments, **options)

    config, out = write(tmp_path), tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(cells, "run_cell", filling)
        with pytest.raises(ResultsError, match="No space left"):
            swept(config, ["rho=0.5,0.75"], out)
    assert marks(out) == {}
    assert len(find_runs(out)) == 1
    grid, result, _ = swept(config, ["rho=0.5,0.75"], out)
    assert (result.failed, result.skipped, result.cost.trained) == ({}, 1, 0)
    assert len(results(out, grid.points)) == 4


def test_a_damaged_store_entry_is_made_again_and_counted(tmp_path: Path) -> None:
    config, out = write(tmp_path), tmp_path / "out"
    grid, *_ = swept(config, ["rho=0.5"], out)
    before = results(out, grid.points)
    flip_bits(store_of(grid, out).folder)
    shutil.rmtree(out / "rho=0.5")
    _, result, _ = swept(config, ["rho=0.5"], out)
    assert result.failed == {}
    assert result.store.corrupt > 0
    assert results(out, grid.points) == before
    corrupt = [run.manifest["store"]["corrupt"] for run in find_runs(out)]
    assert sum(corrupt) > 0


NOBODY = 4_194_305  # beyond the largest process id of Linux


def test_leftovers_of_killed_processes_are_swept_up(tmp_path: Path) -> None:
    config, out = write(tmp_path), tmp_path / "out"
    swept(config, ["rho=0.5"], out)
    place = folder(out / "rho=0.5", "fsosa").parent
    (place / f".seed=0.partial-{NOBODY}").mkdir()
    (place / f".seed=0.failed.json.partial-{NOBODY:08x}01234567").write_text("{")
    (out / ".traffic-x").mkdir()
    (out / ".traffic-x" / "0").write_bytes(b"half a tape")
    swept(config, ["rho=0.5"], out)
    assert not list(out.glob(".traffic-*"))
    assert [path.name for path in place.iterdir()] == ["seed=0"]


def test_a_sweep_without_a_crew_leaves_nothing_and_takes_nothing_away(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra ray", exc_type=ImportError)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    config, out = write(tmp_path), tmp_path / "some" / "where"
    nowhere = ["execution.kind=ray", f"execution.address={address}"]
    with pytest.raises(ConfigError, match=r"^no Ray cluster answers"):
        swept(config, ["rho=0.5"], out, settings=nowhere)
    assert not out.parent.exists()
    grid, *_ = swept(config, ["rho=0.5"], out)
    before = results(out, grid.points), summary(out)["cost"]
    with pytest.raises(ConfigError, match=r"^no Ray cluster answers"):
        swept(config, ["rho=0.5,0.75"], out, settings=nowhere)
    assert (results(out, grid.points), summary(out)["cost"]) == before


# Workers that are lost.

ONE_WORKER = ("execution.kind=processes", "execution.workers=1")


class Deadly:
    """A crew of which a process is killed by every run of one method; it does all else."""

    def map(self, work, asks, tapes, places):
        for each in zip(asks, tapes, places, strict=True):
            if any(ask.cell.method == "retrain" for ask in each[0]):
                raise WorkerLostError("a worker process was killed")
            yield work(*each)


@pytest.fixture
def deadly(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Crews that die at some runs; returns how many were opened."""
    opened: list[int] = []

    @contextmanager
    def open_crew(execution):
        opened.append(len(opened))
        with real(execution) as crew:
            yield SimpleNamespace(
                size=2,
                map=lambda work, *arguments: (Deadly() if work is cells.perform else crew).map(
                    work, *arguments
                ),
            )

    real = stages.open_crew
    monkeypatch.setattr(stages, "open_crew", open_crew)
    return opened


def test_a_run_that_kills_its_worker_is_found_out_and_the_others_are_done(
    tmp_path: Path, deadly: list[int]
) -> None:
    config = write(tmp_path)
    _, result, told = swept(config, ["rho=0.5,0.75"], tmp_path / "out", seeds="0:2",
                            methods="fsosa,retrain,fedavg")  # fmt: skip
    assert set(result.failed) == {
        f"rho={rho} retrain seed={seed}" for rho in ("0.5", "0.75") for seed in (0, 1)
    }
    assert set(result.failed.values()) == {"a worker process was killed"}
    assert len(find_runs(tmp_path / "out")) == 8
    assert (result.cost.runs, told[-1].done, told[-1].share) == (12, 12, 1.0)
    assert marks(tmp_path / "out") == result.failed
    assert len(deadly) > 4


def test_workers_that_are_killed_from_outside_lose_nothing(tmp_path: Path) -> None:
    config, killed = write(tmp_path, learning={"epochs": 5}), list[str]()
    processes = read_grid(config, ["rho=0.5,0.75"], ONE_WORKER)

    def kill(stage: Stage) -> None:
        if stage.name in ("training", "running") and stage.done and stage.name not in killed:
            killed.append(stage.name)
            (worker, *_) = multiprocessing.active_children()
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)

    result = sweep(processes, tmp_path / "out", kill)
    assert killed == ["training", "running"]
    assert (result.failed, result.cost.runs) == ({}, 4)
    grid, *_ = swept(config, ["rho=0.5,0.75"], tmp_path / "calm")
    assert results(tmp_path / "out", grid.points) == results(tmp_path / "calm", grid.points)


def test_runs_that_are_written_elsewhere_are_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by the nodes of a cluster that do not share the folder."""
    monkeypatch.setattr(stages, "perform", lambda asks, tape, place: (cells.Done(),) * len(asks))
    with pytest.raises(ResultsError, match="name a folder with --out that all machines share"):
        swept(write(tmp_path), ["rho=0.5"], tmp_path / "out")
