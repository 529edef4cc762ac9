"""One process at a time runs an experiment in a results folder."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from specs import contents, finish, folder, python, replayed, stamps

from testbed.errors import ResultsError
from testbed.experiments import lock
from testbed.experiments.lock import exclusive
from testbed.experiments.run import run

HOLDS = """
import sys
from pathlib import Path
from testbed.experiments.lock import exclusive
with exclusive(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
TRIES = """
import sys
from pathlib import Path
from specs import replayed
from testbed.errors import ResultsError
from testbed.experiments.run import run
try:
    rho = float(sys.argv[3])
    list(run(replayed(Path(sys.argv[1]), editing={"rho": rho}), Path(sys.argv[2])))
except ResultsError as error:
    sys.exit(str(error))
"""


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "results" / "small"


@pytest.fixture
def holder(out: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds the lock on `out`."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, out],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_another_process_is_named_and_nothing_is_touched(
    trace: Path, out: Path, holder: "subprocess.Popen[str]"
) -> None:
    experiment = replayed(trace)
    before = stamps(out)
    with pytest.raises(ResultsError) as caught:
        finish(experiment, out)
    assert str(caught.value) == (
        f"another testbed run (process {holder.pid}) is writing to {out}; "
        "wait for it or name another --out"
    )
    assert stamps(out) == before


@pytest.mark.parametrize("rho", [0.5, 0.75])
def test_two_runs_at_once_are_refused_whatever_their_spec(
    trace: Path, out: Path, rho: float
) -> None:
    """The first is stopped at its end, where its results already lie in the folder."""
    first = run(replayed(trace), out)
    next(first)
    second = python(TRIES, trace, out, rho)
    assert second.returncode == 1
    assert f"another testbed run (process {os.getpid()}) is writing to {out}" in second.stderr
    assert list(first) == []
    assert [place.name for place in out.iterdir() if place.is_dir()] == [
        folder(out, "fsosa").parent.name
    ]
    third = python(TRIES, trace, out, rho)
    assert (third.returncode == 0) == (rho == 0.5)
    assert "writing" not in third.stderr


def test_a_killed_process_holds_nothing(
    trace: Path, out: Path, holder: "subprocess.Popen[str]"
) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert contents(out) == {}
    assert [done.skipped for done in finish(replayed(trace), out)] == [False]


def test_the_same_process_may_take_it_again_and_holds_it_to_the_end(out: Path) -> None:
    with exclusive(out):
        with exclusive(out):
            pass
        tried = python(HOLDS, out)
        assert f"process {os.getpid()}" in tried.stderr
    with exclusive(out):
        assert out.is_dir()


def test_folders_that_were_made_go_if_they_stay_empty(out: Path, tmp_path: Path) -> None:
    with exclusive(out):
        assert out.is_dir()
    assert list(tmp_path.iterdir()) == []
    with exclusive(out):
        (out / "a.txt").write_text("a")
    assert contents(tmp_path) == {"results/small/a.txt": b"a"}


def test_a_folder_that_was_replaced_meanwhile_is_locked_anew(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, calls = fcntl.flock, []

    def replaced(descriptor: int, how: int) -> None:
        plain(descriptor, how)
        calls.append(descriptor)
        if len(calls) == 1:
            shutil.rmtree(out)

    monkeypatch.setattr(fcntl, "flock", replaced)
    with exclusive(out):
        assert len(calls) == 2
        assert os.path.samestat(os.fstat(calls[1]), out.stat())


def test_a_file_system_without_locks_will_do(
    trace: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(descriptor: int, how: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", fails)
    assert [done.skipped for done in finish(replayed(trace), out)] == [False]


def test_where_the_system_does_not_tell_there_is_no_number(
    out: Path, holder: "subprocess.Popen[str]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "_LOCKS", out / "nowhere")
    with pytest.raises(ResultsError, match="another testbed run is writing"), exclusive(out):
        pass
