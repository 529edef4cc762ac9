"""What is run, what is skipped, what is refused, and what a failure leaves behind."""

import json
import os
import signal
from pathlib import Path

import pytest
from specs import contents, exact, finish, folder, python, replayed, stamps

from testbed.config import Experiment
from testbed.errors import ResultsError, ScenarioError, TestbedError
from testbed.experiments.run import cells, run
from testbed.experiments.rundir import find_runs, read_manifest, read_run
from testbed.ledger import LedgerRow
from testbed.mobility.source import open_source
from testbed.simulation.progress import Progress


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "results" / "small"


def hidden(place: Path) -> list[Path]:
    return list(place.rglob(".*"))


# Finished runs.


def test_cells_come_seed_by_seed_and_name_their_folders(trace: Path, tmp_path: Path) -> None:
    experiment = replayed(trace, seeds=[3, 1], editing={"methods": ["retrain", "fsosa"]})
    found = cells(experiment, tmp_path)
    assert [(cell.method, cell.seed) for cell in found] == [
        ("retrain", 3), ("fsosa", 3), ("retrain", 1), ("fsosa", 1),
    ]  # fmt: skip
    assert {cell.folder.name for cell in found} == {"seed=3", "seed=1"}
    assert all(cell.folder.parent.name.startswith(f"{cell.method}-") for cell in found)


def test_a_finished_spec_is_left_alone_and_nothing_is_simulated(
    trace: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = replayed(trace)
    assert [done.skipped for done in finish(experiment, out)] == [False]
    before = stamps(out)
    # Neither the traffic nor the data are looked at.
    trace.unlink()
    monkeypatch.setattr("testbed.experiments.run.task_of", None)
    monkeypatch.setattr("testbed.experiments.run.open_source", None)
    assert [done.skipped for done in run(experiment, out)] == [True]
    assert stamps(out) == before


def test_force_does_it_again(trace: Path, out: Path) -> None:
    experiment = replayed(trace)
    finish(experiment, out)
    before, bytes_before = stamps(out), exact(folder(out, "fsosa"))
    assert [done.skipped for done in finish(experiment, out, force=True)] == [False]
    after = stamps(out)
    assert after.keys() == before.keys()
    assert (
        after[str(folder(out, "fsosa") / "ledger.csv")]
        != before[str(folder(out, "fsosa") / "ledger.csv")]
    )
    assert exact(folder(out, "fsosa")) == bytes_before
    assert hidden(out) == []


def test_a_method_and_a_seed_can_be_added_later(trace: Path, out: Path, tmp_path: Path) -> None:
    finish(replayed(trace), out)
    before = stamps(folder(out, "fsosa"))
    wider = replayed(trace, seeds=[0, 1], editing={"methods": ["fsosa", "retrain"]})
    done = finish(wider, out)
    assert [(d.cell.method, d.cell.seed, d.skipped) for d in done] == [
        ("fsosa", 0, True), ("retrain", 0, False), ("fsosa", 1, False), ("retrain", 1, False),
    ]  # fmt: skip
    assert stamps(folder(out, "fsosa", 0)) == before
    finish(wider, tmp_path / "at-once")
    for method in ("fsosa", "retrain"):
        for seed in (0, 1):
            own = exact(folder(out, method, seed))
            assert own == exact(folder(tmp_path / "at-once", method, seed))


def test_the_order_of_methods_and_what_ran_before_do_not_matter(
    trace: Path, tmp_path: Path
) -> None:
    orders = (["fsosa", "retrain", "finetune"], ["finetune", "retrain", "fsosa"])
    for number, methods in enumerate(orders):
        finish(replayed(trace, editing={"methods": methods}), tmp_path / str(number))
    for method in orders[0]:
        own, other = (folder(tmp_path / str(number), method) for number in (0, 1))
        assert own.parent.name == other.parent.name
        assert exact(own) == exact(other)


def test_the_name_and_the_execution_are_no_part_of_the_spec(trace: Path, out: Path) -> None:
    finish(replayed(trace), out)
    renamed = replayed(trace, name="other", execution={"kind": "processes"})
    assert [done.skipped for done in finish(renamed, out)] == [True]


def test_a_finished_run_reads_back(trace: Path, out: Path) -> None:
    finish(replayed(trace), out)
    (found,) = find_runs(out)
    assert found.manifest == read_manifest(found.folder)
    assert found.ledger == read_run(found.folder).ledger
    assert (found.method, found.seed) == ("fsosa", 0)
    assert all(isinstance(row, LedgerRow) for row in found.ledger)
    assert len(found.metrics) == 5
    (alone,) = find_runs(found.folder)
    assert alone.ledger == found.ledger


# Refusals.


def refused(experiment: Experiment, out: Path) -> str:
    with pytest.raises(ResultsError) as caught:
        finish(experiment, out)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"editing": {"rho": 0.75}}, "editing.rho: 0.5 there, 0.75 here"),
        ({"editing": {"requests": 2}}, "editing.requests: 4 there, 2 here"),
        ({"clients": {"pool": 7}}, "clients.pool: 6 there, 7 here"),
        ({"time": {"mode": "measured"}}, "time.mode: modelled there, measured here"),
    ],
)
def test_results_of_another_spec_are_refused_with_the_key(
    trace: Path, out: Path, sections: dict[str, object], key: str
) -> None:
    finish(replayed(trace), out)
    before = stamps(out)
    message = refused(replayed(trace, **sections), out)
    assert key in message
    assert "holds results of another spec" in message
    assert "--out" in message
    assert stamps(out) == before


def test_force_does_not_mix_specs_either(trace: Path, out: Path) -> None:
    finish(replayed(trace), out)
    with pytest.raises(ResultsError, match=r"editing\.rho"):
        finish(replayed(trace, editing={"rho": 0.75}), out, force=True)


def test_a_folder_with_something_else_in_it_is_refused(trace: Path, out: Path) -> None:
    out.mkdir(parents=True)
    (out / "thesis.tex").write_text("chapter one")
    assert "not empty and not a results folder" in refused(replayed(trace), out)
    assert contents(out) == {"thesis.tex": b"chapter one"}


def test_an_empty_folder_and_one_with_hidden_files_are_taken(trace: Path, out: Path) -> None:
    out.mkdir(parents=True)
    (out / ".gitignore").write_text("*")
    assert [done.skipped for done in finish(replayed(trace), out)] == [False]
    assert (out / ".gitignore").read_text() == "*"


@pytest.mark.parametrize("mark", ["", "[]", "{", '"text"', "\udcff"])
def test_a_broken_mark_is_refused(trace: Path, out: Path, mark: str) -> None:
    finish(replayed(trace), out)
    (out / "experiment.json").write_bytes(mark.encode("utf-8", "surrogateescape"))
    assert "experiment.json: unreadable" in refused(replayed(trace), out)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not a readable manifest"),
        ("{", "not a readable manifest"),
        ("[]", "schema version None"),
        ('{"schema": 99}', "schema version 99, this testbed reads 4"),
        (
            '{"schema": 4, "hash": "00000000", "seed": 0, "status": "finished"}',
            "its manifest belongs to another spec (00000000, expected",
        ),
    ],
)
def test_a_damaged_manifest_is_refused_and_force_repairs_it(
    trace: Path, out: Path, content: str, message: str
) -> None:
    experiment = replayed(trace)
    finish(experiment, out)
    (folder(out, "fsosa") / "manifest.json").write_text(content)
    told = refused(experiment, out)
    assert message in told
    assert "--force" in told or "remove that folder" in told
    finish(experiment, out, force=True)
    assert read_manifest(folder(out, "fsosa"))["status"] == "finished"


def test_a_run_that_lost_its_manifest_is_run_again(trace: Path, out: Path) -> None:
    experiment = replayed(trace)
    finish(experiment, out)
    (folder(out, "fsosa") / "manifest.json").unlink()
    assert [done.skipped for done in finish(experiment, out)] == [False]


@pytest.mark.parametrize("damage", ["ledger.parquet", "metrics.parquet"])
def test_damaged_tables_are_told(trace: Path, out: Path, damage: str) -> None:
    finish(replayed(trace), out)
    (folder(out, "fsosa") / damage).write_bytes(b"PAR1 but not for long")
    with pytest.raises(ResultsError, match=r"damaged run .*remove that folder"):
        find_runs(out)
    (folder(out, "fsosa") / damage).unlink()
    with pytest.raises(ResultsError, match=r"damaged run \(missing\).*remove that folder"):
        find_runs(out)


def test_no_results_are_told(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no such results folder"):
        find_runs(tmp_path / "nowhere")
    with pytest.raises(ResultsError, match="holds no finished run"):
        find_runs(tmp_path)


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/no/such/place", "a" * 300])
def test_an_unwritable_folder_is_told(trace: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("mine")
    message = refused(replayed(trace), tmp_path / place)
    assert str(place) in message
    assert "--out" in message
    assert contents(tmp_path) == {"file": b"mine", "minute.csv": trace.read_bytes()}


# Failures.


class StopError(Exception):
    """The watcher's own failure."""


def stop_at(phase: str):
    def watch(progress: Progress) -> None:
        if progress.phase == phase:
            raise StopError

    return watch


def test_a_run_that_fails_before_it_learns_leaves_nothing(
    trace: Path, tmp_path: Path, out: Path
) -> None:
    with pytest.raises(StopError):
        list(run(replayed(trace), out, observer=stop_at("warm-up")))
    assert not out.exists()
    assert sorted(contents(tmp_path)) == ["minute.csv"]
    out.mkdir(parents=True)
    with pytest.raises(StopError):
        list(run(replayed(trace), out, observer=stop_at("warm-up")))
    assert list(out.iterdir()) == []


def seen(out: Path) -> list[str]:
    """Return the files in a results folder, and those of its journals and of its own store."""
    return sorted(
        ".store" if path.startswith(".store") else Path(path).name for path in contents(out)
    )


def test_a_failing_run_leaves_what_it_has_learned_and_goes_on(trace: Path, out: Path) -> None:
    experiment = replayed(trace)
    with pytest.raises(StopError):
        list(run(experiment, out, observer=stop_at("editing")))
    assert set(seen(out)) == {".store", ".seed=0.journal", "experiment.json"}
    assert [done.skipped for done in finish(experiment, out)] == [False]
    assert read_manifest(folder(out, "fsosa"))["resumed"] > 0
    assert hidden(out) == []


def test_a_corrected_mistake_can_be_run_in_the_same_folder(trace: Path, out: Path) -> None:
    with pytest.raises(ScenarioError, match=r"clients\.initial"):
        finish(replayed(trace, clients={"initial": 6}), out)
    assert [done.skipped for done in finish(replayed(trace), out)] == [False]


def test_a_failing_run_keeps_what_was_finished(trace: Path, out: Path) -> None:
    finish(replayed(trace), out)
    before = contents(out)
    with pytest.raises(StopError):
        list(
            run(
                replayed(trace, editing={"methods": ["fsosa", "retrain"]}),
                out,
                observer=stop_at("editing"),
            )
        )
    assert before.items() <= contents(out).items()
    assert {*seen(out)} - {*map(os.path.basename, before)} == {".store", ".seed=0.journal"}
    with pytest.raises(StopError):
        list(run(replayed(trace), out, force=True, observer=stop_at("editing")))
    assert before.items() <= contents(out).items()
    finish(replayed(trace, editing={"methods": ["fsosa", "retrain"]}), out, force=True)
    assert hidden(out) == []


def test_missing_data_is_told_and_leaves_nothing(trace: Path, out: Path) -> None:
    with pytest.raises(TestbedError, match="mnist"):
        finish(replayed(trace, data={"name": "mnist"}, learning={"model": "lenet"}), out)
    assert not out.exists()


def test_a_source_is_closed_when_a_run_fails(trace: Path, out: Path, tmp_path: Path) -> None:
    """libsumo allows one simulation in a process: the next one must be able to start."""
    live = replayed(trace, mobility={"source": "sumo", "participation": 0.25, "warmup": 50})
    with pytest.raises(StopError):
        list(run(live, out, observer=stop_at("warm-up")))
    with open_source(live.mobility, 0) as source:
        assert next(source.steps()).time == 0


KILLED = """
import os, signal, sys
from pathlib import Path
from specs import replayed
from testbed.experiments.run import run

def die(progress):
    if progress.phase == "editing":
        os.kill(os.getpid(), signal.SIGKILL)

list(run(replayed(Path(sys.argv[1])), Path(sys.argv[2]), observer=die))
"""


def test_what_a_killed_run_leaves_is_hidden_and_gone_with_the_next_run(
    trace: Path, out: Path
) -> None:
    experiment = replayed(trace)
    done = python(KILLED, trace, out)
    assert done.returncode == -signal.SIGKILL
    left = {path.parent: path.name for path in hidden(out) if ".partial-" in path.name}
    assert list(left) == [cells(experiment, out)[0].folder.parent]
    visible = [path for path in contents(out) if not any(p[0] == "." for p in Path(path).parts)]
    assert visible == ["experiment.json"]
    with pytest.raises(ResultsError, match="holds no finished run"):
        find_runs(out)
    assert [d.skipped for d in finish(experiment, out)] == [False]
    assert hidden(out) == []
    assert len(find_runs(out)) == 1


def test_after_a_killed_run_the_spec_may_be_changed(trace: Path, out: Path) -> None:
    assert python(KILLED, trace, out).returncode == -signal.SIGKILL
    changed = replayed(trace, editing={"rho": 0.75})
    assert [done.skipped for done in finish(changed, out)] == [False]
    mark = json.loads((out / "experiment.json").read_text())
    assert mark["editing"]["rho"] == 0.75
    assert len(find_runs(out)) == 1
    assert hidden(out) == []


def test_a_running_neighbour_is_left_alone(trace: Path, out: Path) -> None:
    """A hidden folder whose process lives belongs to somebody."""
    experiment = replayed(trace)
    finish(experiment, out)
    place = cells(experiment, out)[0].folder
    theirs = place.with_name(f".{place.name}.partial-{os.getppid()}")
    theirs.mkdir()
    finish(experiment, out, force=True)
    assert theirs.is_dir()
