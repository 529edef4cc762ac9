"""The contribution store: what clients have sent, in this run or in others.

A folder with one file per entry, see `testbed.execution.entry` for what is in it,
`testbed.execution.layout` for where it lies and `testbed.learning.identity` for its key.  A file
is written under another name and renamed, so that any number of processes may read and write
at once; of two that write the same entry either may win.  There is no index and no lock.  The
time of a file's modification is that of its last use.

A store stands for the vehicles' own computers: no coordinator's state refers to it.
"""

import errno
import os
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from pathlib import Path

from testbed.config.schema import ExecutionConfig
from testbed.errors import ResultsError
from testbed.execution.entry import FORMAT, DamagedError, Entry, Record, decode, encode, peek
from testbed.execution.layout import place, shrink, versions
from testbed.files import write_bytes
from testbed.learning.identity import code_version

_ADVICE = (
    "free some space, lower execution.store_limit_gb or name another execution.store, then run "
    "the same command again"
)
# Stale: another machine has removed an entry while it was read.  A folder in its place is none.
_ABSENT = (errno.ENOENT, errno.ESTALE, errno.EISDIR)
# So many processes may write at once and keep to the limit together.
_WRITERS = 16
# Share of the limit to which the store shrinks when it has reached it.
_KEPT = 0.9


@dataclass(frozen=True)
class Counts:
    """How often what was asked of a store was there.

    Attributes
    ----------
    hits, misses : int
    corrupt : int
        Misses for an entry that was damaged.
    other_code : int
        Misses for an entry that another version of the code has made.
    """

    hits: int = 0
    misses: int = 0
    corrupt: int = 0
    other_code: int = 0

    def remarks(self) -> tuple[str, ...]:
        """Say what a user should know, one sentence each."""
        said = (
            (self.corrupt, "were damaged and made again: {}."),
            (
                self.other_code,
                "another version of the code has made, not used: {}; `testbed store prune` "
                "removes them.",
            ),
        )
        return tuple(f"Entries of the store that {what}".format(n) for n, what in said if n)

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: "Counts") -> "Counts":
        return Counts(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))


@dataclass
class Store:
    """A contribution store.

    Parameters
    ----------
    folder : Path
        Made when the first entry is put there.
    limit_bytes : int, optional
        To keep to it, entries are removed that have not been used for longest.
    version : str
        Of the code; entries of other versions are not used.

    Attributes
    ----------
    counts : Counts
    """

    folder: Path
    limit_bytes: int | None = None
    version: str = field(default_factory=lambda: f"{FORMAT}-{code_version()}")
    counts: Counts = Counts()
    # Bytes that may be written before the folder is looked at again.
    _budget: int = 0

    def get(self, key: str, counted: bool = True) -> Entry | None:
        """Return an entry, None if there is none that can be used; a damaged one is removed.

        Parameters
        ----------
        key : str
        counted : bool
            Whether this changes the counts.

        Raises
        ------
        ResultsError
            If the store cannot be read.
        """
        path = self.path(key)
        try:
            with path.open("rb") as file:
                entry = decode(key, file)
        except DamagedError:
            with suppress(OSError):  # a store may be for reading only
                path.unlink()
            self._count(counted, Counts(misses=1, corrupt=1))
            return None
        except OSError as error:
            if error.errno not in _ABSENT:
                raise failed("read", path, error) from error
            self._count(counted, Counts(misses=1, other_code=self.others_have(key)))
            return None
        self._count(counted, Counts(hits=1))
        with suppress(OSError):
            os.utime(path)
        return entry

    def put(self, key: str, entry: Entry) -> None:
        """Keep an entry, unless it alone exceeds the limit or a folder is in its place.

        Raises
        ------
        ResultsError
            If it cannot be written.
        """
        if self.path(key).is_dir():
            return
        content = encode(key, entry)
        if self.limit_bytes is not None:
            if len(content) > self.limit_bytes:
                return
            self._make_room(len(content), self.limit_bytes)
        write_bytes(self.path(key), content, _ADVICE)

    def record(self, key: str) -> Record | None:
        """Return an entry's record, None if there is none; this does not count as a use."""
        try:
            with self.path(key).open("rb") as file:
                return peek(file)
        except (OSError, DamagedError):
            return None

    def others_have(self, key: str) -> int:
        """Return 1 if another version of the code has made an entry, else 0."""
        with suppress(OSError):
            for version in versions(self.folder):
                if version.name != self.version and place(version, key).is_file():
                    return 1
        return 0

    def path(self, key: str) -> Path:
        """Return where the entry of a key is, or would be."""
        return place(self.folder / self.version, key)

    def _make_room(self, needed: int, limit: int) -> None:
        """Remove entries where another one of `needed` bytes would exceed the limit."""
        if needed > self._budget:
            try:
                left, _ = shrink(self.folder, limit - needed, _KEPT)
            except OSError as error:
                raise failed("tidy up", self.folder, error) from error
            self._budget = needed + (limit - needed - left) // _WRITERS
        self._budget -= needed

    def _count(self, counted: bool, more: Counts) -> None:
        if counted:
            self.counts += more


def open_store(execution: ExecutionConfig) -> Store | None:
    """Return the store that a configuration names, if it does."""
    if execution.store is None:
        return None
    return Store(execution.store, execution.store_limit_bytes)


def failed(what: str, path: Path, error: OSError) -> ResultsError:
    """Return the error that something cannot be done to what is at `path`."""
    return ResultsError(f"cannot {what} {path}: {error.strerror}; {_ADVICE}")
