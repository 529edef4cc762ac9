"""What there is to say about a data set before it is used."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from testbed.data.dataset import Dataset, fingerprint
from testbed.data.kinds import KINDS

# Of the official files, without a limit.
_OFFICIAL: Mapping[str, str] = {
    "b8fa27e778426ccf": "mnist",
    "1e31c53ce05a179b": "fashion-mnist",
}


@dataclass(frozen=True)
class Writers:
    """How many pictures writers have to learn from."""

    count: int
    least: int
    median: float
    most: int


@dataclass(frozen=True)
class Summary:
    """Counts, fingerprints and oddities of a data set.

    Attributes
    ----------
    train, test : tuple of int
        Pictures per class.
    train_mark, test_mark : str
        Fingerprint of each part.
    official : bool
        Whether the content is that of the official files; known of the MNIST family only.
    writers : Writers or None
    notes : tuple of str
        What is allowed and yet may be a mistake.
    """

    train: tuple[int, ...]
    test: tuple[int, ...]
    train_mark: str
    test_mark: str
    official: bool
    writers: Writers | None
    notes: tuple[str, ...]


def identified(data: Dataset) -> Dataset:
    """Give a data set the name and the classes of the official one of the same content.

    The MNIST family has the same files with the same names.
    """
    name = _OFFICIAL.get(data.fingerprint, data.name)
    return replace(data, name=name, classes=KINDS[name].classes or data.classes)


def summarise(data: Dataset) -> Summary:
    """Count classes and writers, hash each part, and look for oddities."""
    train, test = (
        tuple(np.bincount(labels, minlength=len(data.classes)).tolist())
        for labels in (data.y_train, data.y_test)
    )
    return Summary(
        train,
        test,
        fingerprint(data.x_train, data.y_train),
        fingerprint(data.x_test, data.y_test),
        _OFFICIAL.get(data.fingerprint) == data.name,
        _writers(data),
        tuple(_notes(data, train, test)),
    )


def _writers(data: Dataset) -> Writers | None:
    if data.writers_train is None:
        return None
    sizes = np.bincount(data.writers_train)
    return Writers(len(sizes), int(sizes.min()), float(np.median(sizes)), int(sizes.max()))


def _notes(data: Dataset, train: tuple[int, ...], test: tuple[int, ...]) -> list[str]:
    notes = []
    for part, sizes in (("learn from", train), ("test on", test)):
        empty = [name for name, size in zip(data.classes, sizes, strict=True) if not size]
        if empty:
            notes.append(f"no pictures to {part} of class {', '.join(empty)}")
    seen = {_mark(picture) for picture in data.x_train}
    both = sum(_mark(picture) in seen for picture in data.x_test)
    if both:
        notes.append(f"{both} test pictures are also among those to learn from")
    return notes


def _mark(picture: NDArray[np.float32]) -> bytes:
    return hashlib.blake2b(picture.data, digest_size=16).digest()
