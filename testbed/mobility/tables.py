"""Traces as Arrow tables: Parquet files, and what Arrow reads of CSV files."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from testbed.errors import TraceError
from testbed.mobility.columns import KINDS, Columns
from testbed.mobility.events import Codes, Provenance

PLAIN = ("time", "vehicle", "kind")
LOCATED = (*PLAIN, "rsu", "distance")
Read = tuple[Callable[[int], str], Columns, dict[str, Any]]

_METADATA = b"testbed.trace"


def parquet(columns: Columns, header: Provenance) -> bytes:
    """Return the bytes of a Parquet file."""
    import pyarrow
    import pyarrow.parquet

    def words(codes: Any, names: Sequence[str]) -> Any:
        coded = pyarrow.DictionaryArray.from_arrays(codes, pyarrow.array(names, pyarrow.string()))
        return coded.dictionary_decode()

    found = {
        "time": pyarrow.array(columns.time),
        "vehicle": words(columns.vehicle, columns.vehicles),
        "kind": words(columns.kind, KINDS),
    }
    if columns.located:
        found["rsu"] = words(columns.rsu, columns.rsus)
        found["distance"] = pyarrow.array(columns.metres, from_pandas=True)
    table = pyarrow.table(found).replace_schema_metadata(
        {_METADATA: json.dumps(header, sort_keys=True)}
    )
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _header(path: Path, text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except ValueError:
        header = None
    if not isinstance(header, dict):
        raise TraceError(f"{path}: its header is not a JSON object; record or import it again")
    return header


def read_parquet(path: Path) -> Read:
    """Read a Parquet file, its rows not yet checked as a history.

    Raises
    ------
    TraceError
        If it is not whole, or its columns are not those of a trace.
    OSError
        If it cannot be read.
    """
    import pyarrow
    import pyarrow.parquet

    def where(row: int) -> str:
        return f"{path} row {row + 1}"

    try:
        table = pyarrow.parquet.read_table(pyarrow.BufferReader(path.read_bytes()))
    except pyarrow.ArrowInvalid as error:
        raise TraceError(f"{path} is not a whole Parquet file: {error}") from error
    names = tuple(table.column_names)
    if names not in (PLAIN, LOCATED):
        raise TraceError(
            f"{path} has the columns {','.join(names)!r}; write {','.join(PLAIN)!r} or "
            f"{','.join(LOCATED)!r}"
        )
    header = _header(path, (table.schema.metadata or {}).get(_METADATA, b"{}"))
    for name in names:
        kind = "double" if name in ("time", "distance") else "string"
        try:
            table = table.set_column(names.index(name), name, table.column(name).cast(kind))
        except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError) as error:
            found = table.column(name).type
            raise TraceError(f"{path}: the column {name!r} holds {found}, not {kind}") from error
    return where, from_table(table, where), header


def from_table(table: Any, where: Callable[[int], str]) -> Columns:
    """Turn an Arrow table of the columns of a trace into rows, not yet checked as a history.

    Raises
    ------
    TraceError
        If a kind is none; `where` names the row.
    """
    kinds, kind_names = _coded(table.column("kind"))
    codes = {name: code for code, name in enumerate(KINDS)}
    unknown = [code for code, name in enumerate(kind_names) if name not in codes]
    if unknown:
        row = int(np.isin(kinds, unknown).argmax())
        raise TraceError(
            f"{where(row)}: kind {kind_names[kinds[row]]!r} is neither 'join' nor 'leave' nor 'at'"
        )
    rows = len(kinds)
    located = "rsu" in table.column_names
    rsu, rsus = _coded(table.column("rsu")) if located else (np.zeros(rows, np.int64), ("",))
    metres = table.column("distance").to_numpy() if located else np.full(rows, np.nan)
    number = np.array([codes[name] for name in kind_names], np.int64)
    vehicle, vehicles = _coded(table.column("vehicle"))
    return Columns(
        table.column("time").to_numpy(),
        vehicle,
        number[kinds] if rows else kinds,
        rsu,
        metres,
        vehicles,
        rsus,
    )


def _coded(column: Any) -> tuple[Codes, tuple[str, ...]]:
    """Return texts as numbers and the texts by number; a missing one is empty."""
    coded = column.combine_chunks().fill_null("").dictionary_encode()
    codes: Codes = coded.indices.to_numpy().astype(np.int64)
    return codes, tuple(coded.dictionary.to_pylist())
