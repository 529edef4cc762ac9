"""Writing files so that a reader never sees half of one."""

import glob
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from testbed.errors import ResultsError

_PARTIAL, _RETIRED = ".partial-", ".retired-"
_ADVICE = "choose a writable folder with --out"


def write_bytes(path: Path, content: bytes, advice: str = _ADVICE) -> None:
    """Write `content` to `path`: temporary file, fsync, rename.

    Parameters
    ----------
    path : Path
    content : bytes
    advice : str
        What the message of a failure tells to do.

    Raises
    ------
    ResultsError
        If the folder cannot be written.
    """
    partial = path.with_name(f".{path.name}{_PARTIAL}{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    except OSError as error:
        raise ResultsError(f"cannot write {path}: {error.strerror}; {advice}") from error
    finally:
        if partial.parent.is_dir():
            partial.unlink(missing_ok=True)


def write_text(path: Path, content: str) -> None:
    """Write UTF-8 `content` to `path` atomically."""
    write_bytes(path, content.encode())


def to_json(value: Any) -> str:
    """Render `value` as indented JSON with sorted keys; refuses NaN and infinities."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove those of the `folders` that are there and empty, in the order given."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


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
            f"cannot write to {target.parent}: {error.strerror}; {_ADVICE}"
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
        raise ResultsError(f"cannot write {target}: {error.strerror}; {_ADVICE}") from error
    shutil.rmtree(retired, ignore_errors=True)


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
