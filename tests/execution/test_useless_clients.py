"""Clients of whom nothing usable comes: departures, wherever clients work.

The real command runs in a process of its own, in which every partition below seven spoils what
its client sends, each in its own way.  Workers import that program again, and so spoil too.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from testbed.config import Experiment
from testbed.errors import FusionError
from testbed.execution import Clients, work
from testbed.experiments.rundir import find_runs
from testbed.learning.acceptance import Unusable
from testbed.learning.client import prepare
from testbed.learning.contribution import Contribution, deserialise, deserialise_model
from testbed.learning.task import Task
from testbed.reporting.names import label

SPOILING = """
from dataclasses import replace

import torch
from testbed.execution import work
from testbed.learning.classification import Classification
from testbed.learning.contribution import deserialise, serialise
from testbed.learning.factors import Diagonal

train, inform, answer, model = (
    Classification.train, work.contribute, work._inform, work._tune
)
NAN, BENT, TRAINING, FISHER = 3, 4, 5, 6


def train_client(task, part, start, session):
    if part == TRAINING and task.recipe.lr:  # the warm-up stands still
        raise FloatingPointError("overflow")
    return train(task, part, start, session)


def inform_client(task, part, state, statistic):
    if part == FISHER:
        torch.linalg.cholesky(-torch.eye(2))
    return inform(task, part, state, statistic)


def spoilt(part, message):
    if not isinstance(message, bytes):
        return message
    return {
        0: lambda: message[:-1],
        1: lambda: b"\\x00" * 16 + message[16:],
        2: lambda: b"",
        NAN: lambda: changed(message, lambda value: value * float("nan")),
        BENT: lambda: changed(message, lambda value: value[:1]),
    }.get(part, lambda: message)()


def changed(message, change):
    sent = deserialise(message)
    name = "0"
    fisher = {**sent.fisher, name: Diagonal(change(sent.fisher[name].f))}
    return serialise(replace(sent, fisher=fisher))


def answered(task, part, state, statistic):
    sent = answer(task, part, state, statistic)
    return replace(sent, message=spoilt(part, sent.message))


def tuned(task, part, start, session):
    sent = model(task, part, start, session)
    first = start is task.initial
    return replace(sent, message=sent.message[:-1]) if part == 0 and not first else sent


Classification.train, work.contribute = train_client, inform_client
work._inform, work._tune = answered, tuned

if __name__ == "__main__":
    from testbed.cli import main
    main()
"""
USEFUL = 3
CONFIG = """
name: useless
mobility: {source: trace, trace: rounds.csv, warmup: 10}
clients: {initial: 10, pool: 10}
data: {test_share: 0.85}
learning: {model: small-cnn, epochs: 1, lr: 0.05, batch: 16}
fisher: {kind: diagonal}
editing: {requests: 20, rho: 0.99, methods: [fsosa, finetune]}
"""
REASONS = {
    0: "not a contribution message: ",
    1: "not a contribution message: ",
    2: "not a contribution message: ",
    3: "the Fisher of 0 holds NaN or infinite numbers",
    4: "the Fisher of 0 has shape (1, 10), not (32, 10)",
    5: "FloatingPointError: overflow",
    6: "LinAlgError: linalg.cholesky: ",
}
PHASES = {5: "train", 6: "fisher"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same runs by both executors, and what they printed; read-only."""
    folder = tmp_path_factory.mktemp("useless")
    (folder / "spoiling.py").write_text(SPOILING)
    (folder / "useless.yaml").write_text(CONFIG)
    # Everybody at the start; then one after the other leaves and comes back with its data.
    lines = [f"1.0,{name},join" for name in "abcdefghij"]
    for number, name in enumerate("abcdefghij"):
        lines += [f"{20 + 2 * number}.0,{name},leave", f"{21 + 2 * number}.0,{name},join"]
    (folder / "rounds.csv").write_text("\n".join(["time,vehicle,kind", *lines, ""]))
    for kind in ("serial", "processes"):
        done = subprocess.run(
            [
                sys.executable, "spoiling.py", "run", "useless.yaml", "--out", kind,
                "--set", f"execution.kind={kind}", "--set", "execution.workers=1",
            ],
            cwd=folder, capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200"},
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        (folder / f"{kind}.txt").write_text(done.stdout)
    return folder


def method(place: Path, name: str) -> Path:
    (found,) = (place / "processes").glob(f"{name}-*/seed=0")
    return found


def ledger(run: Path) -> pd.DataFrame:
    return pd.read_parquet(run / "ledger.parquet")


def test_both_executors_leave_the_same_bytes(place: Path) -> None:
    one, other = place / "serial", place / "processes"
    names = [path.relative_to(one) for path in one.rglob("*") if path.is_file()]
    assert {"ledger.csv", "metrics.parquet", "model.safetensors"} <= {name.name for name in names}
    # The executor, and so the wall-clock time, stands in the manifest and in the report.
    exact = [name for name in names if name.name not in ("manifest.json", "report.html")]
    assert [path.relative_to(other) for path in other.rglob("*") if path.is_file()] == names
    for name in exact:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    manifests = []
    for folder in (one, other):
        (path,) = folder.glob("fsosa-*/seed=0/manifest.json")
        manifest = json.loads(path.read_text())
        del manifest["wall_s"], manifest["config"]["execution"]
        manifests.append(manifest)
    assert manifests[0] == manifests[1]


def test_ledger_metrics_and_warnings_say_who_and_why(place: Path) -> None:
    run = method(place, "fsosa")
    manifest = json.loads((run / "manifest.json").read_text())
    metrics = pd.read_parquet(run / "metrics.parquet")
    assert (manifest["population_initial"], manifest["counts"]["refused"]) == (10, 14)
    assert metrics["population"].iloc[0] == USEFUL
    assert set(metrics["population"]) == {USEFUL - 1, USEFUL}
    rows = ledger(run)
    first = rows[(rows["request"] == 0) & (rows["result"] != "ok")]
    assert len(first) == len(REASONS)
    partition = dict(zip(metrics["vehicle"], metrics["partition"], strict=True))
    for vehicle, phase, result in first[["vehicle", "phase", "result"]].to_numpy():
        part = partition[vehicle]
        assert (phase, result) == (PHASES.get(part, "upload"), "unusable")
        what = {5: "training", 6: "Fisher information"}.get(part, "upload")
        start = f"The {what} of vehicle {vehicle} (partition {part}) at request 0 "
        (warning,) = [each for each in manifest["warnings"] if each.startswith(start)]
        verb = "failed" if part in PHASES else "was refused"
        reason = f"{verb} and the vehicle treated as if it had left: {REASONS[part]}"
        assert reason in warning
        assert "\n" not in warning


def test_what_failed_is_the_last_thing_billed(place: Path) -> None:
    rows = ledger(method(place, "fsosa"))
    for _, steps in rows.groupby(["request", "vehicle"]):
        results = list(steps["result"])
        assert set(results[:-1]) <= {"ok"}
        if results[-1] == "unusable":
            order = ("download", "train", "fisher", "upload")
            last = steps["phase"].iloc[-1]
            assert tuple(steps["phase"]) == order[: order.index(last) + 1]
    sent = rows[rows["phase"] == "upload"]
    assert sent["bytes_up"].nunique() == 1  # a broken message was on the air in full


def test_every_return_of_a_useless_client_is_refused_again(place: Path) -> None:
    for name in ("fsosa", "finetune"):
        metrics = pd.read_parquet(method(place, name) / "metrics.parquet")
        rows = ledger(method(place, name))
        bad = set(rows[(rows["result"] == "unusable") & (rows["request"] > 0)]["request"])
        returns = metrics[metrics["kind"] == "join"]
        # Tuning goes without a Fisher, and only partition 0 breaks the message of a model.
        useless = set(REASONS) if name == "fsosa" else {0, 5}
        assert set(returns[returns["partition"].isin(useless)]["request"]) == bad


def test_a_model_that_cannot_be_read_is_refused_like_a_contribution(place: Path) -> None:
    warnings = json.loads((method(place, "finetune") / "manifest.json").read_text())["warnings"]
    (one,) = [each for each in warnings if "not a model message: " in each]
    assert "(partition 0)" in one


def test_report_and_terminal_list_every_one(place: Path) -> None:
    report = (place / "processes" / "report.html").read_text()
    for kind in ("serial", "processes"):
        printed = (place / f"{kind}.txt").read_text()
        for run in find_runs(place / kind):
            for warning in run.manifest["warnings"]:
                assert f"note: {label(run.method)}, seed 0: {warning}" in printed
    assert report.count("treated as if it had left") == 14 + 7 + 2


# --- one executor, by hand -------------------------------------------------------------


@pytest.fixture(scope="module")
def task() -> Task:
    experiment = Experiment.model_validate(
        {"clients": {"pool": 9}, "learning": {"epochs": 1}, "fisher": {"kind": "diagonal"}}
    )
    return prepare(experiment, seed=0)


@pytest.mark.parametrize("cut", [0, 7, 8, 100, -8, -1])
def test_whatever_is_cut_off_a_message_is_told(task: Task, cut: int) -> None:
    tuned = work.train(task, 0).message
    assert isinstance(tuned, bytes)
    trained = work.inform(task, 0, deserialise_model(tuned), "fisher").message
    for message, read in ((trained, deserialise), (tuned, deserialise_model)):
        assert isinstance(message, bytes)
        with pytest.raises(FusionError, match=r"^not a (contribution|model) message: "):
            read(message[:cut])
        answer = work.read(message[:cut], read)
        assert isinstance(answer, Unusable)
        assert answer.phase == "upload"
        assert "\n" not in answer.reason


def test_only_numbers_make_a_departure(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong with the program or the machine ends the run, as it should."""

    def failing(error: Exception) -> Clients:
        def inform(*_: object) -> Contribution:
            raise error

        monkeypatch.setattr(work, "contribute", inform)
        return Clients(task)

    for error in (ZeroDivisionError("x"), ValueError("a\n  b"), RuntimeError("svd")):
        (answer,) = failing(error).train([0])
        text = " ".join(str(error).split())
        assert answer.contribution == Unusable(f"{type(error).__name__}: {text}", "fisher")
        assert answer.train_s > 0
    for error in (
        TypeError("x"),
        KeyError("x"),
        FusionError("layer '1' is called more than once"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
    ):
        with pytest.raises(type(error)):
            failing(error).train([0])
