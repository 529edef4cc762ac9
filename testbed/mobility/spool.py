"""A trace file whose rows are written as they come, for traffic of any length."""

import csv
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from testbed.errors import ResultsError
from testbed.files import ADVICE
from testbed.mobility.events import Provenance, Step
from testbed.mobility.tables import PLAIN
from testbed.mobility.trace import header_lines


class Spool:
    """Writes the joins and leaves of a possible history, without places.

    A trace begins with its header, which is known at the end: until then rows are kept in a
    file beside it.

    Parameters
    ----------
    path : Path
        A CSV file in a folder that nobody reads before it is finished.

    Raises
    ------
    ResultsError
        If the file cannot be written; the methods raise it, too.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._kept = path, path.with_name(f".{path.name}.rows")
        with self._writing():
            self._rows = self._kept.open("w+", encoding="utf-8", newline="")
        self._lines = csv.writer(self._rows, lineterminator="\n")

    def add(self, step: Step) -> None:
        """Take in the next step."""
        with self._writing():
            self._lines.writerows(
                (repr(event.time), event.vehicle, event.kind) for event in step.events
            )

    def finish(self, header: Provenance, safe: bool = True) -> None:
        """Write the trace file.

        Parameters
        ----------
        header : mapping
            Complete, with ``end``.
        safe : bool
            As for `testbed.files.write_bytes`.
        """
        with self._writing(), self._path.open("w", encoding="utf-8", newline="") as file:
            file.write(f"{header_lines(header)}{','.join(PLAIN)}\n")
            self._rows.seek(0)
            shutil.copyfileobj(self._rows, file)
            if safe:
                file.flush()
                os.fsync(file.fileno())

    def __enter__(self) -> Self:
        """Return the spool itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove the file of rows."""
        with self._writing():
            self._kept.unlink()
            self._rows.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ResultsError(f"cannot write {self._path}: {error.strerror}; {ADVICE}") from error
