"""``testbed sweep`` and ``testbed plan`` as they are typed."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from damage import flip_bits
from rich.console import Console
from sweeps import TINY, results, summary, swept, write
from typer.testing import CliRunner, Result

from testbed.cli.app import app
from testbed.cli.meter import Meter
from testbed.execution import Store
from testbed.experiments.rundir import find_runs
from testbed.experiments.sweep import Stage

TESTBED = Path(sys.executable).with_name("testbed")


def call(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


def start(*words: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [TESTBED, *map(str, words)],
        env={**os.environ, "PYTHONWARNINGS": "error"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def everything(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*")}


# A sweep.


def test_a_sweep_tells_its_stages_its_failures_and_its_cost(tmp_path: Path) -> None:
    config, out = write(tmp_path), tmp_path / "out"
    words = ("sweep", config, "--grid", "clients.initial=4,6", "--seeds", "0:2",
             "--methods", "fsosa,fedavg", "--out", out)  # fmt: skip
    said = call(*words)
    assert said.exit_code == 1
    lines = said.output.splitlines()
    stages = [line.split()[0] for line in lines]
    assert stages.index("planning") < stages.index("training") < stages.index("running")
    assert re.search(r"^planning +8/8 runs, in ", said.output, re.MULTILINE)
    assert re.search(r"^running +8/8 runs, 4 failed, in ", said.output, re.MULTILINE)
    # One reason, told once.
    (failed,) = (line for line in lines if line.startswith("failed: "))
    assert failed.startswith(
        "failed: 4 runs, clients.initial=6 fsosa seed=0 the first: clients.initial asks for 6 "
    )
    assert len(summary(out)["failed"]) == 4
    assert f"4 runs finished; 4 failed, the same command tries them again: {out}" in lines
    (cost,) = (line for line in lines if line.startswith("cost ratio "))
    assert re.match(r"cost ratio \d+\.\d\d: \S+ s on 1 worker for \S+ s of unique work \(", cost)
    again = call(*words)
    assert again.exit_code == 1
    assert "0 runs finished; 4 were finished before; 4 failed" in again.output


def test_a_sweep_keeps_all_cores_busy_by_itself(tmp_path: Path) -> None:
    config = write(tmp_path, {key: TINY[key] for key in TINY if key != "execution"})
    said = call("sweep", config, "--grid", "rho=0.5", "--set", "execution.workers=2",
                "--methods", "fsosa", "--out", tmp_path / "out")  # fmt: skip
    assert said.exit_code == 0
    assert " s on 2 workers for " in said.output


def test_a_run_that_fails_alone_is_named_alone(tmp_path: Path) -> None:
    words = ("--grid", "clients.initial=4,6", "--methods", "fsosa", "--out", tmp_path / "out")
    said = call("sweep", write(tmp_path), *words)
    (failed,) = (line for line in said.output.splitlines() if line.startswith("failed: "))
    assert failed.startswith("failed: clients.initial=6 fsosa seed=0: clients.initial asks for 6 ")


MANY = "clients.initial=4," + ",".join(map(str, range(6, 18)))


@pytest.mark.parametrize("command", ["sweep", "plan"])
def test_of_very_many_reasons_ten_are_told(tmp_path: Path, command: str) -> None:
    config, out = write(tmp_path, clients={"pool": 20}), tmp_path / "out"
    said = call(command, config, "--grid", MANY, "--out", out)
    word, status = ("failed", 1) if command == "sweep" else ("would fail", 0)
    assert said.exit_code == status
    told = [line for line in said.output.splitlines() if line.startswith(f"{word}: ")]
    for number, line in enumerate(told[:10], start=6):
        assert line.startswith(
            f"{word}: 2 runs, clients.initial={number} fsosa seed=0 the first: "
            f"clients.initial asks for {number} vehicles"
        )
    rest = f"{word}: 4 more runs, for 2 other reasons"
    assert told[10:] == [
        f"{rest}; all stand in {out / 'sweep.json'}" if command == "sweep" else rest
    ]
    if command == "sweep":
        assert len(summary(out)["failed"]) == 24


def test_damaged_entries_of_the_store_are_told(tmp_path: Path) -> None:
    config, out = write(tmp_path), tmp_path / "out"
    words = ("sweep", config, "--grid", "rho=0.5", "--methods", "fsosa", "--out", out)
    assert "note:" not in call(*words).output
    entries = flip_bits(out / ".store")
    # A model and a statistic of each client; behind a damaged model nobody looks.
    clients = entries // 2
    shutil.rmtree(out / "rho=0.5")
    said = call(*words)
    assert said.exit_code == 0
    notes = [line for line in said.output.splitlines() if line.startswith("note: ")]
    assert notes == [f"note: Entries of the store that were damaged and made again: {clients}."]


def test_runs_of_another_schema_are_done_again_and_that_is_told(tmp_path: Path) -> None:
    config, out = write(tmp_path), tmp_path / "out"
    words = (config, "--grid", "rho=0.5,0.75", "--out", out)
    call("sweep", *words)
    manifests = sorted(out.glob("*/*/*/manifest.json"))
    assert len(manifests) == 4
    for path in manifests[:2]:
        path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 1}))
    manifests[2].write_text("{")
    why = {
        2: "their folders are not of schema version 4, the only one this testbed reads.",
        1: "their manifests are damaged or another spec's.",
    }
    planned = call("plan", *words).output.splitlines()
    said = call("sweep", *words).output.splitlines()
    assert f"3 runs finished; 1 were finished before: {out}" in said
    for lines, verb in ((planned, "would be"), (said, "were")):
        notes = [line for line in lines if line.startswith("note: ")]
        assert notes == [f"note: Runs that {verb} done again: {n}; {why[n]}" for n in why]
    assert len(find_runs(out)) == 4
    assert "note:" not in call("sweep", *words).output


def test_a_sweep_that_succeeds_ends_with_status_0(tmp_path: Path) -> None:
    config, out = write(tmp_path), tmp_path / "out"
    words = ("sweep", config, "--grid", "rho=0.5", "--out", out)
    said = call(*words)
    assert (said.exit_code, said.stderr) == (0, "")
    assert f"2 runs finished: {out}" in said.output.splitlines()
    again = call(*words)
    assert again.exit_code == 0
    assert f"0 runs finished; 2 were finished before: {out}" in again.output.splitlines()
    assert "cost ratio" not in again.output


def test_the_folder_is_named_after_the_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("sweep", write(tmp_path), "--grid", "rho=0.5", "--methods", "fsosa").exit_code == 0
    assert len(find_runs(tmp_path / "results" / "sweep-tiny" / "rho=0.5")) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "a sweep needs at least one --grid KEY=V1,V2"),
        (("--grid", "rhoo=1"), "rhoo: unknown key; did you mean editing.rho?"),
        (("--grid", "rho="), "the grid has 0 cells"),
        (("--grid", "rho=0.5", "--seeds", "2:2"), "the grid has 0 cells"),
        (("--grid", "rho=0.5", "--seeds", "0:10001"), "the grid has 20,002 cells, more than"),
        (("--grid", "rho=0.5", "--set", "clients.poool=3"), "did you mean clients.pool?"),
    ],
)
@pytest.mark.parametrize("command", ["sweep", "plan"])
def test_a_mistake_is_one_line_and_leaves_nothing(
    tmp_path: Path, command: str, words: tuple[str, ...], message: str
) -> None:
    config = write(tmp_path)
    before = everything(tmp_path)
    said = call(command, config, *words, "--out", tmp_path / "out")
    assert message in str(said.exception)
    assert "\n" not in str(said.exception)
    assert everything(tmp_path) == before


def test_a_mistake_is_told_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from testbed.cli import main\n"
        "try: main()\n"
        "finally: print([m for m in ('torch', 'pandas', 'libsumo', 'simpy') if m in sys.modules])"
    )
    words = [sys.executable, "-c", code, "sweep", write(tmp_path), "--grid", "rhoo=1"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "[]\n")
    assert done.stderr == "error: rhoo: unknown key; did you mean editing.rho?\n"


# Ctrl-C.


def test_ctrl_c_says_how_to_go_on_and_the_same_command_does(tmp_path: Path) -> None:
    config = write(
        tmp_path, learning={"epochs": 60}, execution={"kind": "processes", "workers": 2}
    )
    words = ("sweep", config, "--grid", "rho=0.5,0.75", "--out", tmp_path / "out")
    process = start(*words)
    # A first client is stored, others are being trained.
    while not list(tmp_path.glob("out/.store/*/??/*")):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "stopped; what is done is kept, run the same command again to go on\n"
    left = everything(tmp_path / "out")
    assert not [name for name in left if "partial" in name and "/.store/" not in f"/{name}"]
    assert not [name for name in left if name.startswith(".traffic")]
    assert not [name for name in left if name.endswith("manifest.json")]
    # Where the work is done is no part of the command's results.
    grid, result, _ = swept(config, ["rho=0.5,0.75"], tmp_path / "out",
                            settings=["execution.kind=serial"])  # fmt: skip
    assert (result.failed, result.skipped, result.cost.runs) == ({}, 0, 4)
    swept(config, ["rho=0.5,0.75"], tmp_path / "whole", settings=["execution.kind=serial"])
    assert results(tmp_path / "out", grid.points) == results(tmp_path / "whole", grid.points)


# A plan.


def test_a_plan_says_what_a_sweep_would_take_and_changes_nothing(tmp_path: Path) -> None:
    config, out = write(tmp_path), tmp_path / "out"
    words = (config, "--grid", "rho=0.5,0.75", "--grid", "clients.initial=4,6", "--out", out)
    before = everything(tmp_path)
    said = call("plan", *words)
    assert (said.exit_code, said.stderr) == (0, "")
    assert everything(tmp_path) == before
    assert "runs       8 (points x seeds x methods: 4 x 1 x 2), 0 finished before" in said.output
    found = re.search(r"trainings  (\d+) unique of (\d+) asked for, 0 in the store", said.output)
    assert found is not None
    unique, asked = map(int, found.groups())
    assert 4 <= unique <= 6 < asked
    assert re.search(r"time       about \S+ s on 1 worker: trainings \S+ s, ", said.output)
    assert "operations counted, at the rate of one measured batch" in said.output
    assert re.search(r"disk       about \S+ [kM]B in the store .*, \S+ [kM]B of res", said.output)
    (failing,) = re.findall(r"^would fail: .*", said.output, re.MULTILINE)
    assert failing.startswith(
        "would fail: 4 runs, rho=0.5,clients.initial=6 fsosa seed=0 the first: clients.initial "
    )
    # A dry run of the sweep is the same.
    dry = call("sweep", *words, "--dry-run")
    assert dry.exit_code == 0
    assert everything(tmp_path) == before
    counts = [line for line in said.output.splitlines() if line.startswith(("runs", "trainings"))]
    assert all(line in dry.output.splitlines() for line in counts)


def test_a_plan_knows_what_is_there(tmp_path: Path) -> None:
    config, out = write(tmp_path), tmp_path / "out"
    assert (
        call("sweep", config, "--grid", "rho=0.5", "--methods", "fsosa", "--out", out).exit_code
        == 0
    )
    trained = len(find_runs(out)[0].ledger)
    assert trained
    said = call("plan", config, "--grid", "rho=0.5,0.75", "--out", out).output
    assert "runs       4 (points x seeds x methods: 2 x 1 x 2), 1 finished before" in said
    found = re.search(r"trainings  (\d+) unique of (\d+) asked for, (\d+) in the store", said)
    assert found is not None
    unique, _, known = map(int, found.groups())
    assert 0 < known <= unique
    cheap = call(
        "plan", config, "--grid", "rho=0.5", "--set", "fidelity=cost", "--out", tmp_path / "cost"
    ).output
    assert "2 without learning (fidelity cost)" in cheap
    assert "trainings  0 unique of 0 asked for" in cheap


def test_a_plan_says_what_another_version_of_the_code_has_made(tmp_path: Path) -> None:
    config, out = write(tmp_path), tmp_path / "out"
    words = (config, "--grid", "rho=0.5", "--methods", "fsosa", "--out", out)
    call("sweep", *words)
    store = Store(out / ".store")
    entries = sum(path.is_file() for path in store.folder.rglob("*"))
    assert entries
    (store.folder / store.version).rename(store.folder / "1-0123456789abcdef")
    shutil.rmtree(out / "rho=0.5")
    note = (
        f"note: Entries of the store that another version of the code has made, not used: "
        f"{entries}; `testbed store prune` removes them."
    )
    said = call("plan", *words).output
    assert "0 in the store" in said
    assert note in said.splitlines()
    assert note in call("sweep", *words).output.splitlines()


@pytest.mark.parametrize("words", [("plan",), ("sweep", "--dry-run")])
def test_a_plan_of_which_nothing_can_be_done_says_why_and_nothing_else(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    config, out = write(tmp_path), tmp_path / "out"
    said = call(*words, config, "--grid", "clients.initial=6", "--out", out)
    assert said.exit_code == 1
    first, *rest = [line for line in said.output.splitlines() if not line.startswith("planning")]
    assert first == "runs       2 (points x seeds x methods: 1 x 1 x 2), 0 finished before"
    (failing,) = rest
    assert failing.startswith("would fail: 2 runs, clients.initial=6 fsosa seed=0 the first: ")
    assert not out.exists()


def test_a_plan_of_a_finished_sweep_ends_with_status_0(tmp_path: Path) -> None:
    words = (write(tmp_path), "--grid", "rho=0.5", "--methods", "fsosa", "--out", tmp_path / "out")
    assert call("sweep", *words).exit_code == 0
    said = call("plan", *words)
    assert said.exit_code == 0
    assert "1 finished before" in said.output
    assert "trainings  0 unique of 0 asked for, 0 in the store" in said.output


# Progress.


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def lines(stages: list[tuple[float, Stage]]) -> list[str]:
    """Return what is printed where there is no terminal, at the seconds given."""
    stream, clock = io.StringIO(), Clock()
    with Meter(Console(file=stream, force_terminal=False), clock) as meter:
        for clock.now, stage in stages:
            meter(stage)
    return stream.getvalue().splitlines()


def test_plain_lines_come_with_each_stage_then_every_few_seconds() -> None:
    assert lines(
        [
            (0, Stage("planning", 1, 2, 0.5, 0)),
            (1, Stage("planning", 2, 2, 1.0, 0)),
            (2, Stage("training", 0, 40, 0.0, 0)),
            (4, Stage("training", 1, 40, 0.1, 0)),
            (12, Stage("training", 10, 40, 0.25, 0)),
            (15, Stage("training", 11, 40, 0.3, 0)),
            (42, Stage("training", 40, 40, 1.0, 0)),
            (50, Stage("running", 1, 8, 0.5, 1)),
            (170, Stage("running", 8, 8, 1.0, 1)),
        ]
    ) == [
        "planning  1/2 runs",
        "planning  2/2 runs, in 1.00 s",
        "training  0/40 clients",
        # A quarter took 10 seconds.
        "training  10/40 clients, 30.0 s left",
        "training  40/40 clients, in 40.0 s",
        "running  1/8 runs, 1 failed",
        "running  8/8 runs, 1 failed, in 2.00 min",
    ]


def test_a_terminal_has_a_bar_for_each_stage() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80, _environ={"TERM": "xterm"})
    clock = Clock()
    with Meter(console, clock) as meter:
        meter(Stage("planning", 2, 2, 1.0, 0))
        meter(Stage("running", 0, 8, 0.0, 0))
        clock.now = 10.0
        meter(Stage("running", 4, 8, 0.5, 2))
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert "planning" in shown
    assert "2/2 runs, in 0 s" in shown
    assert "4/8 runs, 2 failed, 10.0 s left" in shown
