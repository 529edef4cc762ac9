"""What there is in a store, whether it is sound, and what nobody needs."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from testbed.errors import ResultsError
from testbed.execution.entry import DamagedError, decode
from testbed.execution.layout import (
    being_written,
    files,
    foreign,
    is_no_store,
    remove,
    shrink,
    size,
    versions,
)
from testbed.execution.store import Store, failed
from testbed.files import remove_empty


@dataclass(frozen=True)
class Content:
    """What one version of the code has in a store.

    Attributes
    ----------
    version : str
    entries, bytes : int
    used : float
        When one of them was used last, in seconds since 1970.
    foreign : int
        What lies among them and is not the store's.
    """

    version: str
    entries: int
    bytes: int
    used: float
    foreign: int = 0


@dataclass(frozen=True)
class Verified:
    """What became of reading every entry of one version of the code.

    Attributes
    ----------
    entries : int
        How many there were.
    damaged : tuple of str
        Keys of those that were damaged, which are removed.
    others : int
        Entries of other versions of the code, which are not read.
    foreign : int
        What lies among the entries and is not the store's.
    """

    entries: int
    damaged: tuple[str, ...]
    others: int
    foreign: int


@dataclass(frozen=True)
class Removed:
    """What was removed from a store."""

    entries: int
    bytes: int


def contents(store: Store) -> tuple[Content, ...]:
    """Return what there is of each version of the code, the last used first.

    Raises
    ------
    ResultsError
        If there is no such folder, it is no store or it cannot be read.
    """
    found = []
    with _opened(store):
        for version in versions(store.folder):
            entries = [file for file in files(version) if not file.partial]
            used = max((file.used for file in entries), default=0.0)
            found.append(
                Content(version.name, len(entries), size(entries), used, foreign(version))
            )
    return tuple(sorted(found, key=lambda each: (-each.used, each.version)))


def verify(store: Store) -> Verified:
    """Read every entry of the store's version of the code and remove those that are damaged.

    Raises
    ------
    ResultsError
        If there is no such folder, it is no store or it cannot be read.
    """
    entries, damaged, others, strange = 0, [], 0, 0
    with _opened(store):
        for version in versions(store.folder):
            if version.name == store.version:
                strange = foreign(version)
            else:
                others += sum(not file.partial for file in files(version))
        for file in files(store.folder / store.version):
            if file.partial:
                continue
            try:
                with file.path.open("rb") as stream:
                    entries += 1
                    decode(file.path.name, stream)
            except FileNotFoundError:  # removed meanwhile
                continue
            except DamagedError:
                remove([file])
                damaged.append(file.path.name)
    return Verified(entries, tuple(damaged), others, strange)


def prune(store: Store) -> Removed:
    """Remove leftovers, what other versions of the code have made, and what exceeds the limit.

    Raises
    ------
    ResultsError
        If there is no such folder, it is no store or it cannot be changed.
    """
    limit = math.inf if store.limit_bytes is None else store.limit_bytes
    with _opened(store):
        others = [each for each in versions(store.folder) if each.name != store.version]
        old = [file for each in others for file in files(each) if not being_written(file)]
        remove(old)
        remove_empty([*(shard for each in others for shard in each.iterdir()), *others])
        _, rest = shrink(store.folder, limit)
    gone = [file for file in (*old, *rest) if not file.partial]
    return Removed(len(gone), size(gone))


@contextmanager
def _opened(store: Store) -> Iterator[None]:
    """Make errors of the file system in the block one line; refuse what is no store."""
    if not store.folder.is_dir():
        raise ResultsError(f"{store.folder}: no such store; name the folder of execution.store")
    try:
        if is_no_store(store.folder):
            raise ResultsError(
                f"{store.folder}: not a store, for it holds other things and no work of clients; "
                "name the folder of execution.store"
            )
        yield
    except OSError as error:
        raise failed("use", store.folder, error) from error
