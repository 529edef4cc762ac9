"""A journal: records that outlive the process that writes them, however that ends.

A file of records, one after the other, that only ever grows at its end:

========  =================================================
16 bytes  SHA-256 of all that follows, its first half
8 bytes   length of the content, little-endian
then      the content
========  =================================================

The first record is the title: what the journal is of.  A process that is killed while it writes
leaves half a record, which its sum gives away.
"""

import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from testbed.errors import ResultsError

_SUM, _LENGTH = 16, 8
# Whatever is written survives the process; of the last second not all may survive the machine.
_SYNC_EVERY_S = 1.0
_ADVICE = "free some space and run the same command again, it goes on where this one stopped"


class Journal:
    """What a former process has recorded, and after it what this one does.

    Parameters
    ----------
    path : Path
        Made with the first record.
    title : mapping of str to str
        What it is of, by kind.  A journal of anything else is not used.

    Attributes
    ----------
    size : int
        Bytes of the records that were read or written.
    read : int
        How many records were read.
    remarks : list of str
        Why something that was there was not used, a sentence each.

    Raises
    ------
    ResultsError
        If the file is there and cannot be read.
    """

    def __init__(self, path: Path, title: Mapping[str, str]) -> None:
        self.path, self.size, self.read = path, 0, 0
        self.remarks: list[str] = []
        self._title = title
        self._former: BinaryIO | None = None
        self._file: FileIO | None = None
        self._before, self._synced = 0, time.monotonic()
        try:
            self._former = path.open("rb")
        except FileNotFoundError:
            return
        except OSError as error:
            raise ResultsError(f"cannot read {path}: {error.strerror}; remove it") from error
        found = self._content()
        if found is not None and (changed := _differing(json.loads(found), title)):
            self.forget(f"its journal is of another {changed}")

    def next(self) -> bytes | None:
        """Return the next record of the former process, None if there is no more."""
        content = self._content()
        self.read += content is not None
        return content

    def forget(self, why: str) -> None:
        """Do without the record that was read last and all that follow it."""
        self.read = max(0, self.read - 1)
        self.remarks.append(
            f"The run was stopped and then done anew from its answer {self.read + 1} on: {why}."
        )
        self.size = self._before
        self._end_former()

    def add(self, *parts: bytes) -> None:
        """Append a record, given in parts, after the last that was read.

        Raises
        ------
        ResultsError
            If it cannot be written, as on a full disk.
        """
        try:
            if self._file is None:
                self._end_former()
                self._file = self._opened()
            if self.size == 0:
                self._append(json.dumps(dict(self._title)).encode())
            self._append(*parts)
            if time.monotonic() > self._synced + _SYNC_EVERY_S:
                self._sync()
        except OSError as error:
            raise ResultsError(f"cannot write {self.path}: {error.strerror}; {_ADVICE}") from error

    def close(self) -> None:
        """Close the file; it stays."""
        self._end_former()
        if self._file is not None:
            with suppress(OSError), self._file:
                self._sync()
            self._file = None

    def remove(self) -> None:
        """Remove the file, whose run is complete."""
        self.close()
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        """Return the journal itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it; remove it when all went well."""
        if kind is None:
            self.remove()
        else:
            self.close()

    def _content(self) -> bytes | None:
        """Read the record that begins at `size`, if it is whole."""
        if self._former is None:
            return None
        head = self._former.read(_SUM + _LENGTH)
        length = int.from_bytes(head[_SUM:], "little")
        left = os.fstat(self._former.fileno()).st_size - self._former.tell()
        content = self._former.read(length) if length <= left else b""
        if len(head) < _SUM + _LENGTH or _sum(head[_SUM:], content) != head[:_SUM]:
            self._end_former()
            return None
        self._before, self.size = self.size, self.size + len(head) + length
        return content

    def _end_former(self) -> None:
        if self._former is not None:
            self._former.close()
            self._former = None

    def _opened(self) -> FileIO:
        """Open the file for writing after what counts of it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered, so that what failed is not written again when the file is closed.
        file = FileIO(self.path, "a")
        file.truncate(self.size)
        return file

    def _append(self, *parts: bytes) -> None:
        assert self._file is not None
        length = sum(map(len, parts)).to_bytes(_LENGTH, "little")
        record = (_sum(length, *parts), length, *parts)
        try:
            for part in record:
                left = memoryview(part)
                while left:
                    left = left[self._file.write(left) :]
        except OSError:
            with suppress(OSError):
                self._file.truncate(self.size)
            raise
        self.size += sum(map(len, record))

    def _sync(self) -> None:
        assert self._file is not None
        os.fsync(self._file.fileno())
        self._synced = time.monotonic()


def _sum(*parts: bytes) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()[:_SUM]


def _differing(there: Mapping[str, str], here: Mapping[str, str]) -> str:
    """Name what is not the same in two titles."""
    return ", ".join(key for key in here if there.get(key) != here[key])
