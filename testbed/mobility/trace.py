"""Trace files: the membership events of a run, to be replayed without SUMO.

CSV has the columns ``time,vehicle,kind`` under a header of ``# key: value`` lines, one of
them ``end``; Parquet has the same columns and keeps the header in its metadata.  Times
are written with the fewest digits that read back to the same number.
"""

import csv
import io
import json
import math
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed import files
from testbed.errors import TraceError
from testbed.mobility.events import MobilityEvent, Provenance, Trace, check_order

COLUMNS = ("time", "vehicle", "kind")
_METADATA = b"testbed.trace"


def write_trace(path: Path, trace: Trace, provenance: Provenance) -> None:
    """Write `trace` as CSV, or as Parquet when the file is called ``*.parquet``.

    Parameters
    ----------
    path : Path
    trace : Trace
    provenance : mapping
        What the events were made from; a source's `provenance`.

    Raises
    ------
    TraceError
        If the events are not a possible history.
    ResultsError
        If the file cannot be written.
    """
    check_order(trace.events)
    header = {**provenance, "end": trace.end}
    earliest = _earliest(header)
    for number, event in enumerate(trace.events, 1):
        _check(f"event {number}", event, earliest)
    if path.suffix == ".parquet":
        files.write_bytes(path, _parquet(trace.events, header))
    else:
        files.write_text(path, _csv(trace.events, header))


def read_trace(path: Path) -> tuple[Trace, Provenance]:
    """Read a trace and its header.

    A CSV file without a header ends at its last event.

    Raises
    ------
    TraceError
        If the file is missing, malformed, or not a possible history; names the file and
        the line.
    """
    try:
        if path.suffix == ".parquet":
            return _read_parquet(path)
        return _read_csv(path)
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path} is not a text file in UTF-8; write it again") from error


def _csv(events: Sequence[MobilityEvent], header: Provenance) -> str:
    text = io.StringIO()
    for key in sorted(header):
        text.write(f"# {key}: {json.dumps(header[key])}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows((repr(event.time), event.vehicle, event.kind) for event in events)
    return text.getvalue()


def _read_csv(path: Path) -> tuple[Trace, Provenance]:
    lines = path.read_text(encoding="utf-8-sig").split("\n")
    at = next((n for n, line in enumerate(lines) if not line.startswith("#")), len(lines) - 1)
    header: dict[str, Any] = {}
    for line in lines[:at]:
        key, _, value = line.removeprefix("#").partition(":")
        header[key.strip()] = _value(value.strip())
    names = lines[at].strip()
    if tuple(names.split(",")) != COLUMNS:
        raise TraceError(
            f"{path} line {at + 1} should be {','.join(COLUMNS)!r}, separated by commas, "
            f"not {names!r}"
        )
    if lines[-1]:
        raise TraceError(
            f"{path} line {len(lines)} has no end of line: the file was cut off; "
            "copy or record it again"
        )
    first = at + 2
    reader = csv.reader(lines[at + 1 : -1])
    earliest = _earliest(header)
    try:
        events = tuple(
            _event(f"{path} line {number}", row, earliest)
            for number, row in enumerate(reader, start=first)
        )
    except csv.Error as error:
        raise TraceError(f"{path} line {at + 1 + reader.line_num}: {error}") from error
    check_order(events, f"{path} line", first)
    return Trace(events, _end(path, header, events)), header


def _event(where: str, row: Sequence[Any], earliest: float) -> MobilityEvent:
    if len(row) != len(COLUMNS):
        raise TraceError(f"{where} has {len(row)} fields; write {','.join(COLUMNS)!r}")
    time, vehicle, kind = row
    try:
        seconds = float(time)
    except (TypeError, ValueError):
        seconds = math.nan
    if not math.isfinite(seconds):
        raise TraceError(f"{where}: time {time!r} is not a number of seconds")
    if kind not in ("join", "leave"):
        raise TraceError(f"{where}: kind {kind!r} is neither 'join' nor 'leave'")
    if not vehicle:
        raise TraceError(f"{where}: the vehicle has no name")
    event = MobilityEvent(seconds, str(vehicle), kind)
    _check(where, event, earliest)
    return event


def _check(where: str, event: MobilityEvent, earliest: float) -> None:
    if not event.time >= earliest:
        raise TraceError(
            f"{where}: time {event.time:g} is before {earliest:g}; a clock that starts below "
            "zero needs '# begin: SECONDS' in the header"
        )
    if any(unicodedata.category(character) == "Cc" for character in event.vehicle):
        raise TraceError(f"{where}: the vehicle's name {event.vehicle!r} has control characters")


def _earliest(header: Provenance) -> float:
    """Return the first second that events may have: zero, or where a header begins below."""
    begin = header.get("begin")
    return min(0.0, float(begin)) if isinstance(begin, int | float) else 0.0


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _end(path: Path, header: Provenance, events: Sequence[MobilityEvent]) -> float:
    latest = events[-1].time if events else 0.0
    end = header.get("end")
    if end is None:
        return latest
    if not isinstance(end, int | float) or not end >= latest:
        raise TraceError(
            f"{path}: the header's end {end!r} should be a number of seconds not before the "
            f"last event, at {latest:g}"
        )
    return float(end)


def _parquet(events: Sequence[MobilityEvent], header: Provenance) -> bytes:
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema(
        [("time", pyarrow.float64()), ("vehicle", pyarrow.string()), ("kind", pyarrow.string())],
        metadata={_METADATA: json.dumps(header, sort_keys=True)},
    )
    columns = {name: [getattr(event, name) for event in events] for name in COLUMNS}
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(columns, schema=schema), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _read_parquet(path: Path) -> tuple[Trace, Provenance]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(pyarrow.BufferReader(path.read_bytes()))
    except pyarrow.ArrowInvalid as error:
        raise TraceError(f"{path} is not a whole Parquet file: {error}") from error
    if tuple(table.column_names) != COLUMNS:
        raise TraceError(
            f"{path} has the columns {','.join(table.column_names)!r}; write {','.join(COLUMNS)!r}"
        )
    header = json.loads((table.schema.metadata or {}).get(_METADATA, b"{}"))
    rows = zip(*(table.column(name).to_pylist() for name in COLUMNS), strict=True)
    earliest = _earliest(header)
    events = tuple(
        _event(f"{path} row {number}", row, earliest) for number, row in enumerate(rows, 1)
    )
    check_order(events, f"{path} row")
    return Trace(events, _end(path, header, events)), header
