"""``testbed audit``: what it prints and leaves, its exit code, and mistakes in one line."""

import json
import shutil
import signal
import sys

import pytest

from testbed.cli import main

SMALL = ("--shadows", 40, "--releases", 8, "--repeats", 30, "--clients", 1)
FILES = {"audit.csv", "audit-roc.csv", "audit-verdicts.json", "audit.md"}


@pytest.fixture
def call(monkeypatch, capfd):
    """Return a function that runs ``testbed``: its exit code and what it wrote."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def command(*arguments):
        monkeypatch.setattr(sys, "argv", ["testbed", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ending:
            main()
        told = capfd.readouterr()
        return int(ending.value.code or 0), told.out.splitlines(), told.err.splitlines()

    yield command
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def runs(results, tmp_path):
    """A copy of the finished runs."""
    shutil.copytree(results, tmp_path / "results")
    return tmp_path / "results"


def folder(runs, method):
    (found,) = runs.glob(f"{method}-*/seed=0")
    return found


def test_fsosa_passes_and_files_stand_in_the_run_folder(call, runs):
    place = folder(runs, "fsosa")
    before = {path.name for path in place.iterdir()}
    store = runs.parent / "store"
    code, out, err = call("audit", place, *SMALL, "--beside", "finetune", "--store", store)
    assert (code, err) == (0, [])
    text = "\n".join(out)
    assert (
        "fsosa: models edited when a client withdraws cannot be told from retrained ones" in text
    )
    assert "are NOT retrained ones" in text
    assert out[0].startswith("store:  0 found, ")
    rule, note = (
        next(number for number, line in enumerate(out) if line.strip().startswith(start))
        for start in ("─", "note")
    )
    rows = out[rule + 1 : note]
    assert rows
    assert max(map(len, rows)) <= 80
    assert {line.split()[0] for line in rows} <= {"released", "fresh", "withdrawn"}  # none folded
    assert out[-2] == f"audit:  {place / 'audit.md'}"
    assert {path.name for path in place.iterdir()} - before == {*FILES, "figures"}
    assert {path.name for path in (place / "figures").iterdir()} == {
        "audit-roc.pdf",
        "audit-roc.png",
    }
    assert any(store.rglob("*"))
    csv = (place / "audit.csv").read_bytes()
    again = call("audit", place, *SMALL, "--beside", "finetune", "--store", store)
    assert again[0] == 0
    assert (place / "audit.csv").read_bytes() == csv  # from the store as from training


def test_a_method_that_forgets_nothing_fails(call, runs):
    code, out, _ = call("audit", folder(runs, "finetune"), *SMALL)
    assert code == 1
    assert any("are NOT retrained ones" in line for line in out)


def test_audited_runs_are_still_runs(call, runs):
    assert call("audit", folder(runs, "fsosa"), *SMALL)[0] == 0
    code, _, err = call("plot", runs)
    assert (code, err) == (0, [])


def test_mistakes_are_one_line(call, runs, tmp_path):
    place = folder(runs, "fsosa")
    cost = tmp_path / "cost"
    shutil.copytree(place, cost)
    manifest = json.loads((cost / "manifest.json").read_text())
    manifest["config"]["fidelity"] = "cost"
    (cost / "manifest.json").write_text(json.dumps(manifest))
    other = tmp_path / "other"
    shutil.copytree(place, other)
    manifest["schema"] = 1
    (other / "manifest.json").write_text(json.dumps(manifest))
    for arguments, words in (
        ([tmp_path / "nothing"], "not a run directory; name one that `testbed run` made"),
        ([runs], f"not a run directory; name one such as {folder(runs, 'finetune')}"),
        ([place, "--beside", "magic"], "--beside magic: no such method; known: fsosa, retrain"),
        ([cost], "nothing was trained (fidelity cost)"),
        ([other], "schema version 1, this testbed reads"),
    ):
        code, _, err = call("audit", *arguments)
        assert (code, len(err)) == (2, 1), err
        assert words in err[0]
    code, _, err = call("audit", place, "--repeats", 3)
    assert code == 2
    assert "--repeats" in "\n".join(err)
    assert not FILES & {path.name for path in place.iterdir()}
