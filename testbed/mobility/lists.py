"""Traces from plain lists of who came and went, as other tools and people write them."""

import csv
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from testbed.errors import TraceError
from testbed.mobility.columns import unprintable
from testbed.mobility.events import Kind, MobilityEvent, Provenance, Trace, check_order
from testbed.mobility.tables import PLAIN
from testbed.mobility.trace import refuse_disguise, seconds

_SEPARATORS = (",", ";", "\t")
_KINDS: tuple[Kind, ...] = ("leave", "join")  # in the order of one moment


class _Row(NamedTuple):
    """A row of a list; sorts as a trace does."""

    time: float
    kind: int
    vehicle: str
    line: int


def is_list(path: Path) -> bool:
    """Whether the first line of a text file names the columns of a list."""
    try:
        with path.open(encoding="utf-8-sig") as stream:
            return _separator(stream.readline(10_000)) is not None
    except (OSError, UnicodeDecodeError):
        return False


def import_list(path: Path) -> tuple[Trace, Provenance]:
    """Turn a list with the columns time, vehicle and kind, in any order, into a trace.

    Fields are separated by commas, semicolons or tabs.  Rows need not be in order: they are
    sorted by time, leaves before joins and each by vehicle.  A row that stands twice counts
    once.  Both repairs are counted.

    Returns
    -------
    trace : Trace
        Ends with the last event.
    facts : mapping
        What was repaired, for the trace's header.

    Raises
    ------
    TraceError
        If the file is missing, empty, cut off, malformed, or not a possible history; names
        the file and the line.
    """
    try:
        refuse_disguise(path)
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path} is not a text file in UTF-8; write it again") from error
    separator = _separator(lines[0])
    if separator is None:
        raise TraceError(f"{path} line 1 should be {','.join(PLAIN)!r}, not {lines[0].strip()!r}")
    if lines[-1]:
        raise TraceError(
            f"{path} line {len(lines)} has no end of line: the file was cut off; copy it again"
        )
    found = _rows(path, lines[:-1], separator)
    if not found:
        raise TraceError(f"{path} has no events below its first line; give it some")
    once = {row[:3]: row for row in reversed(found)}
    rows = [once[key] for key in sorted(once)]
    events = tuple(MobilityEvent(row.time, row.vehicle, _KINDS[row.kind]) for row in rows)
    check_order(events, f"{path} line", [row.line for row in rows])
    return Trace(events, events[-1].time), {
        "begin": min(0.0, events[0].time),
        "duplicates_dropped": len(found) - len(rows),
        "rows_out_of_order": sum(one.line > other.line for one, other in pairwise(rows)),
    }


def _separator(heading: str) -> str | None:
    """Return what separates the columns of a list, None if these are not its columns."""
    for separator in _SEPARATORS:
        if sorted(_names(heading, separator)) == sorted(PLAIN):
            return separator
    return None


def _names(heading: str, separator: str) -> list[str]:
    return [name.strip() for name in heading.split(separator)]


def _rows(path: Path, lines: list[str], separator: str) -> list[_Row]:
    at = [_names(lines[0], separator).index(name) for name in PLAIN]
    found = []
    reader = csv.reader(lines[1:], delimiter=separator)
    try:
        for line, row in enumerate(reader, 2):
            if len(row) != len(PLAIN):
                raise TraceError(
                    f"{path} line {line} has {len(row)} fields; write {lines[0].strip()!r}"
                )
            time, vehicle, kind = (row[index].strip() for index in at)
            if kind not in _KINDS:
                raise TraceError(
                    f"{path} line {line}: kind {kind!r} is neither 'join' nor 'leave'"
                )
            if not vehicle:
                raise TraceError(f"{path} line {line}: the vehicle has no name")
            if unprintable(vehicle):
                raise TraceError(
                    f"{path} line {line}: the vehicle's name {vehicle!r} has control characters"
                )
            stamp = seconds(time, f"{path} line {line}")
            found.append(_Row(stamp, _KINDS.index(kind), vehicle, line))
    except csv.Error as error:
        raise TraceError(f"{path} line {reader.line_num + 1}: {error}") from error
    return found
