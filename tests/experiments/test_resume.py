"""What of a stopped run stays in a results folder, and until when."""

import os
from pathlib import Path

import pytest
from specs import contents, exact, finish, folder, replayed

from testbed.config import Experiment
from testbed.experiments.resume import journal_of, tidy, with_store, without_store
from testbed.experiments.run import Cell, cells, run
from testbed.experiments.rundir import read_manifest
from testbed.simulation.progress import Progress


class StopError(Exception):
    """The watcher's own failure."""


def stop(out: Path, experiment: Experiment, after: int = 2, force: bool = False) -> list[Cell]:
    """Run until so many requests of the first run are done; return the cells."""

    def watch(progress: Progress) -> None:
        if progress.phase == "editing" and progress.done >= after:
            raise StopError

    with pytest.raises(StopError):
        list(run(experiment, out, force, watch))
    return list(cells(experiment, out))


def hidden(out: Path) -> set[str]:
    return {path.name for path in out.rglob(".*")}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "results"


def test_a_stopped_run_keeps_its_journal_and_what_clients_sent(trace: Path, out: Path) -> None:
    (cell,) = stop(out, replayed(trace))
    assert journal_of(cell.folder).is_file()
    assert not cell.folder.exists()
    entries = [path for path in contents(out) if path.startswith(".store/")]
    # Two clients of a subset of two, a model and a statistic each.
    assert len(entries) == 4
    finish(replayed(trace), out)
    assert hidden(out) == set()


def test_a_run_that_goes_on_asks_the_store_for_what_it_knows(trace: Path, out: Path) -> None:
    (cell,) = stop(out, replayed(trace), after=4)
    finish(replayed(trace), out)
    manifest = read_manifest(cell.folder)
    assert manifest["store"]["misses"] == 0
    assert manifest["resumed"] >= 3  # training, fusion and evaluation
    assert manifest["warnings"] == []


def test_a_named_store_is_used_and_stays(trace: Path, out: Path, tmp_path: Path) -> None:
    store = tmp_path / "mine"
    named = replayed(trace, execution={"store": store})
    assert with_store(named, out) is named
    finish(named, out)
    assert not (out / ".store").exists()
    assert len(contents(store)) >= 4
    assert with_store(replayed(trace), out).execution.store == out / ".store"


def test_a_run_without_learning_has_no_journal(trace: Path, out: Path) -> None:
    stop(out, replayed(trace, fidelity="cost"))
    assert not out.exists()


def test_a_forced_run_goes_on_while_the_finished_one_stays(trace: Path, out: Path) -> None:
    experiment = replayed(trace)
    finish(experiment, out)
    before = exact(folder(out, "fsosa"))
    (cell,) = stop(out, experiment, force=True)
    assert exact(cell.folder) == before
    assert journal_of(cell.folder).is_file()
    finish(experiment, out, force=True)
    assert read_manifest(cell.folder)["resumed"] > 0
    assert exact(cell.folder) == before
    assert hidden(out) == set()


def test_the_journal_of_a_finished_run_goes_with_the_next_command(trace: Path, out: Path) -> None:
    """A process was killed after it had renamed the folder and before it removed the journal."""
    experiment = replayed(trace)
    (cell,) = stop(out, experiment)
    journal = journal_of(cell.folder)
    content, status = journal.read_bytes(), journal.stat()
    finish(experiment, out)
    journal.write_bytes(content)
    os.utime(journal, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert [done.skipped for done in finish(experiment, out)] == [True]
    assert hidden(out) == set()


def test_the_store_stays_as_long_as_a_run_may_go_on(trace: Path, out: Path) -> None:
    """Seeds and methods may differ from command to command."""
    stop(out, replayed(trace, seeds=[1]))
    finish(replayed(trace, seeds=[0]), out)
    assert hidden(out) == {".store", ".seed=1.journal"}
    finish(replayed(trace, seeds=[0, 1]), out)
    assert hidden(out) == set()
    (out / ".store").mkdir()
    (out / "fsosa-x").mkdir()
    (out / "fsosa-x" / ".seed=3.journal").touch()
    without_store(out)
    assert (out / ".store").is_dir()


def test_methods_of_one_seed_share_what_clients_sent_over_a_stop(trace: Path, out: Path) -> None:
    both = replayed(trace, editing={"methods": ["fsosa", "retrain"]})
    finish(replayed(trace), out)

    def watch(progress: Progress) -> None:
        if progress.method == "retrain" and progress.done == 4:
            raise StopError

    with pytest.raises(StopError):
        list(run(both, out, force=True, observer=watch))
    stored = [path for path in contents(out) if path.startswith(".store/")]
    assert stored
    finish(both, out)
    assert read_manifest(folder(out, "retrain"))["store"]["misses"] == 0


def test_tidying_removes_journals_of_other_specs_only(trace: Path, out: Path) -> None:
    experiment = replayed(trace, editing={"methods": ["fsosa"]}, seeds=[0])
    kept = cells(replayed(trace, editing={"methods": ["retrain"]}, seeds=[7]), out)
    others = cells(replayed(trace, editing={"methods": ["retrain"], "rho": 0.75}), out)
    for cell in (*kept, *others):
        journal_of(cell.folder).parent.mkdir(parents=True)
        journal_of(cell.folder).write_bytes(b"torn")
    tidy(experiment, out)
    assert [path.name for path in out.iterdir()] == [cell.folder.parent.name for cell in kept]
    assert hidden(out) == {".seed=7.journal"}


def test_a_damaged_journal_costs_time_and_nothing_else(trace: Path, out: Path) -> None:
    experiment = replayed(trace)
    (cell,) = stop(out, experiment)
    journal = journal_of(cell.folder)
    content = bytearray(journal.read_bytes())
    content[len(content) // 3] ^= 1
    journal.write_bytes(content)
    finish(experiment, out)
    assert read_manifest(cell.folder)["warnings"] == []
    finish(experiment, out.with_name("other"))
    assert exact(cell.folder) == exact(folder(out.with_name("other"), "fsosa"))
