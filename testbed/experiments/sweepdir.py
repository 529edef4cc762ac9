"""The folder of a sweep: one results folder for each point, as ``testbed run`` makes them.

Beside them stands `SWEEP`: the configuration of the first point, the grid, seeds and methods,
and of the last command that did runs, what they cost and which of them failed.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from testbed import files
from testbed.config.spec import differences
from testbed.errors import ResultsError
from testbed.experiments import run
from testbed.experiments.grid import Grid
from testbed.experiments.rundir import MANIFEST
from testbed.files import remove_empty, remove_mark, to_json, write_text

SWEEP = "sweep.json"
SCHEMA = 1
TAPES = ".traffic-"

# What may differ between commands that fill the same folder, beside the keys of their grids.
_FREE = ("seeds", "execution", "name", "scale", "editing.methods")
_RUNS = "*/*/*"


@contextmanager
def claimed(grid: Grid, out: Path) -> Iterator[None]:
    """Mark `out` as the folder of a sweep, or check that it is; tidy up at the end.

    Grids, seeds and methods may differ from call to call, and all else once no run is finished.
    The mark goes again when the block leaves nothing beside it.

    Raises
    ------
    ResultsError
        If the folder belongs to another sweep or to something else.
    """
    content = {**_before(grid, out), **_described(grid)}
    write_text(out / SWEEP, to_json(content))
    _tidy(out)
    with ExitStack() as stack:
        stack.callback(remove_mark, out / SWEEP)
        for point in grid.points:
            folder = out / point.name
            folder.mkdir(exist_ok=True)
            stack.callback(remove_empty, [folder])
            stack.enter_context(run.claimed(point.experiment, folder))
        try:
            yield
        finally:
            _tidy(out)


def check(grid: Grid, out: Path) -> None:
    """Refuse the folders that `claimed` would; change nothing.

    Raises
    ------
    ResultsError
        As `claimed`.
    """
    if not out.is_dir():
        return
    _before(grid, out)
    for point in grid.points:
        if (out / point.name).is_dir():
            run.is_marked(point.experiment, out / point.name)


def write_outcome(out: Path, cost: Mapping[str, float | None], failed: Mapping[str, str]) -> None:
    """Write what a sweep cost, and why runs of it failed."""
    content = json.loads((out / SWEEP).read_text(encoding="utf-8"))
    rounded = {key: round(value, 3) if value else value for key, value in cost.items()}
    write_text(out / SWEEP, to_json({**content, "cost": rounded, "failed": dict(failed)}))


def _tidy(out: Path) -> None:
    """Remove what killed processes left half done; nobody else works here."""
    files.sweep(out)
    files.sweep(out / ".store")
    for stale in out.glob(f"{TAPES}*"):
        shutil.rmtree(stale, ignore_errors=True)


def _before(grid: Grid, out: Path) -> dict[str, Any]:
    """Return what a folder says of the sweep in it; refuse that of another one."""
    path = out / SWEEP
    if not path.is_file():
        if any(not entry.name.startswith(".") for entry in out.iterdir()):
            raise ResultsError(f"{out}: not empty and not of a sweep; name another with --out")
        return {}
    try:
        before: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        schema = before["schema"]
        changed = [] if schema != SCHEMA else _changed(before, _described(grid))
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise ResultsError(f"{path}: unreadable ({error}); name another with --out") from error
    if schema != SCHEMA:
        raise ResultsError(
            f"{path}: schema version {schema!r}, this testbed reads {SCHEMA}; name another with "
            f"--out, or remove {out}"
        )
    if not changed:
        return before
    if any(out.glob(f"{_RUNS}/{MANIFEST}")):
        raise ResultsError(
            f"{out} holds a sweep of another configuration ({'; '.join(changed)}); "
            "name another with --out"
        )
    return {}


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """List the keys in which two sweeps differ, outside of what they sweep over."""
    free = [f"{key}." for key in (*before["grid"], *now["grid"], *_FREE)]
    return [
        line
        for line in differences(before["config"], now["config"])
        if not f"{line.partition(':')[0]}.".startswith(tuple(free))
    ]


def _described(grid: Grid) -> dict[str, Any]:
    first = grid.points[0].experiment
    return {
        "schema": SCHEMA,
        "config": first.model_dump(mode="json"),
        "grid": {axis.path: list(axis.values) for axis in grid.axes},
        "seeds": list(first.seeds),
        "methods": list(first.editing.methods),
    }
