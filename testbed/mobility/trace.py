"""Trace files: the membership events of a run, to be replayed without SUMO.

CSV has the columns ``time,vehicle,kind``, or ``time,vehicle,kind,rsu,distance`` where places
are known, under a header of ``# key: value`` lines, one of them ``end``; Parquet has the
same columns and keeps the header in its metadata.  Numbers are written with the fewest
digits that read back to the same number.
"""

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from testbed import files
from testbed.errors import TraceError
from testbed.mobility.columns import (
    AT,
    KINDS,
    Columns,
    Recording,
    check,
    columns_of,
    encoded,
)
from testbed.mobility.events import Numbers, Provenance, Trace, check_order
from testbed.mobility.tables import LOCATED, PLAIN, Read, from_table, parquet, read_parquet

_LONG = 1_000_000  # characters from which Arrow's reader is worth its import
# How the content of other files begins, and what they are called.
_MAGIC = {b"PAR1": (".parquet",), b"\x1f\x8b": (".gz",), b"<": (".xml",)}


def write_trace(
    path: Path, trace: Trace | Recording, provenance: Provenance, safe: bool = True
) -> None:
    """Write `trace` as CSV, or as Parquet when the file is called ``*.parquet``.

    Parameters
    ----------
    path : Path
    trace : Trace or Recording
    provenance : mapping
        What the events were made from; a source's `provenance`.
    safe : bool
        As for `testbed.files.write_bytes`.

    Raises
    ------
    TraceError
        If the events are not a possible history.
    ResultsError
        If the file cannot be written.
    """
    if isinstance(trace, Recording):
        columns = trace.columns
    else:
        check_order(trace.events)
        columns = columns_of(trace)
    write_columns(path, columns, {**provenance, "end": trace.end}, safe)


def write_columns(path: Path, columns: Columns, header: Provenance, safe: bool = True) -> None:
    """Write rows with their complete header, ``end`` included; raises as `write_trace`."""
    check(columns, lambda row: f"event {row + 1}", _earliest(header), None)
    if path.suffix == ".parquet":
        files.write_bytes(path, parquet(columns, header), safe=safe)
    else:
        files.write_text(path, _csv(columns, header), safe)


def read_trace(path: Path) -> tuple[Trace, Provenance]:
    """Read a trace and its header.

    A CSV file without a header ends at its last event.

    Raises
    ------
    TraceError
        If the file is missing, malformed, or not a possible history; names the file and
        the line.
    """
    columns, header, end = read_columns(path)
    return columns.trace(end), header


def read_columns(path: Path) -> tuple[Columns, Provenance, float]:
    """Read a trace as columns, its header, and its end; raises as `read_trace`."""
    try:
        refuse_disguise(path)
        where, columns, header = (read_parquet if path.suffix == ".parquet" else _read_csv)(path)
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path} is not a text file in UTF-8; write it again") from error
    step = header.get("step_length")
    check(columns, where, _earliest(header), step if isinstance(step, int | float) else None)
    return columns, header, _end(path, header, columns)


def refuse_disguise(path: Path) -> None:
    """Refuse a file whose content is of another kind than its name says.

    Raises
    ------
    TraceError
    OSError
        If it cannot be opened.
    """
    with path.open("rb") as stream:
        begin = stream.read(8)
    for magic, suffixes in _MAGIC.items():
        if begin.removeprefix(b"\xef\xbb\xbf").startswith(magic) != (path.suffix in suffixes):
            holds = "holds" if path.suffix not in suffixes else "does not hold"
            if not begin and path.suffix in suffixes:
                raise TraceError(f"{path} is empty; write it again")
            raise TraceError(
                f"{path} {holds} what a *{suffixes[0]} file begins with; rename it or write it "
                "again"
            )


def parse_header(lines: Iterable[str]) -> dict[str, Any]:
    """Read ``# key: value`` lines; a value that is not JSON is text."""
    header: dict[str, Any] = {}
    for line in lines:
        key, _, value = line.removeprefix("#").partition(":")
        header[key.strip()] = _value(value.strip())
    return header


def header_lines(header: Provenance) -> str:
    """Return a header as it stands at the top of a CSV file; inverted by `parse_header`."""
    return "".join(f"# {key}: {json.dumps(header[key])}\n" for key in sorted(header))


def _csv(columns: Columns, header: Provenance) -> str:
    text = io.StringIO()
    text.write(header_lines(header))
    writer = csv.writer(text, lineterminator="\n")
    time, vehicle, kind = _texts(columns)
    if columns.located:
        writer.writerow(LOCATED)
        rsu = [columns.rsus[code] for code in columns.rsu.tolist()]
        metres = ["" if math.isnan(m) else repr(m) for m in columns.metres.tolist()]
        writer.writerows(zip(time, vehicle, kind, rsu, metres, strict=True))
    else:
        writer.writerow(PLAIN)
        writer.writerows(zip(time, vehicle, kind, strict=True))
    return text.getvalue()


def _texts(columns: Columns) -> tuple[list[str], list[str], list[str]]:
    return (
        [repr(time) for time in columns.time.tolist()],
        [columns.vehicles[code] for code in columns.vehicle.tolist()],
        [KINDS[code] for code in columns.kind.tolist()],
    )


def _read_csv(path: Path) -> Read:
    text = path.read_text(encoding="utf-8-sig")
    lines = text.split("\n")
    at = next((n for n, line in enumerate(lines) if not line.startswith("#")), len(lines) - 1)
    header = parse_header(lines[:at])
    names = tuple(lines[at].strip().split(","))
    if names not in (PLAIN, LOCATED):
        raise TraceError(
            f"{path} line {at + 1} should be {','.join(PLAIN)!r}, separated by commas, or "
            f"{','.join(LOCATED)!r}, not {lines[at].strip()!r}"
        )
    if lines[-1]:
        raise TraceError(
            f"{path} line {len(lines)} has no end of line: the file was cut off; "
            "copy or record it again"
        )

    def where(row: int) -> str:
        return f"{path} line {at + 2 + row}"

    if len(text) >= _LONG and (columns := _at_once(text, lines[: at + 1], names)) is not None:
        return where, columns, header
    width = len(names)
    fields: list[str] = []
    reader = csv.reader(lines[at + 1 : -1])
    try:
        for row in reader:
            if len(row) != width:
                raise TraceError(
                    f"{where(len(fields) // width)} has {len(row)} fields; "
                    f"write {','.join(names)!r}"
                )
            fields += row
    except csv.Error as error:
        raise TraceError(f"{path} line {at + 1 + reader.line_num}: {error}") from error
    return where, from_texts([fields[column::width] for column in range(width)], where), header


def _at_once(text: str, head: Sequence[str], names: Sequence[str]) -> Columns | None:
    """Read the rows of a long file in one go; None leaves it to the reader that names lines."""
    import pyarrow
    import pyarrow.csv

    body = text[sum(len(line) + 1 for line in head) :].encode()
    if b'"' in body:
        return None
    types = dict.fromkeys(names, pyarrow.string())
    types.update(time=pyarrow.float64(), distance=pyarrow.float64())
    try:
        table = pyarrow.csv.read_csv(
            pyarrow.BufferReader(body),
            pyarrow.csv.ReadOptions(use_threads=False, column_names=names),
            pyarrow.csv.ParseOptions(quote_char=False, ignore_empty_lines=False),
            pyarrow.csv.ConvertOptions(column_types=types, null_values=[""]),
        )
        columns = from_table(table, lambda row: f"row {row + 1}")
    except (pyarrow.ArrowInvalid, TraceError):
        return None
    absent = table.column("distance").null_count if "distance" in names else len(table)
    readable = (
        len(table) == body.count(b"\n")
        and np.isfinite(columns.time).all()
        and np.isfinite(columns.metres).sum() == len(table) - absent
        and ("distance" in names or (columns.kind != AT).all())
    )
    return columns if readable else None


def from_texts(texts: Sequence[Sequence[str]], where: Callable[[int], str]) -> Columns:
    """Turn three or five columns of text into rows, not yet checked as a history.

    Raises
    ------
    TraceError
        If a number or a kind is none.
    """
    time, vehicle, kind = texts[:3]
    located = len(texts) > len(PLAIN)
    rsu, metres = texts[3:] if located else (("",) * len(time),) * 2
    times = _numbers("time", "seconds", time, where)
    known = KINDS if located else KINDS[:AT]
    codes = {name: code for code, name in enumerate(known)}
    try:
        kinds = [codes[name] for name in kind]
    except KeyError:
        row = next(n for n, name in enumerate(kind) if name not in codes)
        wanted = " nor ".join(map(repr, known))
        raise TraceError(f"{where(row)}: kind {kind[row]!r} is neither {wanted}") from None
    vehicles, names = encoded(vehicle)
    areas, rsus = encoded(rsu)
    return Columns(
        times,
        vehicles,
        np.array(kinds, np.int64),
        areas,
        _numbers("distance", "metres", metres, where, optional=True),
        names,
        rsus,
    )


def _numbers(
    what: str,
    unit: str,
    texts: Sequence[str],
    where: Callable[[int], str],
    optional: bool = False,
) -> Numbers:
    """Turn texts into finite numbers; where `optional`, nothing into NaN."""
    absent = np.array([optional and not text for text in texts], bool)
    numbers = np.array([_number(text) for text in texts], float)
    bad = ~np.isfinite(numbers) & ~absent
    if bad.any():
        row = int(bad.argmax())
        raise TraceError(f"{where(row)}: {what} {texts[row]!r} is not a number of {unit}")
    return numbers


def seconds(text: str, where: str) -> float:
    """Return a time that a file names; `where` it stands is for the message.

    Raises
    ------
    TraceError
        If it is no finite number.
    """
    return float(_numbers("time", "seconds", [text], lambda _: where)[0])


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _earliest(header: Provenance) -> float:
    """Return the first second that events may have: zero, or where a header begins below."""
    begin = header.get("begin")
    return min(0.0, float(begin)) if isinstance(begin, int | float) else 0.0


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _end(path: Path, header: Provenance, columns: Columns) -> float:
    latest = float(columns.time[-1]) if len(columns.time) else 0.0
    end = header.get("end", latest)
    if not isinstance(end, int | float) or not end >= latest:
        raise TraceError(
            f"{path}: the header's end {end!r} should be a number of seconds not before the "
            f"last row, at {latest:g}"
        )
    return float(end)
