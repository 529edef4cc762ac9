"""Writing files so that a reader never sees half of one."""

import glob
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from testbed.errors import ResultsError

_PARTIAL, _RETIRED = ".partial-", ".retired-"
# The writer of a folder stands in its name, that of a file in the first digits of what follows.
_UNFINISHED = re.compile(rf"\..+({_PARTIAL}|{_RETIRED})([0-9a-f]+)")
_PID_DIGITS, _FILE_DIGITS = 8, 16
ADVICE = "choose a writable folder with --out"


def write_bytes(path: Path, content: bytes, advice: str = ADVICE, safe: bool = True) -> None:
    """Write `content` to `path`: temporary file, fsync, rename.

    Parameters
    ----------
    path : Path
    content : bytes
    advice : str
        What the message of a failure tells to do.
    safe : bool
        Wait until the content is on the disk.  Without it the end of the process, however
        sudden, still loses nothing; the end of the machine may.

    Raises
    ------
    ResultsError
        If the folder cannot be written.
    """
    partial = path.with_name(f".{path.name}{_PARTIAL}{os.getpid():08x}{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as stream:
            stream.write(content)
            if safe:
                stream.flush()
                os.fsync(stream.fileno())
        partial.replace(path)
    except OSError as error:
        raise ResultsError(f"cannot write {path}: {error.strerror}; {advice}") from error
    finally:
        if partial.parent.is_dir():
            partial.unlink(missing_ok=True)


def write_text(path: Path, content: str, safe: bool = True) -> None:
    """Write UTF-8 `content` to `path` atomically; see `write_bytes`."""
    write_bytes(path, content.encode(), safe=safe)


def to_json(value: Any) -> str:
    """Render `value` as indented JSON with sorted keys; refuses NaN and infinities."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove those of the `folders` that are there and empty, in the order given."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def remove_mark(mark: Path) -> None:
    """Remove a file where nothing else is in its folder, if that is still there."""
    with suppress(OSError):
        if list(mark.parent.iterdir()) == [mark]:
            mark.unlink()


def sweep(folder: Path) -> None:
    """Remove below a folder what processes that are no more have left half written.

    Other hidden folders are not looked into.
    """
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            found = _UNFINISHED.fullmatch(name)
            if found and not _used_elsewhere(_writer(found[2])):
                _remove(Path(place, name))
        folders[:] = [name for name in folders if not name.startswith(".")]


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes `target` when the block succeeds.

    The folder stands beside `target` under a hidden name until it is complete; on any
    failure, Ctrl-C included, it is removed.  An existing `target` is replaced only at
    the end.  Leftovers of killed runs for the same target are swept first.

    Raises
    ------
    ResultsError
        If the folder cannot be created or renamed.
    """
    partial = target.with_name(f".{target.name}{_PARTIAL}{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for marker in (_PARTIAL, _RETIRED):
            prefix = f".{target.name}{marker}"
            for stale in target.parent.glob(f"{glob.escape(prefix)}*"):
                if not _used_elsewhere(stale.name.removeprefix(prefix)):
                    shutil.rmtree(stale, ignore_errors=True)
        partial.mkdir()
    except OSError as error:
        raise ResultsError(
            f"cannot write to {target.parent}: {error.strerror}; {ADVICE}"
        ) from error
    try:
        yield partial
        _swap(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _swap(partial: Path, target: Path) -> None:
    retired = target.with_name(f".{target.name}{_RETIRED}{os.getpid()}")
    try:
        if target.exists():
            target.rename(retired)
        partial.rename(target)
    except OSError as error:
        if retired.exists() and not target.exists():
            retired.rename(target)
        raise ResultsError(f"cannot write {target}: {error.strerror}; {ADVICE}") from error
    shutil.rmtree(retired, ignore_errors=True)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _writer(digits: str) -> str:
    """Return the process that was writing, from the digits at the end of a name."""
    return str(int(digits[:_PID_DIGITS], 16)) if len(digits) == _FILE_DIGITS else digits


def _used_elsewhere(pid: str) -> bool:
    """Whether a leftover's process runs and is not this one, which starts with none."""
    if not pid.isdigit() or int(pid) == os.getpid():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
