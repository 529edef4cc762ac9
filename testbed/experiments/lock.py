"""One process at a time writes to a results folder."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from testbed.errors import ResultsError
from testbed.files import remove_empty

_LOCKS = Path("/proc/locks")
_held: set[Path] = set()


@contextmanager
def exclusive(out: Path) -> Iterator[None]:
    """Keep other processes from running an experiment in `out`; make it if it is absent.

    The folder itself is locked, so nothing is written, and the lock ends with its process,
    however that ends.  Folders that were made are removed again if they stay empty.  The
    process that holds a lock may take it again.  Where a file system knows no locks there is
    none.

    Raises
    ------
    ResultsError
        If another process holds the lock, or `out` is no usable folder.
    """
    place = out.absolute()
    if place in _held:
        yield
        return
    descriptor, made = _locked(out)
    _held.add(place)
    try:
        yield
    finally:
        _held.discard(place)
        remove_empty(made)
        os.close(descriptor)


def _locked(out: Path) -> tuple[int, list[Path]]:
    """Return an open, locked descriptor of `out`, and the folders that were made for it."""
    try:
        while True:
            made = [folder for folder in (out, *out.parents) if not folder.exists()]
            out.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
            try:
                _lock(descriptor, out)
                # The process that held it until now may have removed the folder.
                if out.exists() and os.path.samestat(os.fstat(descriptor), out.stat()):
                    return descriptor, made
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
    except OSError as error:
        raise ResultsError(
            f"cannot use {out}: {error.strerror}; choose a writable folder with --out"
        ) from error


def _lock(descriptor: int, out: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = _owner(os.fstat(descriptor).st_ino)
        raise ResultsError(
            f"another testbed run{owner} is writing to {out}; wait for it or name another --out"
        ) from error
    except OSError:  # a file system without locks
        return


def _owner(inode: int) -> str:
    """Name the process that holds the lock on a folder, where the system tells."""
    with suppress(OSError):
        for line in _LOCKS.read_text().splitlines():
            # 1: FLOCK ADVISORY WRITE <process> <major>:<minor>:<inode> 0 EOF
            words = line.split()
            if words[1] == "FLOCK" and words[5].endswith(f":{inode}"):
                return f" (process {words[4]})"
    return ""
