"""One entry of a contribution store: what a client sent and how it came about, in one file.

=========  ==========================================================================
line 1     SHA-256 of all that follows, 64 hexadecimal digits
line 2     the record, JSON in one line
then       the message exactly as it was sent; nothing where the client sent nothing
=========  ==========================================================================
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import IO

from testbed.execution.work import Message
from testbed.learning.acceptance import Unusable

# Raise it when the table changes, or the meaning of a message.
FORMAT = 1
_DIGITS = 64


@dataclass(frozen=True)
class Record:
    """How a message came about.

    Attributes
    ----------
    what : str
        For people.
    seconds : float
        Wall-clock seconds that the work took when it was done.
    flops : int
        Its floating-point operations.
    bytes : int
        Length of the message.
    code : str
        Version of the code that did it.
    """

    what: str
    seconds: float
    flops: int
    bytes: int
    code: str


@dataclass(frozen=True)
class Entry:
    """What a client sent, or why it sent nothing, and how that came about."""

    message: Message
    record: Record


class DamagedError(Exception):
    """A file is not, or not any more, what was written."""


def encode(key: str, entry: Entry) -> bytes:
    """Return the content of an entry's file."""
    sent = b"" if isinstance(entry.message, Unusable) else entry.message
    unusable = asdict(entry.message) if isinstance(entry.message, Unusable) else None
    document = {"key": key, "record": asdict(entry.record), "unusable": unusable}
    head = json.dumps(document, sort_keys=True, allow_nan=False).encode() + b"\n"
    return b"".join((_sum(head, sent), b"\n", head, sent))


def decode(key: str, file: IO[bytes]) -> Entry:
    """Read an entry from its file.

    Raises
    ------
    DamagedError
        If a bit of it has changed, or it is another key's.
    """
    mark, head, sent = file.read(_DIGITS + 1), file.readline(), file.read()
    if mark != _sum(head, sent) + b"\n":
        raise DamagedError
    document = json.loads(head)  # as it was written, by the sum
    if document["key"] != key:
        raise DamagedError
    unusable = document["unusable"]
    return Entry(Unusable(**unusable) if unusable else sent, Record(**document["record"]))


def peek(file: IO[bytes]) -> Record:
    """Read the record alone, unverified.

    Raises
    ------
    DamagedError
        If it is no record.
    """
    file.seek(_DIGITS + 1)
    try:
        return Record(**json.loads(file.readline())["record"])
    except (ValueError, TypeError, KeyError) as error:
        raise DamagedError from error


def _sum(head: bytes, sent: bytes) -> bytes:
    digest = hashlib.sha256(head)
    digest.update(sent)
    return digest.hexdigest().encode()
