"""A store on a disk that is full, read-only or shared, or whose writers are killed."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from entries import entry, key, names

from testbed.errors import ResultsError
from testbed.execution import upkeep
from testbed.execution.layout import files
from testbed.execution.store import Store


def test_a_full_disk_is_one_line_and_leaves_the_store_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    store.put(key(1), entry())

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(ResultsError, match="No space left on device; free some space") as told:
            store.put(key(2), entry())
    assert "\n" not in str(told.value)
    assert names(store) == {key(1)}
    store.put(key(2), entry())
    assert upkeep.verify(store).entries == 2


LIMITED = """
import resource, sys
from pathlib import Path
from testbed.errors import ResultsError
from testbed.execution.entry import Entry, Record
from testbed.execution.store import Store

resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
store = Store(Path(sys.argv[1]))
store.put("a" * 64, Entry(b"x" * 40_000, Record("", 0.0, 0, 40_000, "")))
try:
    store.put("b" * 64, Entry(b"x" * 60_000, Record("", 0.0, 0, 60_000, "")))
except ResultsError as error:
    print(error)
"""


def test_the_kernel_may_refuse_in_the_middle_of_an_entry(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.startswith(f"cannot write {tmp_path}")
    assert "File too large" in done.stdout
    assert (done.stdout.count("\n"), done.stderr) == (1, "")
    assert names(Store(tmp_path)) == {"a" * 64}


def test_a_store_that_is_no_folder_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file")
    with pytest.raises(ResultsError, match=r"cannot read .*: Not a directory; "):
        store.get(key(1))
    with pytest.raises(ResultsError, match=r"cannot write .*: Not a directory; "):
        store.put(key(1), entry())
    for work in (upkeep.contents, upkeep.verify, upkeep.prune):
        with pytest.raises(ResultsError, match="no such store; name the folder of "):
            work(store)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_store_for_reading_only_is_read(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(key(1), entry())
    os.chmod(store.path(key(1)).parent, 0o500)
    try:
        assert store.get(key(1)) == entry()
    finally:
        os.chmod(store.path(key(1)).parent, 0o700)


# --- several processes -----------------------------------------------------------------


WRITER = """
import sys
from pathlib import Path
from testbed.execution.entry import Entry, Record
from testbed.execution.store import Store

store, me = Store(Path(sys.argv[1])), sys.argv[2]
print("ready", flush=True)
for turn in range(int(sys.argv[3])):
    for name in range(3):
        message = bytes([name]) * 300_000
        store.put(f"{name:064x}", Entry(message, Record(me, turn, 0, len(message), "")))
        found = store.get(f"{name:064x}")
        assert found is not None and found.message == message, name
assert store.counts.corrupt == 0
print("done", flush=True)
"""


def writer(folder: Path, name: str, turns: int) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), name, str(turns)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_two_processes_write_the_same_keys_at_once(tmp_path: Path) -> None:
    with writer(tmp_path, "a", 15) as a, writer(tmp_path, "b", 15) as b:
        told = [process.stdout.read() for process in (a, b)]
    assert told == ["done\n", "done\n"]
    store = Store(tmp_path)
    assert names(store) == {f"{name:064x}" for name in range(3)}  # and no leftovers
    assert upkeep.verify(store).damaged == ()


def test_killing_a_writer_leaves_a_valid_store(tmp_path: Path) -> None:
    with writer(tmp_path, "a", 10**6) as process:
        folder = tmp_path / Store(tmp_path).version / "00"
        deadline = time.monotonic() + 60
        # Killed while a file is there that was not renamed yet.
        while time.monotonic() < deadline:
            if folder.is_dir() and any(".partial-" in name for name in os.listdir(folder)):
                process.send_signal(signal.SIGSTOP)
                if any(".partial-" in name for name in os.listdir(folder)):
                    break
                process.send_signal(signal.SIGCONT)
        process.kill()
    store = Store(tmp_path)
    left = [file for file in files(tmp_path / store.version) if file.partial]
    assert left
    found = upkeep.verify(store)
    assert found.damaged == ()
    for name in range(found.entries):
        assert store.get(f"{name:064x}").message == bytes([name]) * 300_000
    store.put("0" * 64, entry())
    assert store.get("0" * 64) == entry()
