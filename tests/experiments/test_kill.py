"""Kill -9 at any moment, start the same command again: the files of a run never stopped."""

import json
import random
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from killed_runs import (
    CONFIG,
    DRAWN,
    JOURNAL,
    SEED,
    WORKERS,
    Place,
    journals,
    left,
    manifests,
)
from killing import Death, Killer

from testbed.simulation.journal import Journal
from testbed.simulation.journalled import decode


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    with Killer() as started:
        yield started


@pytest.fixture(scope="module")
def place(killer: Killer, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(killer, tmp_path_factory.mktemp("killed"))


def spread(count: int, total: int) -> list[int]:
    """Return `count` whole numbers from 1 to `total`, both included."""
    return [1 + round(i * (total - 1) / (count - 1)) for i in range(count)]


# Where the time is modelled, everything is compared.


def test_what_is_compared_is_all_there_is(place: Place) -> None:
    names = {Path(path).name for path in place.whole}
    assert {"ledger.csv", "metrics.csv", "model.safetensors", "trace.csv"} <= names
    assert not any(part.startswith(".") for path in place.whole for part in Path(path).parts)
    assert place.steps > 60
    edits = pd.read_csv(next(place.out("whole").glob("fsosa-*/seed=0/metrics.csv"))).triggered
    assert edits.sum() > 2


def test_a_run_killed_before_any_change_of_a_file_goes_on(place: Place) -> None:
    for step in spread(16, place.steps):
        place.kill(step, Death(step=step))
        place.finish(step)
        place.check(step)
        shutil.rmtree(place.out(step))


def test_a_run_killed_while_it_writes_goes_on(place: Place) -> None:
    """The system ends the process in the middle of a write, of journal and other files."""
    place.kill("sizes", Death(before=("os.rename", SEED)))
    largest = journals(place.out("sizes"))["fsosa"].stat().st_size
    chances = random.Random(1)
    for size in [10, *(chances.randrange(largest) for _ in range(7)), largest - 1]:
        name = f"size-{size}"
        place.kill(name, Death(size=size))
        place.finish(name)
        place.check(name)


def test_a_run_killed_again_and_again_ends_one_day(place: Place) -> None:
    chances = random.Random(2)
    deaths = iter(lambda: Death(step=chances.randint(1, 30)), None)
    # Some steps are taken anew each time, so now and then it must get further.
    assert place.finish_by_deaths("again", deaths) > 5
    place.check("again")


def test_a_run_killed_at_any_time_goes_on(place: Place) -> None:
    chances = random.Random(3)
    deaths = (Death(seconds=chances.uniform(0, 0.05 * (1 + n))) for n in range(1000))
    place.finish_by_deaths("time", deaths)
    place.check("time")


def test_what_was_answered_is_not_worked_out_again(place: Place) -> None:
    place.kill("known", Death(before=("os.rename", SEED)))
    (journal,) = journals(place.out("known")).values()
    answers = sum(1 for _ in iter(Journal(journal, title_of(journal)).next, None))
    place.finish("known")
    told = manifests(place.out("known"))
    assert (told["fsosa"]["resumed"], told["federaser"]["resumed"]) == (answers, 0)
    assert answers > 8
    store = told["fsosa"]["store"]
    assert isinstance(store, dict)
    assert store["misses"] == 0
    assert store["hits"] > 0
    assert all(manifest["resumed"] == 0 for manifest in manifests(place.out("whole")).values())


def test_a_journal_of_other_code_is_not_used_and_the_run_says_so(place: Place) -> None:
    place.kill("code", Death(before=("os.rename", SEED)))
    (journal,) = journals(place.out("code")).values()
    title = title_of(journal)
    other = Journal(journal.with_name("other"), {**title, "code": "0" * 16})
    mine = Journal(journal, title)
    for record in iter(mine.next, None):
        other.add(record)
    mine.close()
    other.close()
    other.path.replace(journal)
    place.finish("code")
    told = manifests(place.out("code"))["fsosa"]
    assert told["resumed"] == 0
    warnings = told["warnings"]
    assert isinstance(warnings, list)
    assert warnings[-1] == (
        "The run was stopped and then done anew from its answer 1 on: its journal is of "
        "another code."
    )
    for name in ("ledger.csv", "metrics.csv", "model.safetensors", "trace.csv"):
        (path,) = place.out("code").glob(f"fsosa-*/seed=0/{name}")
        assert path.read_bytes() == place.named("fsosa", name)


def test_a_changed_configuration_leaves_nothing_of_the_stopped_run(place: Place) -> None:
    place.kill("changed", Death(before=("os.rename", SEED)))
    changed = replace(place, config=CONFIG.replace("rho: 0.8", "rho: 0.6"))
    changed.finish("changed")
    assert len(list(place.out("changed").glob("*-*"))) == 2
    assert list(place.out("changed").rglob(".*")) == []


def title_of(journal: Path) -> dict[str, str]:
    """Read a journal's title, which is JSON after a head of 24 bytes."""
    content = journal.read_bytes()
    title: dict[str, str] = json.loads(content[24 : 24 + int.from_bytes(content[16:24], "little")])
    return title


# Worker processes.


def test_runs_with_workers_go_on_and_no_worker_stays(place: Place) -> None:
    many = replace(place, config=CONFIG + WORKERS)
    many.kill("workers", Death(before=("open", JOURNAL)))
    many.kill("workers", Death(before=("os.rename", SEED)))
    many.finish("workers")
    place.check("workers")


# Sweeps.


def test_a_killed_sweep_goes_on(place: Place) -> None:
    whole = place.start("sweep", command="sweep")
    assert whole.code == 0
    for step in spread(4, whole.steps)[1:]:
        name = f"sweep-{step}"
        place.kill(name, Death(step=step), "sweep")
        place.finish(name, "sweep")
        assert runs(place.out(name)) == runs(place.out("sweep"))
        hidden = {path.name for path in place.out(name).rglob(".*")}
        assert hidden == {".store"}  # which another sweep in the folder would use


def runs(out: Path) -> dict[str, bytes]:
    """Return the files of a sweep's runs."""
    found = {path: content for path, content in left(out).items() if SEED[1:] in path}
    assert len(found) > 20
    return found


# Measured time.


def measured(place: Place) -> Place:
    return replace(place, config=CONFIG + "time: {mode: measured}\n")


def test_measured_seconds_are_those_of_the_first_time(place: Place) -> None:
    """Two runs that go on from the same journal bill the same to the last digit."""
    timed = measured(place)
    timed.kill("first", Death(before=("os.rename", SEED)))
    shutil.copytree(timed.out("first"), timed.out("twin"))
    for name in ("first", "twin"):
        timed.finish(name)
    first, twin = left(timed.out("first")), left(timed.out("twin"))
    assert first.keys() == twin.keys()
    exact = [path for path in first if path.startswith("fsosa")]
    assert len(exact) > 4
    assert [path for path in exact if first[path] != twin[path]] == []


def test_a_measured_run_has_the_seconds_from_before_its_death(place: Place) -> None:
    timed = measured(place)
    whole = timed.start("timed")
    for name in ("model.safetensors", "trace.csv"):
        (path,) = timed.out("timed").glob(f"fsosa-*/seed=0/{name}")
        assert path.read_bytes() == place.named("fsosa", name)
    checked = 0
    for step in spread(5, whole.steps)[1:]:
        name = f"timed-{step}"
        timed.kill(name, Death(step=step))
        before = {method: seconds(path) for method, path in journals(timed.out(name)).items()}
        timed.finish(name)
        for method, known in before.items():
            assert known <= billed(timed.out(name), method)
            checked += len(known)
    assert checked > 20


def billed(out: Path, method: str) -> set[float]:
    (ledger,) = out.glob(f"{method}-*/seed=0/ledger.csv")
    return set(pd.read_csv(ledger).compute_s_measured)


def seconds(journal: Path) -> set[float]:
    reader = Journal(journal, title_of(journal))
    return {second for each in iter(reader.next, None) for second in decode(each)[1].seconds}


# Ends that are not sudden.


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_run_cleanly_and_says_how_to_go_on(
    place: Place, sent: signal.Signals, code: int
) -> None:
    name = sent.name
    end = place.start(name, Death(step=place.steps // 2, sent=sent), DRAWN)
    assert end.code == code
    assert "run the same command again" in end.told.splitlines()[-1]
    assert "Traceback" not in end.told
    assert not list(place.out(name).rglob(".*partial*"))
    place.finish(name)
    place.check(name)
    assert sum(int(str(told["resumed"])) for told in manifests(place.out(name)).values()) > 0


def test_a_full_disk_stops_a_run_with_one_line_and_it_goes_on(place: Place) -> None:
    """A limit on the size of files is met like a full disk: a write fails in the middle."""
    end = place.start("full", Death(size=900_000, full=True), DRAWN)
    assert end.code == 2
    (line,) = (line for line in end.told.splitlines() if line.startswith("error"))
    assert "journal: File too large; free some space and run the same command again" in line
    place.finish("full")
    place.check("full")


# As above, at many more points.


@pytest.mark.study
@pytest.mark.timeout(1800)
def test_a_run_killed_before_each_change_of_a_file_goes_on(place: Place) -> None:
    for step in range(1, place.steps + 1):
        place.kill("each", Death(step=step))
        place.finish("each")
        place.check("each")
        shutil.rmtree(place.out("each"))


@pytest.mark.study
def test_runs_with_workers_killed_at_any_time_go_on(place: Place) -> None:
    many = replace(place, config=CONFIG + WORKERS)
    chances = random.Random(4)
    for number in range(4):
        deaths = (Death(seconds=chances.uniform(0, 2 * (1 + n))) for n in range(1000))
        many.finish_by_deaths(f"many-{number}", deaths)
        place.check(f"many-{number}")


@pytest.mark.study
def test_measured_seconds_survive_each_change_of_a_file(place: Place) -> None:
    timed = measured(place)
    for step in range(5, place.steps + 1, 5):
        timed.kill("each", Death(step=step))
        before = {method: seconds(path) for method, path in journals(timed.out("each")).items()}
        timed.finish("each")
        for method, known in before.items():
            assert known <= billed(timed.out("each"), method)
        shutil.rmtree(timed.out("each"))


@pytest.mark.study
def test_a_command_killed_while_it_draws_draws_the_rest(place: Place) -> None:
    whole, killed = "testbed-run", "drawing"
    place.finish(whole, DRAWN)
    for picture in ("accuracy.png", "summary.md"):
        place.kill(killed, Death(before=("os.rename", picture)), DRAWN)
        assert [path for path in place.out(killed).rglob(".*") if "partial" in path.name]
    place.finish(killed, DRAWN)
    assert left(place.out(killed)) == left(place.out(whole))
    assert list(place.out(killed).rglob(".*")) == []
