"""Reading a large JSON file piece by piece.

The file of all 70,000 training pictures has over a gigabyte in its 2018 form.  Only one
member of the outer list is decoded at a time, from a buffer that holds that member and at
most about a chunk more.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from bdd100k_tools.errors import ToolsError

CHUNK = 1 << 20
"""Characters read at once."""
LARGEST = 64 << 20
"""Characters one member may have; a longer one is refused instead of filling the memory."""

# A value cut off by the end of the buffer is reported at most this far before that end:
# the longest things that are one token are "-Infinity" and a pair of \uXXXX escapes.
_TOKEN = 16
_DECODER = json.JSONDecoder()


def members(
    path: Path, key: str, error: type[ToolsError] = ToolsError
) -> Iterator[tuple[str | None, Any]]:
    """Yield the members of the JSON document at `path`, one by one.

    Parameters
    ----------
    path : Path
        A file with a list, or with a mapping.
    key : str
        The member of an outer mapping whose list is read item by item too.
    error : class
        What is raised if the file cannot be read.

    Yields
    ------
    name : str or None
        None for the items of an outer list; otherwise the name in the outer mapping.
        The items of the list called `key` come one by one under this name.
    value : object
    """
    try:
        # "-sig": some editors put a byte order mark at the beginning.
        with path.open(encoding="utf-8-sig") as stream:
            yield from _document(_Buffer(stream), key)
    except OSError as reason:
        raise error(f"cannot read {path}: {reason.strerror}") from None
    except _SyntaxError as reason:
        raise error(f"{path}, line {reason.line}: not valid JSON: {reason.text}") from None
    except (UnicodeDecodeError, RecursionError):
        raise error(f"{path}: not a JSON file") from None


class _SyntaxError(Exception):
    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.text, self.line = text, line


class _Buffer:
    """The part of a text that is being read."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream
        self.text, self.at, self.line, self.ended = "", 0, 1, False

    def fill(self) -> None:
        """Forget what was read and append at least as much as is left: retries stay cheap."""
        self.line += self.text.count("\n", 0, self.at)
        left = self.text[self.at :]
        more = self.stream.read(max(CHUNK, len(left)))
        self.text, self.at, self.ended = left + more, 0, not more

    def peek(self) -> str:
        """Return the next character that is not white space; "" at the end."""
        while True:
            while self.at < len(self.text):
                if self.text[self.at] not in " \t\r\n":
                    return self.text[self.at]
                self.at += 1
            if self.ended:
                return ""
            self.fill()

    def take(self, allowed: str) -> str:
        """Consume and return the next character, which must be one of `allowed`."""
        found = self.peek()
        if not found or found not in allowed:
            raise self.failure(f"expected {' or '.join(allowed)}, found {found or 'the end'}")
        self.at += 1
        return found

    def value(self) -> Any:
        """Consume and return a whole JSON value."""
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self.text, self.at)
            except json.JSONDecodeError as error:
                cut = error.pos + _TOKEN > len(self.text) or error.msg.startswith("Unterminated")
                if self.ended or not cut:
                    raise self.failure(error.msg, error.pos) from None
            else:
                # A number may go on: "1" may be the beginning of "1.5e+3".
                whole = self.text[end - 1] in '}]"' or end + _TOKEN < len(self.text)
                if whole or self.ended:
                    self.at = end
                    return value
            if len(self.text) - self.at > LARGEST:
                raise self.failure(f"one member has over {LARGEST >> 20} MiB")
            self.fill()

    def failure(self, text: str, at: int | None = None) -> _SyntaxError:
        """Return an error at the given or current place."""
        before = self.at if at is None else at
        return _SyntaxError(text, self.line + self.text.count("\n", 0, before))


def _document(buffer: _Buffer, key: str) -> Iterator[tuple[str | None, Any]]:
    if buffer.peek() == "[":
        yield from ((None, value) for value in _items(buffer))
    else:
        buffer.take("{")
        mark = buffer.take('"}') if buffer.peek() == "}" else ","
        while mark == ",":
            name = buffer.value() if buffer.peek() == '"' else buffer.take('"')
            buffer.take(":")
            if name == key and buffer.peek() == "[":
                yield from ((name, value) for value in _items(buffer))
            else:
                yield name, buffer.value()
            mark = buffer.take(",}")
    if found := buffer.peek():
        raise buffer.failure(f"expected the end, found {found}")


def _items(buffer: _Buffer) -> Iterator[Any]:
    buffer.take("[")
    mark = buffer.take("]") if buffer.peek() == "]" else ","
    while mark == ",":
        yield buffer.value()
        mark = buffer.take(",]")
