"""Standard output and error that may be closed, full, or unable to spell."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from testbed.errors import TestbedError

_STANDARD = (0, 1, 2)


class OutputError(TestbedError):
    """Standard output or error cannot be written."""


class OutputClosedError(OutputError):
    """Nobody reads standard output any more; the message may be empty."""


class _Raw(io.FileIO):
    """A descriptor whose failures are told apart from those of other files.

    Libraries take a broken pipe in their own ways: Rich and Click would end the program
    without a word.
    """

    def __init__(self, descriptor: int, title: str) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._title = title

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            # What is still buffered must not fail a second time, on the way out.
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.fileno())
            os.close(null)
            if isinstance(error, BrokenPipeError):
                raise OutputClosedError from None
            raise OutputError(f"cannot write to {self._title}: {error.strerror}") from None


@contextmanager
def guarded() -> Iterator[None]:
    """Let what is printed in the block end in an `OutputError` if it cannot be written.

    Characters that the terminal's encoding lacks are replaced; a stream that was closed
    from the beginning swallows everything.
    """
    for descriptor in _STANDARD:
        try:
            os.fstat(descriptor)
        except OSError:  # the next file opened would become standard output
            os.open(os.devnull, os.O_RDWR)
    before = sys.stdout, sys.stderr
    sys.stdout = _stream(sys.stdout, 1, "standard output", "replace")
    sys.stderr = _stream(sys.stderr, 2, "standard error", "backslashreplace")
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OutputError):
                stream.flush()
        sys.stdout, sys.stderr = before


def _stream(given: TextIO | None, descriptor: int, title: str, errors: str) -> TextIO:
    if given is not None:
        try:
            given.flush()
            if given.fileno() != descriptor:
                return given
        except (OSError, ValueError):  # kept in memory, as by a test
            return given
    lines = isinstance(given, io.TextIOWrapper) and given.line_buffering
    return io.TextIOWrapper(
        io.BufferedWriter(_Raw(descriptor, title)),
        encoding=given.encoding if given is not None else "utf-8",
        errors=errors,
        line_buffering=lines,
    )


@contextmanager
def unfinished(words: str) -> Iterator[None]:
    """Say what became of the work in the block if standard output is closed meanwhile."""
    try:
        yield
    except OutputClosedError:
        raise OutputClosedError(f"standard output was closed; {words}") from None


def complain(line: str) -> None:
    """Print a line to standard error, if there is somebody to read it."""
    with suppress(OutputError):
        print(line, file=sys.stderr, flush=True)
