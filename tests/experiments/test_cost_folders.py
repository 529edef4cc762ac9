"""Run folders without learning: what they hold, what they equal, what they survive."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from specs import contents, exact, finish, folder, replayed, rows, small

from testbed.config import Experiment
from testbed.errors import ResultsError
from testbed.experiments import rundir
from testbed.experiments.run import cells, finished, run_cell
from testbed.experiments.rundir import find_runs, read_run
from testbed.experiments.tables import Stored
from testbed.ledger import LedgerRow, add_up, in_order, totals
from testbed.mobility import open_source
from testbed.simulation.outline import outline
from testbed.simulation.placeholder import Placeholder

FILES = ("ledger.csv", "ledger.parquet", "metrics.csv", "metrics.parquet", "trace.csv")
METHODS = ["fsosa", "retrain", "finetune"]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "results"


def costed(trace: Path, **sections: Any) -> Experiment:
    return replayed(trace, fidelity="cost", **sections)


def test_a_folder_is_that_of_a_run_but_for_the_model(trace: Path, out: Path) -> None:
    editing = {"methods": METHODS}
    finish(replayed(trace, editing=editing), out / "train")
    finish(costed(trace, editing=editing), out / "cost")
    for method in METHODS:
        own, other = folder(out / "cost", method), folder(out / "train", method)
        assert sorted(contents(own)) == sorted([*FILES, "manifest.json"])
        # Another fidelity is another spec.
        assert own.parent.name != other.parent.name
        assert rows(own).equals(rows(other))
        assert (own / "trace.csv").read_bytes() == (other / "trace.csv").read_bytes()
        learned = ["accuracy", "loss", "iterations", "residual", "converged"]
        metrics = [rows(place, "metrics").drop(columns=learned) for place in (own, other)]
        assert metrics[0].equals(metrics[1])
        assert set(rows(own, "metrics")["accuracy"]) == {""}
        for key in ("counts", "contact", "notes", "population_initial", "subset_size", "mobility"):
            assert read_run(own).manifest[key] == read_run(other).manifest[key]


def test_the_same_spec_gives_the_same_bytes_and_is_done_once(trace: Path, out: Path) -> None:
    experiment = costed(trace, editing={"methods": METHODS})
    assert [done.skipped for done in finish(experiment, out / "a")] == [False] * 3
    assert [done.skipped for done in finish(experiment, out / "a")] == [True] * 3
    finish(experiment, out / "b")
    for method in METHODS:
        one, other = (folder(out / name, method) for name in "ab")
        for name in FILES:
            assert (one / name).read_bytes() == (other / name).read_bytes()


def test_a_folder_holds_one_fidelity(trace: Path, out: Path) -> None:
    finish(costed(trace), out)
    with pytest.raises(ResultsError, match="fidelity: cost there, train here"):
        finish(replayed(trace), out)


def test_it_reads_back(trace: Path, out: Path) -> None:
    finish(costed(trace), out)
    (run,) = find_runs(out)
    assert run.metrics["accuracy"].isna().all()
    assert totals(run.ledger).requests == 4
    assert "wall_s" in run.manifest
    (run.folder / "trace.csv").unlink()
    with pytest.raises(ResultsError, match=r"trace\.csv: damaged run \(missing"):
        read_run(run.folder)


def test_only_the_mark_of_the_folder_is_waited_for(
    trace: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = costed(trace)
    waited: list[str] = []

    def fsync(descriptor: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{descriptor}")).name
        waited.append(name.removeprefix(".").partition(".partial-")[0])

    monkeypatch.setattr(os, "fsync", fsync)
    finish(experiment, out)
    assert waited == ["experiment.json"]
    finish(replayed(trace), out.with_name("train"))
    assert {*FILES, "model.safetensors", "manifest.json"} <= set(waited)


@pytest.mark.parametrize("name", FILES)
def test_a_run_that_lacks_a_byte_is_not_finished(trace: Path, out: Path, name: str) -> None:
    """The machine may have stopped before the files were on the disk."""
    experiment = costed(trace)
    (cell,) = cells(experiment, out)
    finish(experiment, out)
    whole = {each: (cell.folder / each).read_bytes() for each in FILES}
    assert finished(cell)
    for damage in (whole[name][:-1], b""):
        (cell.folder / name).write_bytes(damage)
        assert not finished(cell)
    (cell.folder / name).unlink()
    assert not finished(cell)
    assert [done.skipped for done in finish(experiment, out)] == [False]
    assert {each: (cell.folder / each).read_bytes() for each in FILES} == whole


def test_a_cell_is_done_with_the_traffic_one_is_given(trace: Path, out: Path) -> None:
    experiment = costed(trace)
    (cell,) = cells(experiment, out)
    asked = []

    def opened(config: Any, seed: int) -> Any:
        asked.append(seed)
        return open_source(config, seed)

    task = outline(experiment, cell.seed)
    outcome = run_cell(experiment, cell, task, Placeholder(task), open_source=opened)
    assert asked == [0]
    assert finished(cell)
    # What happened is in the files and nowhere else.
    assert outcome.ledger == outcome.metrics == ()
    assert len(list(read_run(cell.folder).ledger)) > 10


def test_no_picture_is_needed_for_live_traffic(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.learning.classification.load_dataset", None)
    monkeypatch.setattr("testbed.experiments.run.open_executor", None)
    experiment = small(fidelity="cost", editing={"requests": 3, "methods": ["fsosa"]})
    finish(experiment, out)
    (run,) = find_runs(out)
    assert run.manifest["mobility"]["scenario"] == "city_grid"
    assert run.manifest["device"] == "cpu"


@pytest.mark.parametrize("kind", ["schedule", "generated"])
def test_made_up_traffic_leaves_the_trace_that_replays_it(out: Path, kind: str) -> None:
    mobility = {
        "schedule": {"schedule": {"vehicles": 6, "changes": 9, "kind": "mixed", "interval": 400}},
        "generated": {"arrivals": {"per_minute": 4, "mean_stay": 90}, "end": 900},
    }[kind]
    mobility = {"source": kind, "warmup": 0, "participation": 1.0, **mobility}
    sections: dict[str, Any] = {
        "fidelity": "cost",
        "clients": {"initial": None, "pool": 30},
        "editing": {"requests": 8, "methods": ["retrain"]},
        "data": {"minimum": 1, "test_share": 0.85},
    }
    finish(small(mobility=mobility, **sections), out / "made")
    made = folder(out / "made", "retrain")
    assert sorted(contents(made)) == sorted([*FILES, "manifest.json"])
    again = {"source": "trace", "trace": made / "trace.csv", "warmup": None, "participation": 1.0}
    finish(small(mobility=again, **sections), out / "again")
    own = folder(out / "again", "retrain")
    assert rows(own).equals(rows(made))
    assert (own / "metrics.csv").read_bytes() == (made / "metrics.csv").read_bytes()


def test_totals_of_a_long_ledger_are_added_up_in_pieces(
    trace: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(costed(trace, editing={"methods": ["retrain"]}), out)
    (run,) = find_runs(out)
    assert isinstance(run.ledger, tuple)
    monkeypatch.setattr(rundir, "_LONG", 5)
    monkeypatch.setattr("testbed.experiments.tables._GROUP", 7)
    (long,) = find_runs(out)
    assert isinstance(long.ledger, Stored)
    assert tuple(long.ledger) == run.ledger
    assert all(isinstance(row, LedgerRow) for row in long.ledger)
    assert add_up(in_order(long.ledger)) == totals(run.ledger)


def test_a_long_ledger_is_checked_across_its_pieces(
    trace: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(costed(trace, editing={"methods": ["retrain"]}), out)
    (run,) = find_runs(out)
    path = run.folder / "ledger.parquet"
    frame = pd.read_parquet(path)
    last = int(frame.index[frame["request"] == 3][-1])
    frame.loc[last, "request"] = 1
    frame.to_parquet(path, index=False)
    told = f"request cannot be 1 in row {last}"
    for group in (1 << 14, 3, last, last + 1):
        monkeypatch.setattr("testbed.experiments.tables._GROUP", group)
        with pytest.raises(ResultsError, match=told):
            read_run(run.folder)


def test_what_was_measured_of_a_real_run_is_untouched(trace: Path, out: Path) -> None:
    """The tables of real runs are written by the same code: they repeat byte for byte."""
    for name in "ab":
        finish(replayed(trace), out / name)
    assert exact(folder(out / "a", "fsosa")) == exact(folder(out / "b", "fsosa"))
    manifest = json.loads((folder(out / "a", "fsosa") / "manifest.json").read_text())
    assert "sizes" not in manifest
    frame = pd.read_parquet(folder(out / "a", "fsosa") / "ledger.parquet")
    text = (folder(out / "a", "fsosa") / "ledger.csv").read_text()
    assert frame.to_csv(index=False, lineterminator="\n") == text
    (run,) = find_runs(out / "a")
    assert [row.request for row in run.ledger] == frame["request"].tolist()
    assert asdict(next(iter(run.ledger)))["density"] is None
