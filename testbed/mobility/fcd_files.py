"""Reading SUMO's floating car data (``--fcd-output``), one timestep after the other.

All of the formats that SUMO writes list every timestep, those without a vehicle included, so
that a missing one is seen.  Nothing but the time, the vehicle's id, x and y is kept.
"""

import csv
import gzip
import io
import math
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from xml.parsers import expat

from testbed.errors import TraceError
from testbed.mobility.columns import unprintable
from testbed.mobility.tables import PLAIN
from testbed.mobility.trace import refuse_disguise

_COLUMNS = ("timestep_time", "vehicle_id", "vehicle_x", "vehicle_y")
_CHUNK = 1 << 16

Row = tuple[int, Any, Any, Any, Any]  # number, time, vehicle (or nothing), x, y


@dataclass(frozen=True, slots=True)
class Timestep:
    """Where the vehicles are at one time.

    Attributes
    ----------
    where : str
        The file and the line, or row, at which it begins.
    time : float
        Start of SUMO's step, as in its ``tripinfo``.
    positions : mapping of str to (float, float)
        Metres in the network's coordinates.
    """

    where: str
    time: float
    positions: dict[str, tuple[float, float]]


def timesteps(path: Path) -> Iterator[Timestep]:
    """Read ``.xml``, ``.csv`` (both also ``.gz``) or ``.parquet``; times increase strictly.

    Memory holds one timestep, whatever the size of the file.

    Raises
    ------
    TraceError
        If the file is missing, cut off, malformed, out of order, or lists a vehicle twice at one
        time; names the file and the line or row.
    """
    kind = path.name.removesuffix(".gz").rpartition(".")[2]
    try:
        refuse_disguise(path)
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror or error}") from error
    if kind == "parquet":
        yield from _grouped(f"{path} row", _from_parquet(path))
        return
    readers: dict[str, Callable[[Path, BinaryIO], Generator[Row, None, None]]] = {
        "xml": _from_xml,
        "csv": _from_csv,
    }
    if kind not in readers:
        raise TraceError(
            f"{path} is not called .xml, .xml.gz, .csv or .parquet; rename it to what it holds"
        )
    try:
        with (
            gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream,
            closing(readers[kind](path, stream)) as rows,  # type: ignore[arg-type]
        ):
            yield from _grouped(f"{path} line", rows)
    except (EOFError, zlib.error) as error:
        raise TraceError(f"{path} was cut off or damaged; copy or record it again") from error
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror or error}") from error


def _grouped(where: str, rows: Iterable[Row]) -> Iterator[Timestep]:
    now: Timestep | None = None
    text = None
    for number, stamp, vehicle, x, y in rows:
        if now is None or stamp != text:
            time = _number(where, number, "time", stamp)
            if now is not None and time < now.time:
                raise TraceError(
                    f"{where} {number}: time {time:g} comes after {now.time:g}; "
                    "sort the rows by time"
                )
            if now is None or time > now.time:
                if now is not None:
                    yield now
                now = Timestep(f"{where} {number}", time, {})
            text = stamp
        if vehicle is None:
            continue
        if unprintable(vehicle):
            raise TraceError(
                f"{where} {number}: the vehicle's name {vehicle!r} has control characters"
            )
        if vehicle in now.positions:
            raise TraceError(
                f"{where} {number}: vehicle {vehicle!r} is there twice at {now.time:g} s; "
                "leave one of the rows out"
            )
        now.positions[vehicle] = (_number(where, number, "x", x), _number(where, number, "y", y))
    if now is not None:
        yield now


def _number(where: str, number: int, what: str, value: Any) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise TraceError(f"{where} {number}: {what} {value!r} is not a number")
    return found


def _from_xml(path: Path, stream: BinaryIO) -> Generator[Row, None, None]:
    """Parse as the bytes arrive; a document type, which could define entities, is refused."""
    parser = expat.ParserCreate()
    rows: list[Row] = []
    time = ""
    root = True

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal time, root
        line = parser.CurrentLineNumber
        if root and name != "fcd-export":
            raise TraceError(
                f"{path} line {line}: <{name}> is not SUMO's <fcd-export>; give the file of "
                "--fcd-output"
            )
        root = False
        try:
            if name == "timestep":
                time = attributes["time"]
                rows.append((line, time, None, None, None))
            elif name == "vehicle":
                rows.append((line, time, attributes["id"], attributes["x"], attributes["y"]))
        except KeyError as error:
            raise TraceError(f"{path} line {line}: <{name}> has no {error.args[0]}") from None

    def refuse(*_: Any) -> None:
        raise TraceError(
            f"{path} line {parser.CurrentLineNumber}: a document type is not read, its entities "
            "could stand for anything; remove <!DOCTYPE>"
        )

    parser.StartElementHandler = start
    parser.StartDoctypeDeclHandler = refuse
    try:
        while chunk := stream.read(_CHUNK):
            parser.Parse(chunk, False)
            yield from rows
            rows.clear()
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        if reason in (expat.errors.XML_ERROR_NO_ELEMENTS, expat.errors.XML_ERROR_UNCLOSED_TOKEN):
            reason = "empty" if root else "cut off"
        raise TraceError(
            f"{path} line {error.lineno}: the file is {reason}; copy or record it again"
            if reason in ("empty", "cut off")
            else f"{path} line {error.lineno}: not well-formed XML, {reason}"
        ) from error


def _from_csv(path: Path, stream: BinaryIO) -> Generator[Row, None, None]:
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    try:
        heading = text.readline()
        if not heading.strip():
            raise TraceError(f"{path} is empty; copy or record it again")
        names = heading.strip().split(";")
        at = [names.index(name) for name in _COLUMNS] if set(_COLUMNS) <= set(names) else []
        if not at:
            if heading.startswith("#"):
                raise TraceError(f"{path} is a trace already; replay it with mobility.trace")
            missing = [name for name in _COLUMNS if name not in names]
            raise TraceError(
                f"{path} line 1 has no column {missing[0]!r}; give FCD output with "
                f"{';'.join(_COLUMNS)!r}, separated by semicolons, or a list with "
                f"{','.join(PLAIN)!r} alone"
            )
        width = len(names)
        reader = csv.reader(_whole_lines(path, text), delimiter=";")
        for row in reader:
            number = reader.line_num + 1
            if len(row) != width:
                raise TraceError(
                    f"{path} line {number} has {len(row)} fields where line 1 names {width}"
                )
            time, vehicle, x, y = (row[index] for index in at)
            yield number, time, vehicle or None, x, y
    except csv.Error as error:
        raise TraceError(f"{path} line {reader.line_num + 1}: {error}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path} is not a text file in UTF-8; record it again") from error
    finally:
        text.detach()


def _whole_lines(path: Path, text: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(text, 2):
        if not line.endswith(("\n", "\r")):
            raise TraceError(
                f"{path} line {number} has no end of line: the file was cut off; "
                "copy or record it again"
            )
        yield line


def _from_parquet(path: Path) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            missing = [name for name in _COLUMNS if name not in names]
            if missing:
                raise TraceError(
                    f"{path} has no column {missing[0]!r}; FCD output has {','.join(_COLUMNS)!r}"
                )
            number = 0
            for batch in file.iter_batches(columns=list(_COLUMNS)):
                columns = (batch.column(name).to_pylist() for name in _COLUMNS)
                for time, vehicle, x, y in zip(*columns, strict=True):
                    number += 1
                    # Other tools write names that are numbers as numbers.
                    yield number, time, None if vehicle in (None, "") else str(vehicle), x, y
    except pyarrow.ArrowInvalid as error:
        raise TraceError(f"{path} is not a whole Parquet file: {error}") from error
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror or error}") from error
