"""Writing results so that nobody ever sees half of one."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bdd100k_tools.errors import OutputError

_ADVICE = "choose another --out"


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """Yield a path beside `target` that becomes `target` when the block succeeds.

    Raises
    ------
    OutputError
        If it cannot be written; also for an OSError of the block.
    """
    partial = target.with_name(f".partial-{os.getpid()}-{target.name}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        partial.replace(target)
    except OSError as error:
        raise OutputError(f"cannot write {target}: {error.strerror or error}; {_ADVICE}") from None
    finally:
        if partial.parent.is_dir():
            partial.unlink(missing_ok=True)


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside `target` that becomes `target` when the block succeeds.

    Raises
    ------
    OutputError
        If `target` is there and not an empty folder, which is never replaced, or if it
        cannot be written; also for an OSError of the block.
    """
    if target.is_symlink() or target.is_file() or (target.is_dir() and any(target.iterdir())):
        raise OutputError(f"{target} is there already; remove it or {_ADVICE}")
    partial = target.with_name(f".partial-{os.getpid()}-{target.name}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
        yield partial
        partial.replace(target)
    except OSError as error:
        raise OutputError(f"cannot write {target}: {error.strerror or error}; {_ADVICE}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_text(target: Path, content: str) -> None:
    """Write UTF-8 `content` to `target` atomically."""
    with new_file(target) as partial:
        partial.write_text(content, encoding="utf-8")


def to_json(value: Any) -> str:
    """Render `value` as indented JSON with sorted keys."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
