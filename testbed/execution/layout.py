"""Where the entries of a contribution store lie: ``<version>/<first two digits>/<key>``.

Only what has such a name is ever listed, and so removed: a store may be given the wrong folder.
"""

import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

_VERSION = re.compile(r"\d+-[0-9a-f]{16}")
_SHARD = re.compile(r"[0-9a-f]{2}")
_KEY = re.compile(r"[0-9a-f]{64}")
# How `testbed.files` calls what is being written.
_PARTIAL = re.compile(r"\.[0-9a-f]{64}\.partial-[0-9a-f]+")
# Nobody writes one file for so long.
_ABANDONED_S = 3600.0


@dataclass(frozen=True)
class File:
    """One file of a store.

    Attributes
    ----------
    path : Path
    bytes : int
    used : float
        Time of the last use, in seconds since 1970.
    partial : bool
        It is being written, or its writing was never finished.
    """

    path: Path
    bytes: int
    used: float
    partial: bool


def place(version: Path, key: str) -> Path:
    """Return where a version of the code has the entry of a key."""
    return version / key[:2] / key


def versions(folder: Path) -> tuple[Path, ...]:
    """Return the folders of all versions of the code, sorted; none where there is no store.

    Raises
    ------
    OSError
        If the folder cannot be read.
    """
    return tuple(_children(folder, _VERSION))


def files(version: Path) -> Iterator[File]:
    """Yield what a version of the code has, in order of name.

    Raises
    ------
    OSError
        If a folder cannot be read.
    """
    for shard in _children(version, _SHARD):
        with os.scandir(shard) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            partial = bool(_PARTIAL.fullmatch(entry.name))
            if not partial and not _KEY.fullmatch(entry.name):
                continue
            try:
                if not entry.is_file():
                    continue
                status = entry.stat()
            except FileNotFoundError:  # removed meanwhile
                continue
            yield File(Path(entry.path), status.st_size, status.st_mtime, partial)


def foreign(version: Path) -> int:
    """Count what is in the folders of a version of the code and is not the store's.

    Raises
    ------
    OSError
        If a folder cannot be read.
    """
    shards = _children(version, _SHARD)
    present = sum(1 for folder in (version, *shards) for _ in folder.iterdir())
    return present - len(shards) - sum(1 for _ in files(version))


def is_no_store(folder: Path) -> bool:
    """Whether a folder holds something, hidden files apart, and no version of the code.

    Raises
    ------
    OSError
        If the folder cannot be read.
    """
    return not versions(folder) and any(path.name[0] != "." for path in folder.iterdir())


def being_written(file: File) -> bool:
    """Whether a file may still become an entry."""
    return file.partial and file.used > time.time() - _ABANDONED_S


def size(found: Iterable[File]) -> int:
    """Return how many bytes files have together."""
    return sum(file.bytes for file in found)


def remove(found: Iterable[File]) -> None:
    """Remove files; who reads one goes on reading it.

    Raises
    ------
    OSError
        If one cannot be removed.
    """
    for file in found:
        file.path.unlink(missing_ok=True)


def shrink(folder: Path, limit: float, share: float = 1.0) -> tuple[int, list[File]]:
    """Remove leftovers and, if what is left exceeds `limit`, what was not used for longest.

    Parameters
    ----------
    folder : Path
        Of the store.
    limit : float
        Bytes.
    share : float
        Where the limit is exceeded, to which share of it the store shrinks.

    Returns
    -------
    left : int
        Bytes that are there now.
    gone : list of File

    Raises
    ------
    OSError
        If the folder cannot be read or changed.
    """
    present = [file for version in versions(folder) for file in files(version)]
    gone = [file for file in present if file.partial and not being_written(file)]
    left = size(present) - size(gone)
    if left > limit:
        entries = [file for file in present if not file.partial]
        for file in sorted(entries, key=attrgetter("used")):
            if left <= share * limit:
                break
            gone.append(file)
            left -= file.bytes
    remove(gone)
    return left, gone


def _children(folder: Path, form: re.Pattern[str]) -> list[Path]:
    try:
        found = sorted(path for path in folder.iterdir() if form.fullmatch(path.name))
        return [path for path in found if path.is_dir()]
    except FileNotFoundError:
        return []
