"""``testbed audit``: what it prints and leaves, its exit code, and mistakes in one line."""

import errno
import json
import os
import shutil

from audited import folder

from testbed.verification import audited

SMALL = ("--shadows", 40, "--releases", 8, "--repeats", 30, "--clients", 1)
FILES = {"audit.csv", "audit-roc.csv", "audit-verdicts.json", "audit.md"}


def test_fsosa_passes_and_files_stand_in_the_run_folder(call, runs):
    place = folder(runs, "fsosa")
    before = {path.name for path in place.iterdir()}
    store = runs.parent / "store"
    wanted = ("audit", place, *SMALL, "--beside", "finetune", "--store", store)
    code, out, err = call(*wanted, "--train")
    assert (code, err) == (0, [])
    text = "\n".join(out)
    assert (
        "fsosa: models edited when a client withdraws cannot be told from retrained ones" in text
    )
    assert "are NOT retrained ones" in text
    assert out[0] == (
        f"note: 10 of 10 clients' contributions are not in the store {store}: these clients train"
    )
    assert out[1] == f"store:  {store}: 0 of 10 clients' contributions found, 10 made"
    (rule,) = [number for number, line in enumerate(out) if line.strip().startswith("─")]
    rows = out[rule + 1 : rule + 1 + [line[:4] for line in out[rule + 1 :]].index("note")]
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
    code, out, _ = call(*wanted)
    assert code == 0
    assert out[0] == f"store:  {store}: 10 of 10 clients' contributions found, 0 made"
    assert (place / "audit.csv").read_bytes() == csv  # from the store as from training


def test_a_method_that_forgets_nothing_fails(call, runs):
    code, out, _ = call("audit", folder(runs, "finetune"), *SMALL, "--train")
    assert code == 1
    assert any("are NOT retrained ones" in line for line in out)


def test_audited_runs_are_still_runs(call, runs):
    assert call("audit", folder(runs, "fsosa"), *SMALL, "--train")[0] == 0
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
    cut = tmp_path / "cut"
    shutil.copytree(place, cut)
    (cut / "model.safetensors").write_bytes((place / "model.safetensors").read_bytes()[:300])
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("# Page")
    no_store = "not a store of clients' work; name another with --store"
    for arguments, words in (
        ([cut, "--train"], f"{cut / 'model.safetensors'}: not a model message: "),
        ([place, "--store", tmp_path / "docs", "--train"], no_store),
        ([place, "--store", tmp_path / "docs" / "page.md"], no_store),
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
    assert [path.name for path in (tmp_path / "docs").iterdir()] == ["page.md"]


def test_a_place_that_cannot_be_written_is_told_before_anything_is_done(call, runs, monkeypatch):
    def refused(**_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(audited, "TemporaryFile", refused)
    monkeypatch.setattr(audited, "prepare", None)  # what comes next
    code, _, err = call("audit", folder(runs, "fsosa"), "--train")
    assert (code, len(err)) == (2, 1), err
    assert "it cannot be (Permission denied); make it writable or audit a copy" in err[0]
