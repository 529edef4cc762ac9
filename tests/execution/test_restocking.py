"""Runs with a store: what was done once is not done again, and no result changes."""

import errno
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from federation import small

from testbed.config import Experiment, spec_hash
from testbed.errors import ResultsError
from testbed.execution import Clients, Store, Trained, open_executor, upkeep
from testbed.execution.entry import Entry, Record
from testbed.execution.layout import files
from testbed.execution.store import Counts
from testbed.experiments.run import run
from testbed.learning.acceptance import Unusable
from testbed.learning.classification import Classification
from testbed.learning.client import prepare
from testbed.learning.contribution import serialise
from testbed.learning.identity import model_key, statistic_key
from testbed.learning.task import Task
from testbed.mobility import open_source
from testbed.simulation.world import World


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return prepare(small(tmp_path_factory.mktemp("task")), 0)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def messages(answers: Sequence[Trained]) -> list[bytes]:
    return [serialise(answer.contribution) for answer in answers]


def entries(store: Store) -> set[str]:
    return {file.path.name for file in files(store.folder / store.version)}


def stored(folder: Path, **sections: Any) -> Experiment:
    execution = {"store": folder / "store", **sections.pop("execution", {})}
    return small(folder, execution=execution, **sections)


def finish(experiment: Experiment, out: Path) -> dict[str, bytes]:
    """Run and return every file, the clock and the store's counts taken out of manifests."""
    for _ in run(experiment, out):
        pass
    found = {}
    for path in sorted(out.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            if path.name == "manifest.json":
                manifest = json.loads(content)
                manifest.pop("wall_s")
                manifest.pop("store", None)
                content = json.dumps(manifest).encode()
            found[str(path.relative_to(out))] = content
    return found


# --- one executor ----------------------------------------------------------------------


def test_what_comes_from_a_store_is_what_was_sent(
    task: Task, store: Store, trainings: list[int]
) -> None:
    plain = messages(Clients(task).train([4, 0, 4]))
    trainings.clear()
    cold = Clients(task, store=store)
    assert messages(cold.train([4, 0, 4])) == plain
    assert trainings == [0, 4]
    warm = Clients(task, store=Store(store.folder))
    assert messages(warm.train([4, 0, 4])) == plain
    assert trainings == [0, 4]
    # One look for each model and each statistic; of a missing model the statistic is not asked.
    assert cold.counts == Counts(misses=2)
    assert warm.counts == Counts(hits=4)
    assert Clients(task).counts is None


def test_a_hit_is_billed_as_the_training_was(task: Task, store: Store) -> None:
    (cold,) = Clients(task, store=store).train([3])
    (warm,) = Clients(task, store=store).train([3])
    assert (warm.train_s, warm.fisher_s) == (cold.train_s, cold.fisher_s)
    records = [store.record(key(task, 3)) for key in (model_key, fisher_key)]
    assert [record.seconds for record in records] == [cold.train_s, cold.fisher_s]
    assert all(record.flops > 0 and record.bytes > 1000 for record in records)
    assert records[0].what == "model, partition 3 of 9, digits, seed 0"
    assert records[1].what == "statistic fisher, partition 3 of 9, digits, seed 0"


def fisher_key(task: Task, part: int) -> str:
    return statistic_key(task, part, "fisher")


def test_all_statistics_of_a_training_share_its_model(
    task: Task, store: Store, trainings: list[int]
) -> None:
    statistics = ("fisher", "kfac+holdout", "model")
    plain = [messages(Clients(task).train([5], each)) for each in statistics]
    trainings.clear()
    for each, message in zip(statistics, plain, strict=True):
        assert messages(Clients(task, store=store).train([5], each)) == message
    assert trainings == [5]
    assert entries(store) == {
        model_key(task, 5), *(statistic_key(task, 5, each) for each in statistics),
    }  # fmt: skip
    # The model is stored once: beside it there is nothing but the number of samples.
    assert len(store.get(statistic_key(task, 5, "model")).message) < 200


@pytest.mark.parametrize("kind", ["serial", "processes"])
def test_workers_put_into_the_store_what_this_process_would(
    task: Task, tmp_path: Path, kind: str
) -> None:
    execution = {"kind": kind, "workers": 1}
    experiment = stored(tmp_path, execution=execution)
    with open_executor(experiment, 0, task) as clients:
        assert messages(clients.train([2, 7])) == messages(Clients(task).train([2, 7]))
        clients.tune([1], task.initial)
    store = Store(tmp_path / "store")
    assert entries(store) == {
        key(task, part) for part in (2, 7) for key in (model_key, fisher_key)
    }
    assert upkeep.verify(store).damaged == ()


@pytest.mark.parametrize("limit", [0, 20_000, 60_000])
def test_a_store_that_is_too_small_costs_time_only(task: Task, tmp_path: Path, limit: int) -> None:
    store = Store(tmp_path / "store", limit)
    clients = Clients(task, store=store)
    assert messages(clients.train([0, 1, 2, 3])) == messages(Clients(task).train([0, 1, 2, 3]))
    assert sum(file.bytes for file in files(store.folder / store.version)) <= limit


@dataclass(frozen=True)
class Elsewhere:
    """A crew on a machine of its own, where the store's folder is another one."""

    folder: Path
    size: int = 1

    def map(self, work: Any, *arguments: Sequence[Any]) -> Iterator[Any]:
        for each in zip(*arguments, strict=True):
            moved = [(self.folder, None) if isinstance(one, tuple) and one and
                     isinstance(one[0], Path) else one for one in each]  # fmt: skip
            yield work(*moved)


def test_what_workers_send_is_kept_where_they_share_no_folder(
    task: Task, tmp_path: Path, trainings: list[int]
) -> None:
    store = Store(tmp_path / "here")
    clients = Clients(task, Elsewhere(tmp_path / "there"), store)
    sent = messages(clients.train([1, 2]))
    assert trainings == [1, 2, 1, 2]  # once it is tried
    sent += messages(clients.train([3]))
    assert trainings == [1, 2, 1, 2, 3]
    expected = {key(task, part) for part in (1, 2, 3) for key in (model_key, fisher_key)}
    assert entries(store) == expected
    again = Clients(task, Elsewhere(tmp_path / "there"), Store(tmp_path / "here"))
    assert messages(again.train([1, 2, 3])) == sent
    assert len(trainings) == 5


# --- work of which nothing comes -------------------------------------------------------


@pytest.mark.parametrize("phase", ["train", "fisher"])
def test_failed_work_is_not_done_again(
    task: Task, store: Store, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    asked = []

    def fail(*arguments: Any) -> None:
        asked.append(arguments)
        raise FloatingPointError("overflow\nin step 3")

    with monkeypatch.context() as patch:
        if phase == "train":
            patch.setattr(Classification, "train", fail)
        else:
            patch.setattr("testbed.execution.work.contribute", fail)
        (first,) = Clients(task, store=store).train([1])
        times = len(asked)
        (again,) = Clients(task, store=store).train([1])
        assert len(asked) == times > 0
    (later,) = Clients(task, store=store).train([1])
    for answer in (first, again, later):
        assert answer.contribution == Unusable("FloatingPointError: overflow in step 3", phase)
        assert (answer.train_s, answer.fisher_s) == (first.train_s, first.fisher_s)


def test_another_statistic_of_failed_training_is_known_to_fail(
    task: Task, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise FloatingPointError("overflow")

    with monkeypatch.context() as patch:
        patch.setattr(Classification, "train", fail)
        clients = Clients(task, store=store)
        clients.train([1])
    (answer,) = clients.train([1], "model")
    assert isinstance(answer.contribution, Unusable)
    (answer,) = Clients(task, store=store).train([1], "kfac")
    assert isinstance(answer.contribution, Unusable)
    assert entries(store) == {model_key(task, 1)}


# --- whole runs ------------------------------------------------------------------------


def test_the_store_does_not_make_another_experiment(tmp_path: Path) -> None:
    assert spec_hash(stored(tmp_path), "fsosa") == spec_hash(small(tmp_path), "fsosa")


def test_cold_and_warm_runs_leave_the_same_bytes(tmp_path: Path, trainings: list[int]) -> None:
    methods = ["fsosa", "retrain", "finetune", "fedavg", "regmean"]
    plain = finish(small(tmp_path, editing={"methods": methods}), tmp_path / "plain")
    tuned = len(trainings)
    trainings.clear()
    experiment = stored(tmp_path, editing={"methods": methods})
    cold = finish(experiment, tmp_path / "cold")
    assert len(trainings) == tuned
    trainings.clear()
    warm = finish(experiment, tmp_path / "warm")
    assert len(trainings) < tuned  # what is trained further from a released model
    assert sum(name.endswith("ledger.csv") for name in cold) == len(methods)
    assert warm == cold
    # Without a store the configuration in the manifest says so.
    assert {name: each for name, each in cold.items() if "manifest" not in name} == {
        name: each for name, each in plain.items() if "manifest" not in name
    }


def test_a_sweep_trains_only_who_has_not_trained(tmp_path: Path, trainings: list[int]) -> None:
    """Over rho, methods and traffic: the same partitions, other subsets."""

    def trained(traffic: Any = None, **editing: Any) -> set[int]:
        trainings.clear()
        more = {} if traffic is None else {"traffic": traffic}
        out = tmp_path / f"out-{len(list(tmp_path.iterdir()))}"
        finish(stored(tmp_path, editing=editing, **more), out)
        assert len(trainings) == len(set(trainings))
        return set(trainings)

    first = trained(rho=0.2)
    assert 0 < len(first) < 9
    assert trained(rho=0.2) == set()
    more = trained(rho=0.6)
    assert more
    assert not more & first
    # Another method wants the rest of them, another statistic of the same training nobody.
    everybody = trained(rho=1.0, methods=["retrain"])
    assert everybody
    assert not everybody & (first | more)
    assert trained(rho=0.6, methods=["fedavg", "fisher-merging"]) == set()
    events = [(1.0, f"car{number}", "join") for number in range(6)]
    events += [(20.0 + number, f"car{number}", "leave") for number in range(5)]
    events += [(40.0 + number, f"bus{number}", "join") for number in range(3)]
    later = trained(traffic=events, rho=0.9)
    assert not later & (first | more | everybody)
    assert first | more | everybody | later <= set(range(9))


def test_damage_is_found_recomputed_and_counted(tmp_path: Path, trainings: list[int]) -> None:
    experiment = stored(tmp_path)
    cold = finish(experiment, tmp_path / "cold")
    store = Store(tmp_path / "store")
    task = prepare(experiment, 0)
    part = trainings[0]
    kept = store.path(model_key(task, part)), store.path(fisher_key(task, trainings[1]))
    os.truncate(kept[0], 1000)
    content = bytearray(kept[1].read_bytes())
    content[-1] ^= 1
    kept[1].write_bytes(content)
    trainings.clear()
    clients = Clients(task, store=store)
    clients.train(range(9))
    assert clients.counts.corrupt == 2
    assert part in trainings
    assert upkeep.verify(store).damaged == ()
    assert finish(experiment, tmp_path / "warm") == cold


def test_a_store_of_older_code_is_ignored_and_counted(
    task: Task, tmp_path: Path, trainings: list[int]
) -> None:
    old = Store(tmp_path, version="1-0123456789abcdef")
    old.put(model_key(task, 1), Entry(b"old", Record("", 0.0, 0, 3, "")))
    clients = Clients(task, store=Store(tmp_path))
    clients.train([1, 2])
    assert trainings == [1, 2]
    assert clients.counts == Counts(misses=2, other_code=1)


def test_a_full_disk_stops_cleanly_and_the_same_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainings: list[int]
) -> None:
    plain = finish(small(tmp_path), tmp_path / "plain")
    trainings.clear()
    writes = 0
    really = os.fsync

    def filling(descriptor: int) -> None:
        nonlocal writes
        writes += 1
        if writes > 4:  # the experiment's mark, a model and its Fisher, another model
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        really(descriptor)

    experiment = stored(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", filling)
        with pytest.raises(ResultsError, match="No space left on device; free some space"):
            finish(experiment, tmp_path / "out")
    assert len(trainings) == 2
    assert not list(tmp_path.glob("out/*/*"))
    done = set(trainings)
    trainings.clear()
    after = finish(experiment, tmp_path / "out")
    assert not done & set(trainings)
    for name, content in plain.items():
        if "manifest" not in name:
            assert after[name] == content, name


# --- the coordinator -------------------------------------------------------------------


@dataclass
class Watched(Store):
    """A store that says what it is asked for."""

    asked: list[str] = field(default_factory=list)

    def get(self, key: str, counted: bool = True) -> Entry | None:
        self.asked.append(key)
        return super().get(key, counted)


@dataclass
class Forgetful:
    """An executor that remembers nothing itself, so that the store hears of every question."""

    task: Task
    store: Store

    def train(self, parts: Sequence[int], statistic: str = "fisher") -> list[Trained]:
        return Clients(self.task, store=self.store).train(parts, statistic)


@pytest.mark.parametrize("method", ["fsosa", "retrain"])
def test_nothing_of_an_erased_client_is_asked_of_the_store(
    task: Task, tmp_path: Path, method: str
) -> None:
    experiment = small(tmp_path)
    store = Watched(tmp_path / "store")
    owner = {key(task, part): part for part in range(9) for key in (model_key, fisher_key)}
    asked: set[int] = set()
    erased: set[int] = set()
    with open_source(experiment.mobility, 0) as source:
        world = World(experiment, method, task, Forgetful(task, store), source)

        def look(rows: Any) -> None:
            state = world.coordinator.state
            members = {client.partition for client in state.subset}
            questions = {owner[key] for key in store.asked}
            assert questions <= members
            asked.update(questions)
            erased.update(asked - {client.partition for client in state.population})
            store.asked.clear()

        world.coordinator.watch = look
        world.run()
    assert erased
