"""Files and folders appear whole or not at all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.errors import ResultsError
from testbed.files import (
    new_folder,
    remove_empty,
    remove_mark,
    sweep,
    to_json,
    write_bytes,
    write_text,
)

UNPRIVILEGED = pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def fail_halfway(target: Path, error: type[BaseException] = KeyError) -> None:
    with new_folder(target) as folder:
        (folder / "new.txt").write_text("new")
        raise error


def dead_pid() -> int:
    """Return the number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


# --- files -----------------------------------------------------------------------------


def test_content_and_nothing_else_is_written(tmp_path: Path) -> None:
    write_bytes(tmp_path / "deep" / "er" / "a.bin", b"\x00\xff")
    write_text(tmp_path / "a.txt", "métres\n")
    assert (tmp_path / "deep/er/a.bin").read_bytes() == b"\x00\xff"
    assert (tmp_path / "a.txt").read_bytes() == "métres\n".encode()
    assert listing(tmp_path) == ["a.txt", "deep", "deep/er", "deep/er/a.bin"]


def test_a_file_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.txt"
    write_text(target, "old")

    def fails(descriptor: int) -> None:
        assert target.read_text() == "old"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(ResultsError, match=r"cannot write .*a\.txt: No space left") as caught:
        write_text(target, "new and longer")
    assert "\n" not in str(caught.value)
    assert target.read_text() == "old"
    assert listing(tmp_path) == ["a.txt"]
    monkeypatch.undo()
    write_text(target, "new")
    assert target.read_text() == "new"


def test_an_interruption_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_text(tmp_path / "a.txt", "text")
    assert listing(tmp_path) == []


def test_a_file_in_the_way_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match=r"cannot write .*--out") as caught:
        write_text(tmp_path / "file" / "a.txt", "text")
    assert "\n" not in str(caught.value)
    with (
        pytest.raises(ResultsError, match=r"cannot write .*--out"),
        new_folder(tmp_path / "file" / "run"),
    ):
        pass
    assert listing(tmp_path) == ["file"]


def test_a_failure_gives_the_advice_of_its_caller(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match=r"cannot write .*; buy a disk$"):
        write_bytes(tmp_path / "file" / "a.txt", b"text", advice="buy a disk")


def test_only_empty_folders_are_removed(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.txt").write_text("a")
    (tmp_path / "outer" / "inner").mkdir(parents=True)
    names = ("full", "outer/inner", "outer", "absent")
    remove_empty(tmp_path / name for name in names)
    assert listing(tmp_path) == ["full", "full/a.txt"]


@UNPRIVILEGED
def test_an_unwritable_folder_is_one_line(tmp_path: Path) -> None:
    sealed = tmp_path / "sealed"
    sealed.mkdir(mode=0o555)
    with pytest.raises(ResultsError, match="Permission denied"):
        write_text(sealed / "a.txt", "text")
    with pytest.raises(ResultsError, match="Permission denied"), new_folder(sealed / "run"):
        pass
    assert listing(sealed) == []


def test_json_is_sorted_and_strict() -> None:
    assert to_json({"b": 1, "a": "é"}) == '{\n  "a": "é",\n  "b": 1\n}\n'
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON"):
            to_json({"a": value})


# --- folders ---------------------------------------------------------------------------


def test_a_folder_appears_when_its_block_succeeds(tmp_path: Path) -> None:
    target = tmp_path / "runs" / "seed=0"
    with new_folder(target) as folder:
        (folder / "a.txt").write_text("a")
        assert folder.parent == target.parent
        assert not target.exists()
    assert listing(tmp_path) == ["runs", "runs/seed=0", "runs/seed=0/a.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_failing_block_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error):
        fail_halfway(tmp_path / "run", error)
    assert listing(tmp_path) == []


def test_an_existing_target_is_replaced_only_at_success(tmp_path: Path) -> None:
    target = tmp_path / "run"
    with new_folder(target) as folder:
        (folder / "old.txt").write_text("old")
    with pytest.raises(KeyError):
        fail_halfway(target)
    assert listing(tmp_path) == ["run", "run/old.txt"]
    with new_folder(target) as folder:
        (folder / "new.txt").write_text("new")
        assert (target / "old.txt").read_text() == "old"
    assert listing(tmp_path) == ["run", "run/new.txt"]


def test_leftovers_of_a_dead_process_are_swept_and_those_of_a_live_one_kept(
    tmp_path: Path,
) -> None:
    dead, live, other = (
        tmp_path / f".{name}.partial-{pid}"
        for name, pid in (("run", dead_pid()), ("run", os.getppid()), ("other", dead_pid()))
    )
    for leftover in (dead, live, other):
        leftover.mkdir()
        (leftover / "half.txt").write_text("half")
    with new_folder(tmp_path / "run"):
        assert not dead.exists()
    # Another target's leftover is that target's business.
    assert live.is_dir()
    assert other.is_dir()
    assert (tmp_path / "run").is_dir()


def test_a_killed_process_leaves_a_leftover_that_the_next_run_sweeps(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from testbed.files import new_folder\n"
        "with new_folder(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'a.txt').write_text('a'); os.kill(os.getpid(), 9)"
    )
    target = tmp_path / "run"
    killed = subprocess.run([sys.executable, "-c", script, str(target)], check=False)
    assert killed.returncode == -9
    assert not target.exists()
    assert len(listing(tmp_path)) == 2
    with new_folder(target) as folder:
        (folder / "b.txt").write_text("b")
    assert listing(tmp_path) == ["run", "run/b.txt"]


# --- what killed processes leave -------------------------------------------------------------

WRITE = """
import os, sys
from pathlib import Path
from testbed.files import new_folder, write_bytes
target = Path(sys.argv[1])
os.fsync = lambda descriptor: os.kill(os.getpid(), 9)
with new_folder(target / "seed=0") as folder:
    write_bytes((folder if sys.argv[2] == "inside" else target) / "a.txt", b"half")
"""


@pytest.mark.parametrize("where", ["inside", "beside"])
def test_what_a_killed_process_was_writing_is_swept(tmp_path: Path, where: str) -> None:
    target = tmp_path / "method"
    done = subprocess.run([sys.executable, "-c", WRITE, target, where], check=False)
    assert done.returncode == -9
    assert any(".a.txt.partial-" in path for path in listing(tmp_path))
    sweep(tmp_path)
    assert listing(tmp_path) == ["method"]


def test_sweeping_leaves_all_else(tmp_path: Path) -> None:
    dead = dead_pid()
    stay = [
        f".a.txt.partial-{os.getppid():08x}01234567",  # its writer lives
        f".seed=0.partial-{os.getppid()}",
        "a.txt.partial-0123456701234567",  # not hidden
        ".partial-12",
        ".seed=0.journal",
        f".store/.x.partial-{dead:08x}01234567",  # somebody else's
    ]
    go = [
        f"deep/er/.a.txt.partial-{dead:08x}01234567",
        f".a.txt.partial-{os.getpid():08x}01234567",
        f".seed=0.partial-{dead}/in/it",
        f"deep/.seed=1.retired-{dead}/manifest.json",
        ".b.txt.partial-0123abcd",  # as former versions named it
    ]
    for name in (*stay, *go):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    sweep(tmp_path)
    left = {path for path in listing(tmp_path) if (tmp_path / path).is_file()}
    assert left == set(stay)
    sweep(tmp_path / "absent")


def test_a_mark_goes_where_nothing_else_is(tmp_path: Path) -> None:
    mark = tmp_path / "folder" / "mark.json"
    remove_mark(mark)  # the folder has vanished meanwhile
    mark.parent.mkdir()
    remove_mark(mark)
    for other in (True, False):
        mark.write_text("{}")
        (mark.parent / "run").mkdir(exist_ok=True)
        if not other:
            (mark.parent / "run").rmdir()
        remove_mark(mark)
        assert mark.exists() == other
    assert mark.parent.is_dir()
