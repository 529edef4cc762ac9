"""What a run directory must hold before anything is computed from it."""

import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd

from testbed.errors import ResultsError
from testbed.ledger import LedgerRow
from testbed.simulation.metric import Metric

MODEL = "model.safetensors"
FILES = (
    "ledger.csv",
    "ledger.parquet",
    "metrics.csv",
    "metrics.parquet",
    MODEL,
    "trace.csv",
)
_MANIFEST = {
    "status": str,
    "method": str,
    "seed": int,
    "hash": str,
    "config": dict,
    "population_initial": int,
    "subset_size": int,
    "counts": dict,
    "contact": dict,
    "notes": list,
    "warnings": list,
    "mobility": dict,
    "data": dict,
    "versions": dict,
}
_SECTIONS = ("clients", "data", "editing", "fisher", "learning", "mobility", "time")
# The smallest value of the columns that have one; no other number may be negative.
_LEAST = {"partition": -1, "batch": 1, "population": 1}
# The phases of a ledger row that can have the result.
_PHASES = {
    "unusable": ("train", "fisher", "upload"),
    "lost": ("download", "train", "fisher", "upload"),
    "unconverged": ("solve",),
}


def damaged(path: Path, what: object) -> ResultsError:
    """Return the error that `path` is damaged, and what about it."""
    told = " ".join(str(what).split())  # pyarrow's messages have several lines
    return ResultsError(
        f"{path}: damaged run ({told}); remove that folder and run the same command again"
    )


def check_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Check keys and types of a finished run's manifest.

    Raises
    ------
    ResultsError
        Naming the first key that is wrong.
    """
    for key, kind in _MANIFEST.items():
        if key not in manifest:
            raise damaged(path, f"no {key}")
        if type(manifest[key]) is not kind:  # True is no number here
            raise damaged(path, f"{key} is {manifest[key]!r}, no {kind.__name__}")
    if manifest["status"] != "finished":
        raise damaged(path, f"status is {manifest['status']!r}, not 'finished'")
    for section in _SECTIONS:
        if type(manifest["config"].get(section)) is not dict:
            raise damaged(path, f"config has no section {section}")
    for key in ("notes", "warnings"):
        if not all(isinstance(sentence, str) for sentence in manifest[key]):
            raise damaged(path, f"{key} are not all text")


def check_files(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Check that every file of a finished run is there; one without learning has no model.

    Raises
    ------
    ResultsError
        Naming the first that is missing.
    """
    learned = manifest["config"].get("fidelity") != "cost"
    for name in FILES:
        if not (folder / name).is_file() and (learned or name != MODEL):
            raise damaged(folder / name, "missing")


def check_metrics(path: Path, frame: pd.DataFrame) -> None:
    """Check a table of metrics.

    Raises
    ------
    ResultsError
        Naming the first thing that is wrong.
    """
    _check_table(path, frame, Metric)
    _require(path, frame, "request", frame["request"] == np.arange(len(frame)))
    later = frame["request"] > 0
    _require(path, frame, "kind", frame["kind"].isin(["join", "leave"]) == later)
    _require(path, frame, "kind", (frame["kind"] == "init") != later)
    _require(path, frame, "t", frame["t"].diff().fillna(0) >= 0)
    for name in ("accuracy", "map50_95", "map50"):
        # Nothing is measured of some models only.
        empty = frame[name].isna()
        _require(path, frame, name, empty if empty.all() else frame[name] <= 1)


def check_ledger(
    path: Path, parts: Iterable[pd.DataFrame], manifest: Mapping[str, Any], last: int
) -> None:
    """Check a ledger against the run it belongs to.

    Parameters
    ----------
    path : Path
    parts : iterable of DataFrame
        The ledger piece by piece; the numbers of rows go on from each to the next.
    manifest : mapping
        Of the run.
    last : int
        The run's last request.

    Raises
    ------
    ResultsError
        Naming the first thing that is wrong.
    """
    begin = end = None
    for frame in parts:
        _check_part(path, frame, manifest, end)
        begin = int(frame["request"].iloc[0]) if begin is None else begin
        end = int(frame["request"].iloc[-1])
    if begin is None:
        raise damaged(path, "no rows")
    if (begin, end) != (0, last):
        raise damaged(path, f"covers requests {begin} to {end}, not 0 to {last}")


def _check_part(
    path: Path, frame: pd.DataFrame, manifest: Mapping[str, Any], before: int | None
) -> None:
    """Check rows of a ledger; `before` is the request of the row before them."""
    _check_table(path, frame, LedgerRow)
    method = manifest["method"]
    run = f"{method}-{manifest['hash']}"
    for name, value in (("run", run), ("seed", manifest["seed"]), ("method", method)):
        _require(path, frame, name, frame[name] == value)
    _require(path, frame, "kind", (frame["kind"] == "init") == (frame["request"] == 0))
    first = frame["request"].iloc[0] if before is None else before
    steps = np.diff(frame["request"], prepend=first)
    _require(path, frame, "request", steps >= 0)
    for result, phases in _PHASES.items():
        fine = (frame["result"] != result) | frame["phase"].isin(phases)
        _require(path, frame, "result", fine)


def _check_table(path: Path, frame: pd.DataFrame, row: type) -> None:
    """Check columns, types, times and signs; `row` is the dataclass of a row."""
    names = [field.name for field in fields(row)]
    if list(frame.columns) != names:
        unlike = sorted(set(names) ^ set(frame.columns)) or ["their order"]
        raise damaged(path, f"other columns than expected: {', '.join(map(str, unlike))}")
    if frame.empty:
        raise damaged(path, "no rows")
    for field in fields(row):
        values = frame[field.name]
        optional = isinstance(field.type, types.UnionType)
        if optional and values.isna().all():
            continue
        kind: Any = get_args(field.type)[0] if optional else field.type
        words = get_args(kind)  # of a Literal
        if not _is(values, str if words else kind):
            raise damaged(path, f"{field.name} has the type {values.dtype}")
        if words:
            _require(path, frame, field.name, values.isin(words))
        if kind in (int, float):
            fine = values >= _LEAST.get(field.name, 0)  # False where there is no number
            _require(path, frame, field.name, fine | values.isna() if optional else fine)
    _require(
        path, frame, "t_end", (frame["t_end"] >= frame["t_start"]) & (frame["t_end"] < np.inf)
    )
    _require(path, frame, "subset", frame["subset"] <= frame["population"])


def _is(values: "pd.Series[Any]", kind: type) -> bool:
    if kind is str:
        # A column of objects is one of text only if every value is.
        return values.dtype != object and pd.api.types.is_string_dtype(values)
    return values.dtype.kind == {int: "i", float: "f", bool: "b"}[kind]


def _require(path: Path, frame: pd.DataFrame, name: str, fine: Any) -> None:
    """Refuse the first row of the table in which the column's value is not `fine`."""
    wrong: Sequence[int] = np.flatnonzero(~np.asarray(fine, dtype=bool)).tolist()
    if wrong:
        row = wrong[0]
        value = frame[name].iloc[row]
        raise damaged(path, f"{name} cannot be {value} in row {frame.index[row]}")
