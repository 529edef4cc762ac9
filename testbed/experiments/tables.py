"""Tables of a run directory: written as they grow, and read back in pieces.

A table is ``name.csv`` and ``name.parquet``.  Rows wait in memory until there are enough of
them for a row group, so that a table may be longer than the memory is large.
"""

import csv
import os
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Generic, Self, TypeVar, get_args

import pandas as pd
import pyarrow
import pyarrow.parquet

from testbed.errors import ResultsError
from testbed.experiments.validation import damaged
from testbed.files import ADVICE

_GROUP = 1 << 14  # rows
_TYPES = {
    str: pyarrow.string(),
    int: pyarrow.int64(),
    float: pyarrow.float64(),
    bool: pyarrow.bool_(),
}
T = TypeVar("T")


class Table:
    """Takes rows, dataclasses of one type; its files are whole when it is closed.

    Parameters
    ----------
    folder : Path
        Of a run that nobody reads before it is finished.
    name : str
    row : type
        The dataclass.
    safe : bool
        Wait in the end until the files are on the disk.

    Raises
    ------
    ResultsError
        If the files cannot be written; the methods raise it, too.
    """

    def __init__(self, folder: Path, name: str, row: type, safe: bool = True) -> None:
        self._schema = _schema(row)
        self._take = attrgetter(*self._schema.names)
        self._rows: list[tuple[Any, ...]] = []
        self._path, self._safe = folder / f"{name}.parquet", safe
        with self._writing(), ExitStack() as opened:
            text = self._path.with_suffix(".csv")
            self._text: IO[str] = opened.enter_context(text.open("w", -1, "utf-8", newline=""))
            self._binary: IO[bytes] = opened.enter_context(self._path.open("wb"))
            self._lines = csv.writer(self._text, lineterminator="\n")
            self._lines.writerow(self._schema.names)
            self._groups = pyarrow.parquet.ParquetWriter(self._binary, self._schema)
            self._opened = opened.pop_all()

    def add(self, rows: Iterable[Any]) -> None:
        """Take in rows."""
        self._rows.extend(map(self._take, rows))
        if len(self._rows) >= _GROUP:
            self._flush()

    def close(self) -> None:
        """Write what is left."""
        try:
            self._flush()
            with self._writing():
                self._groups.close()
                if self._safe:
                    for file in (self._text, self._binary):
                        file.flush()
                        os.fsync(file.fileno())
                self._opened.close()
        finally:
            self._abandon()

    def __enter__(self) -> Self:
        """Return the table itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it; after an error its files are left as they are."""
        if error is None:
            self.close()
        else:
            self._abandon()

    def _abandon(self) -> None:
        """Let go of the files, whatever state they are in."""
        self._groups.is_open = False  # it would write once more when it is forgotten
        with suppress(OSError):
            self._opened.close()

    def _flush(self) -> None:
        """Write the rows that wait as a row group."""
        if not self._rows:
            return
        columns = list(zip(*self._rows, strict=True))
        self._rows.clear()
        arrays = [
            pyarrow.array(column, field.type)
            for column, field in zip(columns, self._schema, strict=True)
        ]
        texts = (
            _numbers(column) if field.type == _TYPES[float] else column
            for column, field in zip(columns, self._schema, strict=True)
        )
        with self._writing():
            self._groups.write_table(pyarrow.Table.from_arrays(arrays, schema=self._schema))
            self._lines.writerows(zip(*texts, strict=True))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            told = error.strerror or error
            raise ResultsError(f"cannot write {self._path}: {told}; {ADVICE}") from error


@dataclass(frozen=True)
class Stored(Generic[T]):
    """The rows of a Parquet file; each iteration reads them, some thousands at a time.

    Attributes
    ----------
    path : Path
    row : type
        The dataclass of a row, whose fields are the columns.

    Raises
    ------
    ResultsError
        When the file turns out to be missing or damaged.
    """

    path: Path
    row: Callable[..., T]

    def __len__(self) -> int:
        """Return how many rows there are."""
        with self._opened() as file:
            return int(file.metadata.num_rows)

    def __iter__(self) -> Iterator[T]:
        """Yield the rows."""
        for batch in self._batches():
            columns = (column.to_pylist() for column in batch.columns)
            yield from map(self.row, *columns)

    def frames(self) -> Iterator[pd.DataFrame]:
        """Yield the rows as tables, whose index numbers them."""
        number = 0
        for batch in self._batches():
            frame: pd.DataFrame = batch.to_pandas()
            frame.index = pd.RangeIndex(number, number := number + len(frame))
            yield frame

    def _batches(self) -> Iterator[Any]:
        with self._opened() as file:
            # One group after the other: a reader of all would keep what it has read.
            for number in range(file.num_row_groups):
                try:
                    batches = file.read_row_group(number).to_batches(_GROUP)
                except Exception as error:  # damaged bytes make pyarrow raise almost anything
                    raise damaged(self.path, error) from error
                yield from batches

    def _opened(self) -> Any:
        try:
            return pyarrow.parquet.ParquetFile(self.path)
        except Exception as error:
            raise damaged(self.path, error) from error


def _schema(row: type) -> Any:
    """Return the types of the columns: what may be None is a number or absent."""
    found = []
    for field in fields(row):
        kind: Any = field.type
        if isinstance(kind, types.UnionType):
            kind = get_args(kind)[0]
        found.append((field.name, _TYPES[str if get_args(kind) else kind]))
    return pyarrow.schema(found)


def _numbers(column: tuple[float | None, ...]) -> Iterable[float | str | None]:
    """Return numbers as they stand in a CSV file, where NaN is nothing."""
    if any(value != value for value in column):
        return ["" if value != value else value for value in column]
    return column
