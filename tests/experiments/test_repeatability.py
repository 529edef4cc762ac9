"""The same spec gives the same bytes, wherever and however it is run."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from specs import EXACT, contents, events, exact, finish, folder, python, rows, small

METHODS = ("fsosa", "retrain", "finetune")


def test_a_run_directory_holds_what_it_should(live: Path) -> None:
    assert sorted(contents(live)) == sorted(
        ["experiment.json"]
        + [
            f"{folder(live, method).relative_to(live)}/{name}"
            for method in METHODS
            for name in (*EXACT, "manifest.json")
        ]
    )


def test_the_csv_and_the_parquet_of_a_table_agree(live: Path) -> None:
    for method in METHODS:
        for table in ("ledger", "metrics"):
            place = folder(live, method)
            parquet = pd.read_parquet(place / f"{table}.parquet")
            assert parquet.to_csv(index=False) == (place / f"{table}.csv").read_text()


def test_metrics_have_one_row_per_request(live: Path) -> None:
    for method in METHODS:
        metrics = pd.read_csv(folder(live, method) / "metrics.csv")
        assert list(metrics.request) == [0, 1, 2, 3, 4]
        needed = {"request", "t", "population", "subset_changed", "accuracy", "loss"}
        assert needed <= set(metrics.columns)
        assert metrics.accuracy.between(0, 1).all()


def test_the_manifest_says_what_made_the_run(live: Path) -> None:
    experiment = small()
    for method in METHODS:
        place = folder(live, method)
        manifest = json.loads((place / "manifest.json").read_text())
        assert manifest["config"] == experiment.model_dump(mode="json")
        assert (manifest["method"], manifest["seed"], manifest["status"]) == (
            method, 0, "finished",
        )  # fmt: skip
        assert place.parent.name == f"{method}-{manifest['hash']}"
        assert (manifest["population_initial"], manifest["subset_size"]) == (6, 3)
        assert manifest["counts"]["requests"] == 4
        assert manifest["mobility"]["sumo"] == manifest["versions"]["eclipse-sumo"]
        assert manifest["mobility"]["scenario"] == "city_grid"
        assert manifest["versions"]["eclipse-sumo"]
        assert re.fullmatch(r"[0-9a-f]{16}", manifest["data"]["fingerprint"])
        assert manifest["data"]["smallest_client"] >= 2
        assert manifest["schema"] == 4
        assert manifest["host"]["cores"] >= 1
        assert manifest["wall_s"] > 0


def test_all_methods_saw_the_same_traffic(live: Path) -> None:
    (trace,) = {(folder(live, method) / "trace.csv").read_bytes() for method in METHODS}
    assert trace.count(b"join") > 6


def test_the_same_spec_in_another_folder_gives_the_same_bytes(live: Path, tmp_path: Path) -> None:
    finish(small(), tmp_path / "again")
    for method in METHODS:
        assert exact(folder(tmp_path / "again", method)) == exact(folder(live, method))


def test_a_fresh_process_gives_the_same_bytes(live: Path, tmp_path: Path) -> None:
    done = python(
        "import sys; from pathlib import Path; from specs import *;"
        "finish(small(editing={'methods': ['fsosa']}), Path(sys.argv[1]))",
        tmp_path / "again",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert exact(folder(tmp_path / "again", "fsosa")) == exact(folder(live, "fsosa"))


@pytest.mark.parametrize("where", ["wrong", None])
def test_sumo_home_does_not_matter(
    live: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str | None
) -> None:
    if where is None:
        monkeypatch.delenv("SUMO_HOME", raising=False)
    else:
        program = tmp_path / where / "bin" / "sumo"
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\nexit 9\n")
        program.chmod(0o755)
        monkeypatch.setenv("SUMO_HOME", str(tmp_path / where))
    finish(small(editing={"methods": ["finetune"]}), tmp_path / "again")
    assert exact(folder(tmp_path / "again", "finetune")) == exact(folder(live, "finetune"))


def test_traci_gives_what_libsumo_gives(live: Path, tmp_path: Path) -> None:
    methods = {"methods": ["fsosa", "retrain"]}
    finish(small(mobility={"backend": "traci"}, editing=methods), tmp_path / "traci")
    for method in methods["methods"]:
        own, other = folder(tmp_path / "traci", method), folder(live, method)
        assert own.parent.name != other.parent.name
        assert rows(own).equals(rows(other))
        assert events(own) == events(other)
        for name in ("metrics.csv", "metrics.parquet", "model.safetensors"):
            assert (own / name).read_bytes() == (other / name).read_bytes()


def test_a_replay_of_the_trace_gives_what_the_live_run_gave(live: Path, tmp_path: Path) -> None:
    trace = folder(live, "fsosa") / "trace.csv"
    # The trace knows its own warm-up.
    mobility = {"source": "trace", "trace": trace, "warmup": None}
    finish(small(mobility=mobility), tmp_path / "replay")
    for method in METHODS:
        own, other = folder(tmp_path / "replay", method), folder(live, method)
        assert rows(own).equals(rows(other))
        assert events(own) == events(other)
        for name in ("metrics.csv", "metrics.parquet", "model.safetensors"):
            assert (own / name).read_bytes() == (other / name).read_bytes()


def test_a_replay_of_a_replay_is_the_same_again(live: Path, tmp_path: Path) -> None:
    mobility = {"source": "trace", "trace": folder(live, "fsosa") / "trace.csv"}
    editing = {"methods": ["finetune"]}
    finish(small(mobility=mobility, editing=editing), tmp_path / "first")
    mobility["trace"] = folder(tmp_path / "first", "finetune") / "trace.csv"
    finish(small(mobility=mobility, editing=editing), tmp_path / "second")
    own, other = (folder(tmp_path / name, "finetune") for name in ("second", "first"))
    assert rows(own).equals(rows(other))
    assert events(own) == events(other)


def test_processes_give_what_one_process_gives(live: Path, tmp_path: Path) -> None:
    finish(small(execution={"kind": "processes", "workers": 2}), tmp_path / "many")
    for method in METHODS:
        # Where the work runs is no part of the spec: even the folder has the same name.
        own, other = folder(tmp_path / "many", method), folder(live, method)
        assert own.parent.name == other.parent.name
        assert exact(own) == exact(other)


def test_another_seed_gives_another_run(live: Path, tmp_path: Path) -> None:
    finish(small(seeds=[1], editing={"methods": ["finetune"]}), tmp_path / "other")
    own, other = folder(tmp_path / "other", "finetune", 1), folder(live, "finetune")
    assert own.parent.name == other.parent.name
    assert events(own) != events(other)
    assert exact(own)["model.safetensors"] != exact(other)["model.safetensors"]
