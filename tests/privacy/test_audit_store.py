"""Whose contributions an audit fuses: those of the store, and nobody trains unless told to."""

import os
from pathlib import Path

import pytest
import yaml
from audited import SETTINGS, TRACE, Finished, folder

from testbed.errors import ResultsError
from testbed.execution import Clients, Store
from testbed.execution.entry import Entry, Record
from testbed.execution.layout import files, versions
from testbed.experiments.rundir import read_run
from testbed.learning.acceptance import Unusable
from testbed.learning.identity import model_key
from testbed.privacy.subject import subject
from testbed.privacy.supply import Supply
from testbed.verification.audited import audit_run

FEW = ("--shadows", 16, "--releases", 8, "--repeats", 8, "--clients", 1)
TRAIN = "the same command with --train makes them"


def below(place: Path) -> set[Path]:
    return set(place.rglob("*"))


def entries(store: Path) -> list[Path]:
    return [file.path for version in versions(store) for file in files(version)]


@pytest.fixture
def stored(ran: Finished, tmp_path: Path) -> Store:
    """A store with all that an audit of F-SOSA's run asks for."""
    store = Store(tmp_path / "store")
    parts = [client.partition for client in ran.subject.everyone]
    Clients(ran.task, store=store).train(parts)
    return store


def test_nobody_trains_for_a_store_that_is_not_there(call, runs, tmp_path):
    place, before = folder(runs, "fsosa"), below(tmp_path)
    code, out, err = call("audit", place, *FEW, "--store", tmp_path / "nosuchstore")
    assert (code, out) == (2, [])
    assert err == [
        f"error: {place}: 10 of 10 clients' contributions are not in the store "
        f"{tmp_path / 'nosuchstore'}, which does not exist; {TRAIN}, or --store names another"
    ]
    assert below(tmp_path) == before


def test_nobody_trains_for_a_run_without_a_store(call, runs, tmp_path):
    place, before = folder(runs, "fsosa"), below(tmp_path)
    code, out, err = call("audit", place, *FEW)
    assert (code, out) == (2, [])
    assert err == [
        f"error: {place}: 10 of 10 clients' contributions are missing, for its run names no store "
        f"of them; {TRAIN}, or --store names a store"
    ]
    assert below(tmp_path) == before
    _, out, _ = call("audit", place, *FEW, "--train")
    assert out[:2] == [
        "note: 10 of 10 clients' contributions are not in any store: these clients train",
        "store:  none: 0 of 10 clients' contributions found, 10 made",
    ]


def test_what_is_missing_is_counted_with_the_reason(call, runs, stored):
    """One is damaged, one gone, one of another version of the code."""
    damaged, gone, old = (stored.path(model_key_of(runs, part)) for part in (0, 1, 2))
    os.truncate(damaged, 500)
    gone.unlink()
    elsewhere = stored.folder / "1-0123456789abcdef" / old.parent.name / old.name
    elsewhere.parent.mkdir(parents=True)
    old.rename(elsewhere)
    place = folder(runs, "fsosa")
    wanted = ("audit", place, *FEW, "--store", stored.folder)
    code, _, err = call(*wanted)
    assert code == 2
    assert err == [
        f"error: {place}: 3 of 10 clients' contributions are not in the store {stored.folder} "
        f"(1 damaged and 1 of another version of the code); {TRAIN}, or --store names another"
    ]
    assert not list(place.glob("audit*"))
    code, out, _ = call(*wanted, "--train")
    assert out[0].startswith("note: 3 of 10 clients' contributions are not in the store ")
    assert out[1] == f"store:  {stored.folder}: 7 of 10 clients' contributions found, 3 made"
    assert out[2].startswith("note: Entries of the store that another version of the code has")
    again = call(*wanted)
    assert again[0] == code
    assert again[1][0] == f"store:  {stored.folder}: 10 of 10 clients' contributions found, 0 made"


def model_key_of(runs: Path, part: int) -> str:
    return model_key(Finished.of(folder(runs, "fsosa")).task, part)


def test_methods_beside_ask_for_their_own_statistic(call, runs, stored):
    """RegMean needs another statistic of the same clients; methods in rounds need none."""
    place = folder(runs, "fsosa")
    code, _, err = call("audit", place, *FEW, "--beside", "regmean", "--store", stored.folder)
    assert code == 2
    assert "10 of 10 clients' contributions are not in the store" in err[0]
    _, out, _ = call("audit", place, *FEW, "--beside", "fedrr", "--store", stored.folder)
    assert out[0] == f"store:  {stored.folder}: 10 of 10 clients' contributions found, 0 made"


def test_a_sweep_is_audited_from_its_own_store(call, tmp_path, monkeypatch):
    (tmp_path / "trace.csv").write_text(TRACE)
    mobility = {**SETTINGS["mobility"], "trace": "trace.csv"}
    config = tmp_path / "study.yaml"
    config.write_text(yaml.safe_dump({**SETTINGS, "mobility": mobility}))
    out = tmp_path / "swept"
    assert call("sweep", config, "--methods", "fsosa", "--grid", "rho=0.2", "--out", out)[0] == 0
    place = folder(next(path for path in out.iterdir() if path.is_dir() and path.name[0] != "."),
                   "fsosa")  # fmt: skip
    assert read_run(place).manifest["config"]["execution"]["store"] is None
    kept, before = entries(out / ".store"), below(out)
    code, _, err = call("audit", place, *FEW)
    trained = len(kept) // 2  # each a model and a statistic
    assert code == 2
    assert 0 < trained < 9
    assert err == [
        f"error: {place}: {9 - trained} of 9 clients' contributions are not in the store "
        f"{out / '.store'}; {TRAIN}, or --store names another"
    ]
    assert below(out) == before
    code, told, _ = call("audit", place, *FEW, "--train")
    assert told[1] == (
        f"store:  {out / '.store'}: {trained} of 9 clients' contributions found, "
        f"{9 - trained} made"
    )
    monkeypatch.chdir(place)  # also from within
    again = call("audit", ".", *FEW)
    assert again[0] == code
    assert again[1][0].endswith("/.store: 9 of 9 clients' contributions found, 0 made")


def test_from_python_clients_train_and_that_is_said(runs, tmp_path):
    """As for ``testbed reproduce``, whose own sweep leaves little to make."""
    said = []
    sizes = {"shadows": 16, "releases": 8, "repeats": 8, "clients": 1}
    done = audit_run(folder(runs, "fsosa"), (), sizes, tmp_path / "store", say=said.append)
    assert (done.clients, done.made, done.store) == (10, 10, tmp_path / "store")
    assert len(entries(tmp_path / "store")) == 20
    assert len(said) == 1
    assert "10 of 10" in said[0]


def test_a_run_with_refused_uploads_asks_the_store_as_well(ran, stored):
    """What was learned decides who is in it, so its clients are asked when it is followed."""
    read = read_run(ran.folder)
    refused = {**read.manifest, "counts": {**read.manifest["counts"], "refused": 1}}

    def follow(store: Store | None) -> Supply:
        supply = Supply(Clients(ran.task, store=store), "run", train_missing=False)
        subject(ran.experiment, ran.task, supply, ran.folder, refused, read.metrics)
        return supply

    supply = follow(stored)
    assert supply.asked
    assert not supply.made
    assert supply.counts.hits == 2 * len(supply.asked)
    with pytest.raises(ResultsError, match=r"^run: 4 of 4 clients' contributions are missing"):
        follow(None)


def test_a_training_that_came_to_nothing_is_no_missing_one(ran, tmp_path):
    """Its entry says so, and there is no statistic to look for."""
    store = Store(tmp_path / "store")
    nothing = Entry(Unusable("it diverged"), Record("model", 1.0, 1, 0, ""))
    store.put(model_key(ran.task, 0), nothing)
    supply = Supply(Clients(ran.task, store=store), "run", train_missing=False)
    supply.require([0], ["fisher"])
    assert (supply.asked, supply.made) == ({0}, set())
