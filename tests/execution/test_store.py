"""The store: what was put there comes back bit for bit or not at all, whoever else uses it."""

import json
import os
import time
from dataclasses import replace
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import pytest
from entries import OLD, entry, key, names, size, used_at
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.config import load
from testbed.execution import store as store_module
from testbed.execution import upkeep
from testbed.execution.entry import DamagedError, Entry, Record, decode, encode
from testbed.execution.layout import shrink
from testbed.execution.store import Counts, Store, open_store
from testbed.learning.acceptance import Unusable

# --- entries ---------------------------------------------------------------------------


@settings(deadline=None, max_examples=30)
@given(
    message=st.binary(max_size=300),
    seconds=st.floats(0, 1e9),
    what=st.text(max_size=20),
)
def test_what_was_put_comes_back(
    tmp_path_factory: pytest.TempPathFactory, message: bytes, seconds: float, what: str
) -> None:
    store = Store(tmp_path_factory.mktemp("store"))
    put = Entry(message, Record(what, seconds, 7, len(message), "c0de"))
    store.put(key(1), put)
    assert store.get(key(1)) == put
    assert store.record(key(1)) == put.record


@pytest.mark.parametrize("phase", ["train", "fisher", "upload"])
def test_work_that_came_to_nothing_is_an_entry_too(tmp_path: Path, phase: str) -> None:
    store, put = Store(tmp_path), entry(Unusable("FloatingPointError: overflow", phase))
    store.put(key(1), put)
    assert store.get(key(1)) == put
    assert store.record(key(1)).bytes == 0


def test_what_is_not_there_is_not_there(tmp_path: Path) -> None:
    store = Store(tmp_path / "never" / "made")
    assert store.get(key(1)) is None
    assert store.record(key(1)) is None
    assert store.counts == Counts(misses=1)
    assert not (tmp_path / "never").exists()


def test_hits_and_misses_are_counted_unless_told_not_to(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(key(1), entry())
    for name in (1, 2, 1):
        store.get(key(name))
        store.get(key(name), counted=False)
    store.record(key(1))
    assert store.counts == Counts(hits=2, misses=1)
    assert store.counts - Counts(hits=1) == Counts(hits=1, misses=1)


def test_what_a_user_should_know_is_said_in_sentences() -> None:
    assert Counts(hits=3, misses=2).remarks() == ()
    assert Counts(misses=5, corrupt=2, other_code=3).remarks() == (
        "Entries of the store that were damaged and made again: 2.",
        "Entries of the store that another version of the code has made, not used: 3; "
        "`testbed store prune` removes them.",
    )


def test_one_entry_is_one_checksummed_file(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(key(1), entry(b"abc"))
    path = tmp_path / store.version / key(1)[:2] / key(1)
    assert [found for found in tmp_path.rglob("*") if found.is_file()] == [path]
    digest, head, message = path.read_bytes().split(b"\n", 2)
    assert digest.decode() == sha256(head + b"\n" + message).hexdigest()
    assert json.loads(head)["record"]["what"] == "model, partition 3"
    assert message == b"abc"


def test_a_later_entry_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for seconds in (1.0, 2.0):
        store.put(key(1), entry(seconds=seconds))
    assert store.get(key(1)).record.seconds == 2.0
    assert names(store) == {key(1)}


# --- damage ----------------------------------------------------------------------------


def test_the_sum_is_over_the_record_too() -> None:
    put = entry()
    slower = replace(put, record=replace(put.record, seconds=2.5))
    assert encode(key(1), put)[:64] != encode(key(1), slower)[:64]
    mixed = encode(key(1), put)[:64] + encode(key(1), slower)[64:]
    with pytest.raises(DamagedError):
        decode(key(1), BytesIO(mixed))


CONTENT = encode(key(1), entry(b"some message"))


@pytest.mark.parametrize("place", range(len(CONTENT)))
def test_a_flipped_bit_anywhere_is_found(tmp_path: Path, place: int) -> None:
    store = Store(tmp_path)
    store.put(key(1), entry(b"some message"))
    damaged = bytearray(CONTENT)
    damaged[place] ^= 1 << place % 8
    store.path(key(1)).write_bytes(damaged)
    assert store.get(key(1)) is None
    assert store.counts == Counts(misses=1, corrupt=1)
    assert not store.path(key(1)).exists()
    assert store.get(key(1)) is None  # and now it is just not there
    assert store.counts == Counts(misses=2, corrupt=1)


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 66, 200, len(CONTENT) - 1])
def test_a_truncated_entry_is_found(tmp_path: Path, length: int) -> None:
    store = Store(tmp_path)
    store.put(key(1), entry(b"some message"))
    os.truncate(store.path(key(1)), length)
    store.record(key(1))  # whatever it says, it says it without an error
    assert store.get(key(1)) is None
    assert store.counts.corrupt == 1


def test_an_entry_under_another_name_is_none(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(key(1), entry())
    other = store.path(key(2))
    other.parent.mkdir(parents=True, exist_ok=True)
    store.path(key(1)).rename(other)
    assert store.get(key(2)) is None
    assert store.counts == Counts(misses=1, corrupt=1)


def test_verifying_removes_what_is_damaged_and_nothing_else(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for name in range(5):
        store.put(key(name), entry(b"x" * name))
    os.truncate(store.path(key(3)), 70)
    found = upkeep.verify(store)
    assert (found.entries, found.damaged) == (5, (key(3),))
    assert names(store) == {key(name) for name in (0, 1, 2, 4)}
    assert upkeep.verify(store).damaged == ()


def test_a_folder_in_an_entrys_place_is_none_and_stays(tmp_path: Path) -> None:
    store = Store(tmp_path, limit_bytes=1000)
    (store.path(key(1)) / "inside").mkdir(parents=True)
    assert store.get(key(1)) is None
    assert store.record(key(1)) is None
    store.put(key(1), entry())
    assert store.get(key(1)) is None
    assert store.counts == Counts(misses=2)
    assert (store.path(key(1)) / "inside").is_dir()
    assert upkeep.verify(store).foreign == 1


# --- other versions of the code --------------------------------------------------------


def test_entries_of_another_version_are_ignored_counted_and_pruned(tmp_path: Path) -> None:
    old, new = Store(tmp_path, version=OLD), Store(tmp_path)
    for name in range(3):
        old.put(key(name), entry(b"old"))
    new.put(key(2), entry(b"new"))
    assert [new.get(key(name)) is None for name in (0, 1, 2, 9)] == [True, True, False, True]
    assert new.counts == Counts(hits=1, misses=3, other_code=2)
    told = {each.version: (each.entries, each.bytes) for each in upkeep.contents(new)}
    each_size = len(encode(key(0), entry(b"old")))
    assert told == {OLD: (3, 3 * each_size), new.version: (1, each_size)}
    gone = upkeep.prune(new)
    assert (gone.entries, gone.bytes) == (3, 3 * each_size)
    assert [path.name for path in tmp_path.iterdir()] == [new.version]
    assert new.get(key(2)).message == b"new"
    assert new.get(key(0)) is None
    assert new.counts.other_code == 2


def test_pruning_leaves_alone_what_is_not_the_stores(tmp_path: Path) -> None:
    """A store may be given somebody's home folder."""
    foreign = [
        "notes.txt",
        f"{OLD}/notes.txt",
        f"{OLD}/ab/notes.txt",
        "0123/ab/cd",
        f"ab/{key(1)}",
    ]
    for name in foreign:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    Store(tmp_path, version=OLD).put(key(1), entry())
    assert upkeep.prune(Store(tmp_path, limit_bytes=0)).entries == 1
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == set(foreign)


def test_leftovers_of_killed_writers_go_when_they_are_old(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(key(1), entry())
    partial = store.path(key(1)).with_name(f".{key(1)}.partial-0a1b2c3d")
    partial.write_bytes(b"half")
    assert upkeep.prune(store).entries == 0
    assert partial.exists()  # somebody may be writing it
    hours_ago = time.time() - 2 * 3600
    os.utime(partial, (hours_ago, hours_ago))
    assert upkeep.verify(store).entries == 1
    assert upkeep.prune(store).entries == 0
    assert names(store) == {key(1)}


# --- the limit -------------------------------------------------------------------------


def test_what_was_not_used_for_longest_is_removed(tmp_path: Path) -> None:
    one = len(encode(key(0), entry()))
    store = Store(tmp_path, limit_bytes=4 * one)
    for name in range(4):
        store.put(key(name), entry())
        used_at(store, name, 1000.0 + name)
    assert store.get(key(0)) is not None  # reading is using
    store.put(key(4), entry())
    # Room is made for more than one, so that not every entry costs a look at all others.
    assert names(store) == {key(3), key(0), key(4)}


@settings(deadline=None, max_examples=30)
@given(sizes=st.lists(st.integers(0, 4000), min_size=1, max_size=40), limit=st.integers(0, 9000))
def test_the_limit_is_never_exceeded(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int
) -> None:
    store = Store(tmp_path_factory.mktemp("store"), limit)
    for name, length in enumerate(sizes):
        put = entry(b"x" * length)
        store.put(key(name), put)
        assert size(store) <= limit
        # The newest is there, if it fits at all.
        fits = len(encode(key(name), put)) <= limit
        assert (store.get(key(name)) is not None) == fits


def test_the_limit_holds_for_all_versions_together(tmp_path: Path) -> None:
    one = len(encode(key(0), entry()))
    old, new = Store(tmp_path, version=OLD), Store(tmp_path, limit_bytes=3 * one)
    for name in range(3):
        old.put(key(name), entry())
        used_at(old, name, 1000.0)
    new.put(key(7), entry())
    assert size(new) <= 3 * one
    assert names(new) == {key(7)}


def test_several_writers_keep_to_the_limit_together(tmp_path: Path) -> None:
    put = entry(b"x" * 1000)
    one = len(encode(key(0), put))
    stores = [Store(tmp_path, limit_bytes=20 * one) for _ in range(4)]
    for name in range(100):
        stores[name % 4].put(key(name), put)
        assert size(stores[0]) <= 20 * one
    assert len(names(stores[0])) >= 16


def test_an_entry_that_is_being_read_does_not_half_vanish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, put = Store(tmp_path), entry(b"x" * 100_000)
    store.put(key(1), put)

    def removed_first(name: str, file: object) -> Entry:
        shrink(tmp_path, 0)
        assert names(store) == set()
        return decode(name, file)

    monkeypatch.setattr(store_module, "decode", removed_first)
    assert store.get(key(1)) == put
    assert store.get(key(1)) is None


def test_the_configuration_names_store_and_limit(tmp_path: Path) -> None:
    assert open_store(load(None, []).execution) is None
    chosen = [f"execution.store={tmp_path / 's'}", "execution.store_limit_gb=0.5"]
    store = open_store(load(None, chosen).execution)
    assert (store.folder, store.limit_bytes) == (tmp_path / "s", 500_000_000)
    assert not store.folder.exists()
    (tmp_path / "file.yaml").write_text("execution: {store: beside}")
    assert load(tmp_path / "file.yaml").execution.store == tmp_path / "beside"
