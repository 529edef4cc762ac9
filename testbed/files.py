"""Writing files so that a reader never sees half of one."""

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testbed.errors import ResultsError

_PARTIAL = ".partial-"


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path`: temporary file, fsync, rename.

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
        raise ResultsError(
            f"cannot write {path}: {error.strerror}; choose a writable folder with --out"
        ) from error
    finally:
        partial.unlink(missing_ok=True) if partial.parent.is_dir() else None


def write_text(path: Path, content: str) -> None:
    """Write UTF-8 `content` to `path` atomically."""
    write_bytes(path, content.encode())


def to_json(value: Any) -> str:
    """Render `value` as indented JSON with sorted keys; refuses NaN and infinities."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


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
    prefix = f".{target.name}{_PARTIAL}"
    partial = target.with_name(f"{prefix}{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for stale in target.parent.glob(f"{prefix}*"):
            if not _alive(stale.name.removeprefix(prefix)):
                shutil.rmtree(stale, ignore_errors=True)
        partial.mkdir()
    except OSError as error:
        raise ResultsError(
            f"cannot write to {target.parent}: {error.strerror}; "
            "choose a writable folder with --out"
        ) from error
    try:
        yield partial
        _swap(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _swap(partial: Path, target: Path) -> None:
    retired = target.with_name(f".{target.name}.retired-{os.getpid()}")
    if target.exists():
        target.rename(retired)
    partial.rename(target)
    shutil.rmtree(retired, ignore_errors=True)


def _alive(pid: str) -> bool:
    if not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
