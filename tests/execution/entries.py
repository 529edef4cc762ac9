"""Entries of a store, and what a store holds."""

import os
from hashlib import sha256

from testbed.execution.entry import Entry, Record
from testbed.execution.layout import files
from testbed.execution.store import Store
from testbed.learning.acceptance import Unusable

OLD = "1-0123456789abcdef"


def key(name: object) -> str:
    return sha256(str(name).encode()).hexdigest()


def entry(message: bytes | Unusable = b"\x00message\n\xff", seconds: float = 1.5) -> Entry:
    size = 0 if isinstance(message, Unusable) else len(message)
    return Entry(message, Record("model, partition 3", seconds, 10**15, size, "c0de"))


def names(store: Store) -> set[str]:
    return {file.path.name for file in files(store.folder / store.version)}


def size(store: Store) -> int:
    return sum(path.stat().st_size for path in store.folder.rglob("*") if path.is_file())


def used_at(store: Store, name: object, seconds: float) -> None:
    os.utime(store.path(key(name)), (seconds, seconds))
