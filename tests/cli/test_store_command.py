"""``testbed store``: what is in a store, what of it is damaged, what nobody needs."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.execution.entry import Entry, Record
from testbed.execution.layout import files
from testbed.execution.store import Store

Call = Callable[..., tuple[int, list[str], list[str]]]
OLD = "1-0123456789abcdef"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    for number in range(4):
        message = b"x" * 1000
        store.put(f"{number:064x}", Entry(message, Record("model", 1.0, 1, 1000, "")))
        os.utime(store.path(f"{number:064x}"), (10**9 + number, 10**9 + number))
    return store


def keys(store: Store) -> list[str]:
    return [file.path.name for file in files(store.folder / store.version)]


def test_info_counts_every_version(call: Call, store: Store) -> None:
    old = Store(store.folder, version=OLD)
    old.put("a" * 64, Entry(b"", Record("model", 1.0, 1, 0, "")))
    code, out, err = call("store", "info", store.folder)
    assert (code, err) == (0, [])
    (this,) = [line for line in out if "(this one)" in line]
    assert store.version in this
    assert " 4 " in this
    assert "2001-09-0" in this
    (other,) = [line for line in out if OLD in line]
    assert " 1 " in other
    size = sum(path.stat().st_size for path in store.folder.rglob("*") if path.is_file())
    assert out[-1] == f"entries: 5, {size / 1000:.2f} kB"


def test_an_empty_folder_is_an_empty_store(call: Call, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert call("store", "info", empty) == (0, ["entries: 0, 0 B"], [])
    assert call("store", "verify", empty) == (0, ["entries: 0, damaged: 0"], [])
    assert call("store", "prune", empty) == (0, ["entries removed: 0, 0 B"], [])


def test_verify_names_what_is_damaged_once(call: Call, store: Store) -> None:
    assert call("store", "verify", store.folder) == (0, ["entries: 4, damaged: 0"], [])
    os.truncate(store.path(f"{2:064x}"), 500)
    code, out, err = call("store", "verify", store.folder)
    assert (code, err) == (1, [])
    assert out == [
        f"damaged and removed: {2:064x}",
        "entries: 4, damaged: 1; runs make them again",
    ]
    assert call("store", "verify", store.folder) == (0, ["entries: 3, damaged: 0"], [])


def test_prune_removes_other_versions_and_what_is_beyond_a_limit(call: Call, store: Store) -> None:
    old = Store(store.folder, version=OLD)
    old.put("a" * 64, Entry(b"", Record("model", 1.0, 1, 0, "")))
    code, out, err = call("store", "prune", store.folder)
    assert (code, err) == (0, [])
    assert out[0].startswith("entries removed: 1, ")
    assert len(keys(store)) == 4
    code, out, err = call("store", "prune", store.folder, "--limit-gb", "3e-6")
    assert out[0].startswith("entries removed: 2, ")
    assert keys(store) == [f"{number:064x}" for number in (2, 3)]


@pytest.mark.parametrize("command", ["info", "verify", "prune"])
def test_a_wrong_folder_is_one_line(call: Call, tmp_path: Path, command: str) -> None:
    code, out, err = call("store", command, tmp_path / "nowhere")
    assert (code, out) == (2, [])
    assert err == [
        f"error: {tmp_path / 'nowhere'}: no such store; name the folder of execution.store"
    ]


@pytest.mark.parametrize("command", ["info", "verify", "prune"])
def test_a_folder_of_other_things_is_refused(call: Call, tmp_path: Path, command: str) -> None:
    folder = tmp_path / "thesis"
    (folder / "figures").mkdir(parents=True)
    (folder / ".hidden").write_text("")
    code, out, err = call("store", command, folder)
    assert (code, out) == (2, [])
    assert err == [
        f"error: {folder}: not a store, for it holds other things and no work of clients; "
        "name the folder of execution.store"
    ]
    (folder / "figures").rmdir()
    assert call("store", command, folder)[0] == 0  # with hidden files it is an empty one


def test_what_is_not_the_stores_is_counted_and_left_alone(call: Call, store: Store) -> None:
    """A folder where an entry belongs, one with another name, and a file for a folder."""
    place = store.path(f"{9:064x}")
    (place / "inside").mkdir(parents=True)
    (place.parent / "more").mkdir()
    (store.folder / store.version / "ab").write_text("")
    (store.folder / OLD).write_text("")
    _, out, err = call("store", "info", store.folder)
    assert err == []
    assert re.fullmatch(r"entries: 4, \S+ kB; not the store's and left alone: 3", out[-1])
    said = "entries: 4, damaged: 0; not the store's and left alone: 3"
    assert call("store", "verify", store.folder) == (0, [said], [])
    assert call("store", "prune", store.folder, "--limit-gb", 1e-9)[0] == 0
    assert keys(store) == []
    assert (place / "inside").is_dir()


def test_verify_says_what_another_version_of_the_code_has_made(call: Call, store: Store) -> None:
    old = Store(store.folder, version=OLD)
    for number in range(3):
        old.put(f"{number:064x}", Entry(b"", Record("model", 1.0, 1, 0, "")))
    note = (
        "note: Entries of the store that another version of the code has made, not used: 3; "
        "`testbed store prune` removes them."
    )
    told = call("store", "verify", store.folder)
    assert told == (0, ["entries: 4, damaged: 0", note], [])
    shutil.rmtree(store.folder / store.version)
    told = call("store", "verify", store.folder)
    assert told == (0, ["entries: 0, damaged: 0", note], [])


@pytest.mark.parametrize("limit", ["nan", "-1", "inf", "1e99"])
def test_a_limit_that_is_none_is_refused(call: Call, store: Store, limit: str) -> None:
    code, _, err = call("store", "prune", store.folder, "--limit-gb", limit)
    assert code == 2
    assert err[-1].startswith("error: execution.store_limit_gb: ")
    assert len(err) == 1
    assert len(keys(store)) == 4
