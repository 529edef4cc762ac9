"""A journal gives back what was written, whatever happened to the process or the file."""

import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.errors import ResultsError
from testbed.simulation.journal import Journal

TITLE = {"code": "1", "data": "digits"}
RECORDS = (b"first", b"", b"third " * 50, b"\x00" * 24)
HEAD = 24  # bytes before the content of each record


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cell" / ".seed=0.journal"


def write(path: Path, *records: bytes, title: dict[str, str] = TITLE) -> None:
    journal = Journal(path, title)
    while journal.next() is not None:
        pass
    for record in records:
        journal.add(record)
    journal.close()


def read(path: Path, title: dict[str, str] = TITLE) -> list[bytes]:
    journal = Journal(path, title)
    found = list(iter(journal.next, None))
    assert journal.read == len(found)
    assert journal.remarks == []
    journal.close()
    return found


def test_what_was_written_is_read_in_order(path: Path) -> None:
    write(path, *RECORDS)
    assert read(path) == list(RECORDS)
    assert read(path) == list(RECORDS)


def test_nothing_is_made_before_the_first_record(path: Path) -> None:
    write(path)
    assert not path.parent.exists()
    assert read(path) == []


def test_a_record_may_come_in_parts(path: Path) -> None:
    journal = Journal(path, TITLE)
    journal.add(b"head\n", b"", b"body")
    journal.close()
    assert read(path) == [b"head\nbody"]


def test_the_format_is_as_documented(path: Path) -> None:
    """Worked out by hand: sum, length, content; the title first."""
    from hashlib import sha256

    write(path, b"abc")
    title = json.dumps(TITLE).encode()
    expected = b""
    for content in (title, b"abc"):
        rest = len(content).to_bytes(8, "little") + content
        expected += sha256(rest).digest()[:16] + rest
    assert path.read_bytes() == expected
    assert len(expected) == 2 * HEAD + len(title) + 3


def test_a_later_process_goes_on_where_the_former_ended(path: Path) -> None:
    write(path, *RECORDS[:2])
    journal = Journal(path, TITLE)
    assert journal.next() == RECORDS[0]
    assert journal.next() == RECORDS[1]
    assert journal.next() is None
    assert journal.next() is None
    journal.add(RECORDS[2])
    journal.close()
    write(path, RECORDS[3])
    assert read(path) == list(RECORDS)


def test_size_is_that_of_the_file(path: Path) -> None:
    journal = Journal(path, TITLE)
    assert journal.size == 0
    for record in RECORDS:
        journal.add(record)
        assert journal.size == path.stat().st_size
    journal.close()
    again = Journal(path, TITLE)
    while again.next() is not None:
        pass
    assert again.size == path.stat().st_size


def test_a_file_cut_anywhere_keeps_its_whole_records_and_goes_on(path: Path) -> None:
    write(path, *RECORDS)
    content = path.read_bytes()
    ends = [HEAD + len(json.dumps(TITLE))]
    for record in RECORDS:
        ends.append(ends[-1] + HEAD + len(record))
    assert ends[-1] == len(content)
    for cut in range(len(content) + 1):
        path.write_bytes(content[:cut])
        whole = RECORDS[: max(0, sum(end <= cut for end in ends) - 1)]
        assert read(path) == list(whole)
        write(path, b"new")
        assert read(path) == [*whole, b"new"]


def test_a_flipped_bit_costs_that_record_and_what_follows(path: Path) -> None:
    write(path, *RECORDS[:2], b"last")
    content = path.read_bytes()
    start = HEAD + len(json.dumps(TITLE)) + HEAD + len(RECORDS[0])
    for position in range(start, len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        expected = RECORDS[:1] if position < start + HEAD else RECORDS[:2]
        assert read(path) == list(expected)


def test_a_length_beyond_the_file_is_not_believed(path: Path) -> None:
    write(path, b"first")
    with path.open("ab") as file:
        file.write(b"\xff" * HEAD)
    assert read(path) == [b"first"]


@pytest.mark.parametrize(
    ("title", "told"),
    [
        ({"code": "2", "data": "digits"}, "another code"),
        ({"code": "2", "data": "mnist"}, "another code, data"),
        ({"code": "1", "data": "digits", "format": "2"}, "another format"),
    ],
)
def test_a_journal_of_something_else_is_replaced_and_it_says_so(
    path: Path, title: dict[str, str], told: str
) -> None:
    write(path, *RECORDS)
    journal = Journal(path, title)
    (remark,) = journal.remarks
    assert remark.endswith(f"from its answer 1 on: its journal is of {told}.")
    assert journal.next() is None
    journal.add(b"new")
    journal.close()
    assert read(path, title) == [b"new"]


def test_records_that_do_not_fit_are_forgotten_and_overwritten(path: Path) -> None:
    write(path, b"one", b"two", b"three")
    journal = Journal(path, TITLE)
    journal.next()
    journal.next()
    journal.forget("it is too old")
    assert journal.remarks == [
        "The run was stopped and then done anew from its answer 2 on: it is too old."
    ]
    assert journal.read == 1
    assert journal.next() is None
    journal.add(b"TWO")
    journal.close()
    assert read(path) == [b"one", b"TWO"]


def test_forgetting_without_adding_leaves_the_file(path: Path) -> None:
    write(path, b"one", b"two")
    journal = Journal(path, TITLE)
    journal.next()
    journal.forget("it is too old")
    journal.close()
    assert read(path) == [b"one", b"two"]


def test_a_block_that_succeeds_removes_it_and_one_that_fails_does_not(path: Path) -> None:
    def fail() -> None:
        with Journal(path, TITLE) as journal:
            journal.add(b"one")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert read(path) == [b"one"]
    with Journal(path, TITLE) as journal:
        assert journal.next() == b"one"
    assert not path.exists()
    with Journal(path, TITLE):
        pass
    assert not path.exists()


def test_what_is_added_is_with_the_system_at_once(path: Path) -> None:
    """A process that ends without a word loses nothing it has added."""
    code = (
        "import os, sys; from pathlib import Path; from testbed.simulation.journal import Journal;"
        f"journal = Journal(Path(sys.argv[1]), {TITLE});"
        "[journal.add(b'x' * n) for n in range(40)]; os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], check=False)
    assert done.returncode == -9
    assert read(path) == [b"x" * n for n in range(40)]


def test_an_unreadable_journal_is_one_line(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(ResultsError, match=r"^cannot read .*journal: Is a directory; remove it$"):
        Journal(path, TITLE)


FULL = """
import resource, sys
from pathlib import Path
from testbed.errors import ResultsError
from testbed.simulation.journal import Journal

journal = Journal(Path(sys.argv[1]), {title})
journal.add(b"first")
resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))
for attempt in range(2):
    try:
        journal.add(b"x" * 1000)
    except ResultsError as error:
        print(error)
        print(error.__cause__.errno)
journal.close()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""


def test_a_full_disk_is_one_line_and_loses_no_record(path: Path) -> None:
    """A limit on the size of files ends a write in the middle, as a full disk does."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    done = subprocess.run(
        [sys.executable, "-c", FULL.format(title=TITLE), path],
        capture_output=True,
        text=True,
        check=True,
    )
    line = (
        f"cannot write {path}: {os.strerror(errno.EFBIG)}; free some space and run the same "
        "command again, it goes on where this one stopped"
    )
    assert done.stdout.splitlines() == [line, str(errno.EFBIG)] * 2
    assert read(path) == [b"first"]
    assert path.stat().st_size == 2 * HEAD + len(json.dumps(TITLE)) + 5  # and no half record


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ResultsError, match="Not a directory"):
        Journal(tmp_path / "file" / ".journal", TITLE)
