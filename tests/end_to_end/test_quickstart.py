"""The quickstart, shrunken, as a reader runs it: a real process, real SUMO, real training."""

import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pytest

from testbed.cli.running import publish
from testbed.config import load
from testbed.experiments.rundir import find_runs
from testbed.experiments.validation import FILES as RUN_FILES
from testbed.ledger import TARIFFS, totals

REPOSITORY = Path(__file__).resolve().parents[2]
TESTBED = Path(sys.executable).with_name("testbed")
QUICKSTART = REPOSITORY / "configs" / "quickstart.yaml"
METHODS = ("fsosa", "retrain", "finetune")
FIGURES = {f"{name}.{kind}" for name in ("accuracy", "time", "bytes", "population")
           for kind in ("pdf", "png")}  # fmt: skip
SHRUNKEN = {
    "mobility.warmup": "100",
    "clients": "{initial: 6, pool: 9}",
    "data.test_share": "0.85",
    "learning.epochs": "2",
    "editing.requests": "3",
}


def testbed(*arguments: object, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [TESTBED, *map(str, arguments)],
        env={**os.environ, "PYTHONWARNINGS": "error", **variables},
        capture_output=True,
        text=True,
        check=False,
    )


testbed.__test__ = False  # type: ignore[attr-defined]


def command(out: Path) -> list[object]:
    settings = [f"{key}={value}" for key, value in SHRUNKEN.items()]
    return ["run", QUICKSTART, "--out", out, *(p for s in settings for p in ("--set", s))]


@pytest.fixture(scope="session")
def ended(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, "subprocess.CompletedProcess[str]"]:
    """The results folder and what the command said; read-only."""
    out = tmp_path_factory.mktemp("results") / "quickstart"
    return out, testbed(*command(out))


@pytest.fixture(scope="session")
def out(ended: tuple[Path, "subprocess.CompletedProcess[str]"]) -> Path:
    return ended[0]


@pytest.fixture(scope="session")
def said(ended: tuple[Path, "subprocess.CompletedProcess[str]"]) -> str:
    return ended[1].stdout


def files(folder: Path) -> Mapping[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_it_ends_well_and_quietly(
    ended: tuple[Path, "subprocess.CompletedProcess[str]"],
) -> None:
    assert (ended[1].returncode, ended[1].stderr) == (0, "")


def test_plain_lines_follow_the_run(said: str) -> None:
    assert "\x1b" not in said
    lines = said.splitlines()
    for method in ("F-SOSA-U/I", "Retrain", "Fine-tune"):
        own = [line for line in lines if line.startswith(f"{method}, seed 0  phase ")]
        phases = [re.findall(r"phase ([\w-]+)", line)[0] for line in own]
        assert phases[0] == "warm-up"
        assert phases[-1] == "editing"
        assert "requests 3/3" in own[-1]
        assert re.search(r"simulated time \d+ s  population \d+", own[-1])
        assert all(name in own[-1] for name in TARIFFS)


def test_a_table_ends_it(said: str, out: Path) -> None:
    assert re.search(r"^method +accuracy +requests +edits +time", said, re.MULTILINE)
    for method in ("F-SOSA-U/I", "Retrain", "Fine-tune"):
        assert re.search(rf"^{method} +\d+\.\d % +3 +\d", said, re.MULTILINE)
    assert "change against Retrain" in said
    assert said.endswith(f"figures: {out / 'figures'}\nreport:  {out / 'report.html'}\n")
    # No line of the table is wider than a terminal.
    table = said[said.index("method  ") : said.index("Seed 0")]
    assert max(map(len, table.splitlines())) <= 80


def test_everything_is_there(out: Path) -> None:
    names = {"experiment.json", "report.html", "summary.csv", "summary.md"}
    names |= {f"figures/{name}" for name in FIGURES}
    run_files = {
        "manifest.json", "trace.csv", "ledger.csv", "ledger.parquet", "metrics.csv",
        "metrics.parquet", "model.safetensors", "report.html",
        *(f"figures/{name}" for name in FIGURES),
    }  # fmt: skip
    runs = [next(out.glob(f"{method}-*/seed=0")).relative_to(out) for method in METHODS]
    assert set(files(out)) == names | {f"{run}/{name}" for run in runs for name in run_files}


@pytest.mark.parametrize(("kind", "start"), [("pdf", b"%PDF-"), ("png", b"\x89PNG\r\n")])
def test_figures_are_figures(out: Path, kind: str, start: bytes) -> None:
    found = list(out.rglob(f"*.{kind}"))
    assert len(found) == 4 * (1 + len(METHODS))
    for path in found:
        assert path.read_bytes().startswith(start)
        assert path.stat().st_size > 5000


def test_the_report_stands_alone(out: Path) -> None:
    report = (out / "report.html").read_text()
    assert report.count("data:image/png;base64,") == 4
    assert not re.search(r"(src|href)=\"(https?:|/|figures)", report)
    for method in ("F-SOSA-U/I", "Retrain", "Fine-tune"):
        assert method in report


def test_the_printed_numbers_are_those_of_the_ledgers(out: Path, said: str) -> None:
    lines = (out / "summary.csv").read_text().splitlines()
    summary = {row["method"]: row for row in csv.DictReader(lines)}
    for run in find_runs(out):
        total = totals(run.ledger)
        row = summary[run.method]
        assert float(row["seconds"]) == pytest.approx(total.seconds, rel=1e-12)
        assert float(row["triggered"]) == total.triggered
        for name in TARIFFS:
            assert float(row[f"bytes_{name}"]) == total.bytes[name].total
        assert f"{100 * run.metrics.accuracy.iloc[-1]:.1f} %" in said


def test_the_methods_answered_the_same_requests(out: Path) -> None:
    seen = [
        run.metrics[["request", "t", "kind", "vehicle", "partition", "population"]]
        for run in find_runs(out)
    ]
    assert all(frame.equals(seen[0]) for frame in seen[1:])
    first = {run.metrics.accuracy[0] for run in find_runs(out)}
    assert len(first) == 1


def test_the_edit_costs_less_than_retraining(out: Path) -> None:
    cost = {run.method: totals(run.ledger) for run in find_runs(out)}
    assert cost["retrain"].triggered == 3
    assert cost["fsosa"].triggered <= 3
    assert cost["fsosa"].seconds <= cost["retrain"].seconds
    for name in TARIFFS:
        assert cost["fsosa"].bytes[name].total <= cost["retrain"].bytes[name].total


def test_the_manifest_carries_the_configuration(out: Path) -> None:
    experiment = load(QUICKSTART, [f"{key}={value}" for key, value in SHRUNKEN.items()])
    for run in find_runs(out):
        assert run.manifest["config"] == json.loads(experiment.model_dump_json())


def test_plot_redraws_from_the_run_folders_alone(out: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    for method in METHODS:
        own = next(out.glob(f"{method}-*/seed=0"))
        for name in ("manifest.json", *RUN_FILES):
            target = copy / own.relative_to(out) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((own / name).read_bytes())
    done = testbed("plot", copy)
    assert (done.returncode, done.stderr) == (0, "")
    before, after = files(out), files(copy)
    for name in FIGURES:
        assert after[f"figures/{name}"] == before[f"figures/{name}"]
    for name in ("report.html", "summary.csv", "summary.md"):
        assert after[name].replace(b"elsewhere", b"quickstart") == before[name]


def test_plot_draws_one_run_directory(out: Path, tmp_path: Path) -> None:
    own = next(out.glob("fsosa-*/seed=0"))
    copy = tmp_path / own.relative_to(out)
    copy.mkdir(parents=True)
    for name in ("manifest.json", *RUN_FILES):
        (copy / name).write_bytes((own / name).read_bytes())
    publish(copy)
    for name in FIGURES:
        assert (copy / "figures" / name).read_bytes() == (own / "figures" / name).read_bytes()


def test_the_second_time_nothing_is_done(out: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    done = testbed(*command(out))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("already finished; --force runs it again") == 3
    assert "phase" not in done.stdout
    assert re.search(r"^Retrain +\d", done.stdout, re.MULTILINE)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


def test_a_terminal_gets_a_panel(out: Path) -> None:
    """A pseudo-terminal, so that the panel itself is drawn; nothing is left to run."""
    script = (
        "import pty, sys;"
        "sys.exit(pty.spawn(sys.argv[1:], lambda fd: __import__('os').read(fd, 65536)) >> 8)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, TESTBED, *map(str, command(out))],
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "\x1b[" in done.stdout
    assert "already finished" in done.stdout


def test_the_ledger_reads_as_a_table(out: Path) -> None:
    own = next(out.glob("retrain-*/seed=0"))
    ledger = pd.read_csv(own / "ledger.csv")
    assert set(ledger.phase) == {
        "download", "train", "fisher", "upload", "solve", "broadcast", "evaluate",
    }  # fmt: skip
    assert set(ledger.density) == {2.0}
    assert set(ledger.rho) == {0.5}
    assert ledger.reused.any()
