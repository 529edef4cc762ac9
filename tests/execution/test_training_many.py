"""Training for many runs at once: each client once, whoever wants it and wherever it is done."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from federation import small

from testbed.config import Experiment
from testbed.config.schema import ExecutionConfig
from testbed.config.spec import keys
from testbed.errors import ResultsError, ShortageError
from testbed.execution import Blueprint, Clients, Crew, Store, open_crew, task_of, upkeep
from testbed.execution.crew import SerialCrew
from testbed.execution.layout import files
from testbed.execution.store import Counts
from testbed.execution.training import Report, Wanted, jobs, missing, train_all
from testbed.execution.work import flops
from testbed.experiments.run import run
from testbed.learning import classification
from testbed.learning.client import prepare
from testbed.learning.identity import model_key, statistic_key


def sweep(folder: Path) -> list[Wanted]:
    """Two values of rho, two statistics, two seeds, a second kind of Fisher; much of it twice."""
    found = []
    for rho in (0.2, 0.5):
        for seed in (0, 1):
            experiment = small(folder, editing={"rho": rho})
            found += [Wanted(experiment, seed, part, "fisher") for part in (3, 1, 2)]
            found += [Wanted(experiment, seed, part, "model") for part in (1, 2)]
    other = small(folder, fisher={"kind": "kfac"})
    return [*found, Wanted(other, 0, 3, "fisher"), Wanted(other, 0, 8, "fisher")]


def test_the_same_training_is_one_job(tmp_path: Path) -> None:
    todo = jobs(sweep(tmp_path))
    assert len(todo) == len({job.key for job in todo}) == 3 + 3 + 1
    tasks = [task_of(Blueprint.of(small(tmp_path), seed)) for seed in (0, 1)]
    by_key = {job.key: job for job in todo}
    job = by_key[model_key(tasks[1], 2)]
    assert [order[1:] for order in job.orders] == [(2, ("fisher", "model"))]
    assert job.keys == tuple(statistic_key(tasks[1], 2, each) for each in ("fisher", "model"))
    assert job.flops == sum(flops(tasks[1], 2, each) for each in (None, "fisher", "model"))
    # The Fisher of another kind belongs to the same training, and not the model to train twice.
    job = by_key[model_key(tasks[0], 3)]
    assert [order[1:] for order in job.orders] == [(3, ("fisher",)), (3, ("fisher",))]
    assert len(set(job.keys)) == 2


def test_long_work_comes_first_within_a_task(tmp_path: Path) -> None:
    experiment = small(tmp_path)
    todo = jobs(Wanted(experiment, seed, part, "model") for seed in (4, 3) for part in range(9))
    for seed, own in ((4, todo[:9]), (3, todo[9:])):
        assert [job.orders[0][0].seed for job in own] == [seed] * 9
        sizes = [
            len(task_of(Blueprint.of(experiment, seed)).parts[job.orders[0][1]]) for job in own
        ]
        assert sizes == sorted(sizes, reverse=True)


def test_everybody_trains_once_and_then_nobody(tmp_path: Path, trainings: list[int]) -> None:
    store, told = Store(tmp_path / "store"), []
    todo = jobs(sweep(tmp_path))
    assert missing(todo, store) == todo
    report = train_all(todo, SerialCrew(), store, told.append)
    assert report == Report(trained=7, reused=0, failed=0)
    assert told == list(range(8))
    assert sorted(trainings) == [1, 1, 2, 2, 3, 3, 8]
    assert missing(todo, store) == ()
    told.clear()
    assert train_all(todo, SerialCrew(), store, told.append) == Report(0, 7, 0)
    assert told == [7]
    assert len(trainings) == 7


def test_only_the_missing_statistic_is_computed(tmp_path: Path, trainings: list[int]) -> None:
    store = Store(tmp_path / "store")
    todo = jobs([Wanted(small(tmp_path), 0, part, "fisher") for part in range(3)])
    train_all(todo, SerialCrew(), store)
    trainings.clear()
    store.path(todo[1].keys[0]).unlink()
    assert missing(todo, store) == (todo[1],)
    assert train_all(todo, SerialCrew(), store) == Report(trained=0, reused=3, failed=0)
    assert store.path(todo[1].keys[0]).exists()
    assert trainings == []


def test_runs_after_it_train_nobody(tmp_path: Path, trainings: list[int]) -> None:
    experiment = small(
        tmp_path,
        execution={"store": tmp_path / "store"},
        editing={"methods": ["fsosa", "retrain", "fedavg"]},
    )
    wanted = [
        Wanted(experiment, 0, part, each) for part in range(9) for each in ("fisher", "model")
    ]
    train_all(jobs(wanted), SerialCrew(), Store(tmp_path / "store"))
    assert sorted(trainings) == list(range(9))
    for _ in run(experiment, tmp_path / "out"):
        pass
    assert len(trainings) == 9


def test_an_error_of_the_machine_stops_nobody_else_and_is_met_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = classification.Classification.train

    def train(self: classification.Classification, part: int, *rest: Any) -> Any:
        if part == 2 and self.recipe.lr:
            raise MemoryError("no room")
        return really(self, part, *rest)

    monkeypatch.setattr(classification.Classification, "train", train)
    store = Store(tmp_path / "store")
    todo = jobs([Wanted(small(tmp_path), 0, part, "fisher") for part in (1, 2, 3)])
    assert train_all(todo, SerialCrew(), store) == Report(trained=2, reused=0, failed=1)
    assert [job.orders[0][1] for job in missing(todo, store)] == [2]
    assert train_all(todo, SerialCrew(), store) == Report(trained=0, reused=2, failed=1)
    with pytest.raises(ShortageError, match="client of partition 2: the memory of this machine"):
        Clients(task_of(todo[0].orders[0][0]), store=store).train([1, 2])


def test_a_full_disk_stops_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    todo = jobs([Wanted(small(tmp_path), 0, part, "fisher") for part in (1, 2)])
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResultsError, match="No space left on device; free some space"):
        train_all(todo, SerialCrew(), Store(tmp_path / "store"))


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    with open_crew(ExecutionConfig(kind="processes", workers=2)) as crew:
        yield crew


def test_processes_leave_what_one_process_leaves(tmp_path: Path, crew: Crew) -> None:
    todo, told = jobs(sweep(tmp_path)), []
    one, many = Store(tmp_path / "one"), Store(tmp_path / "many")
    train_all(todo, SerialCrew(), one)
    assert train_all(todo, crew, many, told.append) == Report(7, 0, 0)
    assert told == list(range(8))
    entries = {file.path.name for file in files(one.folder / one.version)}
    assert entries == {file.path.name for file in files(many.folder / many.version)}
    for key in entries:
        assert one.get(key).message == many.get(key).message
        assert one.get(key).record.flops == many.get(key).record.flops


def everybody(experiment: Experiment, folder: Path) -> int:
    """Train for a store that others write to; the number of clients done."""
    todo = jobs(Wanted(experiment, 0, part, "fisher") for part in range(9))
    report = train_all(todo, SerialCrew(), Store(folder))
    return report.trained + report.reused


def test_two_processes_may_train_for_one_store_at_once(tmp_path: Path, crew: Crew) -> None:
    store = Store(tmp_path / "store")
    experiment = small(tmp_path)
    assert list(crew.map(everybody, [experiment] * 2, [store.folder] * 2)) == [9, 9]
    found = upkeep.verify(store)
    assert (found.entries, found.damaged) == (18, ())
    assert not [file for file in files(store.folder / store.version) if file.partial]


def test_work_that_fails_is_counted_and_is_no_work_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = classification.Classification.train

    def train(self: classification.Classification, part: int, *rest: Any) -> Any:
        if part == 2 and self.recipe.lr:
            raise FloatingPointError("overflow")
        return really(self, part, *rest)

    monkeypatch.setattr(classification.Classification, "train", train)
    store = Store(tmp_path / "store")
    todo = jobs([Wanted(small(tmp_path), 0, part, "fisher") for part in (1, 2, 3)])
    assert train_all(todo, SerialCrew(), store) == Report(trained=3, reused=0, failed=1)
    assert missing(todo, store) == ()
    clients = Clients(task_of(todo[0].orders[0][0]), store=store)
    clients.train([1, 2, 3])
    assert clients.counts == Counts(hits=5)


# --- tasks -----------------------------------------------------------------------------


def test_what_does_not_matter_to_a_task_is_not_in_its_blueprint(tmp_path: Path) -> None:
    one = Blueprint.of(small(tmp_path), 0)
    other = small(
        tmp_path,
        editing={"rho": 0.9, "methods": ["retrain"]},
        mobility={"participation": 0.5},
        clients={"initial": 5},
        time={"mode": "measured"},
        execution={"kind": "processes", "store": tmp_path},
        seeds=[3, 4],
        name="other",
    )
    assert Blueprint.of(other, 0) == one
    assert task_of(Blueprint.of(other, 0)) is task_of(one)
    assert Blueprint.of(other, 1) != one


class Reading:
    """Stands for a section of an experiment and notes which keys are read."""

    def __init__(self, section: Any, prefix: str, read: set[str]) -> None:
        self._section, self._prefix, self._read = section, prefix, read

    def __getattr__(self, name: str) -> Any:
        value, path = getattr(self._section, name), f"{self._prefix}{name}"
        if path in keys():
            self._read.add(path)
            return value
        return Reading(value, f"{path}.", self._read)


def test_a_blueprint_has_every_key_that_preparing_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, read = small(tmp_path), set()
    task = prepare(Reading(experiment, "", read), 0)
    assert model_key(task, 0) == model_key(prepare(experiment, 0), 0)
    assert {"clients.pool", "data.name", "learning.lr", "fisher.kind", "fusion.temper"} <= read
    blueprint = Experiment.model_validate_json(Blueprint.of(experiment, 0).experiment)
    for path in read:
        section, _, name = path.partition(".")
        assert getattr(getattr(blueprint, section), name) == getattr(
            getattr(experiment, section), name
        )
        # Not by chance: a blueprint knows the key.
        assert f'"{name}"' in Blueprint.of(experiment, 0).experiment
