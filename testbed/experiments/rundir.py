"""The run directory: its format, its reader and its writer.

Everything printed or plotted is derived from these files alone.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd

from testbed.errors import ResultsError
from testbed.experiments.tables import Stored
from testbed.experiments.validation import (
    check_files,
    check_ledger,
    check_manifest,
    check_metrics,
    damaged,
)
from testbed.files import to_json, write_bytes, write_text
from testbed.ledger import LedgerRow
from testbed.simulation.metric import Metric

__all__ = [
    "Metric",
    "OtherSchemaError",
    "Run",
    "find_runs",
    "read_manifest",
    "read_run",
    "write_manifest",
    "write_table",
]

SCHEMA = 4
MANIFEST = "manifest.json"
_LONG = 1_000_000  # rows that take about a gigabyte in memory


class OtherSchemaError(ResultsError):
    """A run directory is of another schema version."""


@dataclass(frozen=True, eq=False)
class Run:
    """One finished run, read from its folder.

    Attributes
    ----------
    folder : Path
    manifest : mapping
    ledger : iterable of LedgerRow
        In order of request: a tuple, or what reads a long file anew each time.
    metrics : DataFrame
        One row per request, the columns of `Metric`.
    """

    folder: Path
    manifest: Mapping[str, Any]
    ledger: Iterable[LedgerRow]
    metrics: pd.DataFrame

    @property
    def method(self) -> str:
        """Name of the method."""
        return str(self.manifest["method"])

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return int(self.manifest["seed"])


def write_table(folder: Path, name: str, rows: Sequence[Any], columns: Sequence[str]) -> None:
    """Write dataclass `rows` as ``name.csv`` and ``name.parquet``; bytes are deterministic."""
    frame = pd.DataFrame([asdict(row) for row in rows], columns=list(columns))
    write_text(folder / f"{name}.csv", frame.to_csv(index=False, lineterminator="\n"))
    buffer = BytesIO()
    frame.to_parquet(buffer, index=False)
    write_bytes(folder / f"{name}.parquet", buffer.getvalue())


def write_manifest(folder: Path, manifest: Mapping[str, Any], safe: bool = True) -> None:
    """Write the manifest, the last file of a complete run directory; see `write_bytes`."""
    write_text(folder / MANIFEST, to_json({"schema": SCHEMA, **manifest}), safe)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a run directory.

    Raises
    ------
    ResultsError
        If it is missing, damaged, or of another schema version.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ResultsError(
            f"{path}: not a readable manifest ({error}); remove that folder and run the same "
            "command again"
        ) from error
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        found = manifest.get("schema") if isinstance(manifest, dict) else None
        raise OtherSchemaError(
            f"{path}: schema version {found!r}, this testbed reads {SCHEMA}; "
            "remove that folder and run the same command again"
        )
    return manifest


def read_run(folder: Path) -> Run:
    """Read one run directory.

    Raises
    ------
    ResultsError
        If a file is missing or damaged.
    """
    manifest = read_manifest(folder)
    check_manifest(folder / MANIFEST, manifest)
    check_files(folder, manifest)
    metrics = _read_table(folder / "metrics.parquet")
    check_metrics(folder / "metrics.parquet", metrics)
    ledger = Stored(folder / "ledger.parquet", LedgerRow)
    check_ledger(ledger.path, ledger.frames(), manifest, last=len(metrics) - 1)
    rows = tuple(ledger) if len(ledger) <= _LONG else ledger
    return Run(folder=folder, manifest=manifest, ledger=rows, metrics=metrics)


def _read_table(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except Exception as error:  # damaged bytes make pandas and pyarrow raise almost anything
        raise damaged(path, error) from error


def find_runs(folder: Path) -> tuple[Run, ...]:
    """Read every finished run below `folder`, in order of method folder and seed.

    Raises
    ------
    ResultsError
        If the folder does not exist or holds no finished run.
    """
    if not folder.is_dir():
        raise ResultsError(f"{folder}: no such results folder; name one that `testbed run` made")
    runs = [read_run(path.parent) for path in _manifests(folder)]
    if not runs:
        raise ResultsError(f"{folder}: holds no finished run; make one with `testbed run CONFIG`")
    return tuple(sorted(runs, key=lambda run: (run.folder.parent.name, run.seed)))


def _manifests(folder: Path) -> Iterable[Path]:
    own = folder / MANIFEST
    if own.is_file():
        return [own]
    return [
        path
        for path in folder.rglob(MANIFEST)
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
