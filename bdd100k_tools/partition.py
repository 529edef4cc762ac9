"""Which client holds which pictures.

The outcome depends on the pictures and the seed only: not on their order in the label file,
and every draw is keyed by name, so that adding a picture leaves the order of the others.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bdd100k_tools.classes import CLASSES
from bdd100k_tools.errors import PartitionError
from bdd100k_tools.labels import Frame

ATTRIBUTES = ("weather", "scene", "timeofday")
UNDEFINED = "undefined"
"""BDD100K's own word for an attribute that is not known."""

By = Literal["iid", "class", "weather", "scene", "timeofday"]

_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class Entry:
    """A picture as far as a partition needs it.

    Attributes
    ----------
    name : str
    attributes : mapping of str to str
    counts : tuple of int
        Its boxes per class, crowd left out.
    """

    name: str
    attributes: Mapping[str, str]
    counts: tuple[int, ...]


def entry(frame: Frame) -> Entry:
    """Return what a partition needs of a picture."""
    counts = [0] * len(CLASSES)
    for box in frame.boxes:
        counts[box.index] += not box.crowd
    return Entry(frame.name, frame.attributes, tuple(counts))


def partition(
    entries: Iterable[Entry],
    clients: int,
    by: By = "iid",
    *,
    alpha: float | None = None,
    seed: int = 0,
    minimum: int = 1,
) -> tuple[tuple[str, ...], ...]:
    """Give every picture to exactly one client.

    Parameters
    ----------
    entries : iterable of Entry
    clients : int
    by : str
        ``iid``: equal shares at random.  An attribute without `alpha`: a client drives under
        one value only, like rain, and the more pictures a value has the more clients; with
        fewer clients than values, a client takes several.  An attribute or ``class`` with
        `alpha`: each value's pictures are shared out by a draw of Dirichlet(alpha).  The
        class of a picture is the rarest it shows, as cars are on nearly all of them.
    alpha : float, optional
        Small is uneven.
    seed : int
    minimum : int
        Pictures a client must have; Dirichlet draws are repeated up to 100 times for it.

    Returns
    -------
    tuple of tuples of str
        Per client the names of its pictures, sorted.

    Raises
    ------
    PartitionError
    """
    pictures = sorted(entries, key=lambda item: item.name)
    _refuse(len(pictures), clients, by, alpha, minimum)
    shared = groups(pictures, by)
    order = {
        value: sorted(names, key=lambda name: _hash(seed, "order", name))
        for value, names in shared.items()
    }
    if alpha is not None:
        draws: Iterator[list[list[str]]] = (
            _dirichlet(order, clients, alpha, seed, by, attempt) for attempt in range(_ATTEMPTS)
        )
    else:
        draws = iter([_by_value(order, clients)])
    least = -1
    for parts in draws:
        least = max(least, min(map(len, parts)))
        if least >= minimum:
            return tuple(tuple(sorted(part)) for part in parts)
    raise PartitionError(
        f"a client would get {least} of the {len(pictures)} pictures, fewer than --min {minimum}; "
        "take fewer clients, a larger --alpha or a smaller --min"
    )


def _refuse(pictures: int, clients: int, by: By, alpha: float | None, minimum: int) -> None:
    if clients < 1 or minimum < 0:
        raise PartitionError(
            f"clients must be 1 or more and min 0 or more, not {clients} and {minimum}"
        )
    if pictures < clients * max(minimum, 1):
        raise PartitionError(
            f"{pictures} pictures cannot give {clients} clients {max(minimum, 1)} each; "
            "take fewer clients"
        )
    if alpha is not None and not 0 < alpha < float("inf"):
        raise PartitionError(f"alpha must be a finite number above 0, not {alpha}")
    if (by == "class" and alpha is None) or (by == "iid" and alpha is not None):
        raise PartitionError(
            f"by {by} {'needs an' if by == 'class' else 'takes no'} alpha; "
            "alpha is for Dirichlet draws over classes or attributes"
        )


def groups(pictures: Iterable[Entry], by: By) -> dict[str, list[str]]:
    """Return the names of the pictures by the value they are divided by, values sorted.

    The class of a picture is the rarest it shows, ``"background"`` where it shows none.
    """
    pictures = tuple(pictures)
    shown = Counter(index for item in pictures for index, count in enumerate(item.counts) if count)

    def value(item: Entry) -> str:
        if by == "iid":
            return "all"
        if by == "class":
            there = [index for index, count in enumerate(item.counts) if count]
            return CLASSES[min(there, key=lambda i: (shown[i], i))] if there else "background"
        return item.attributes.get(by, UNDEFINED)

    found = defaultdict(list)
    for item in pictures:
        found[value(item)].append(item.name)
    return dict(sorted(found.items()))


def _by_value(groups: Mapping[str, list[str]], clients: int) -> list[list[str]]:
    """Cut every group evenly among its clients, or pack whole groups where clients are few."""
    if clients < len(groups):
        parts: list[list[str]] = [[] for _ in range(clients)]
        for names in sorted(groups.values(), key=len, reverse=True):
            min(parts, key=len).extend(names)
        return parts
    seats = dict.fromkeys(groups, 1)
    for _ in range(clients - len(groups)):
        seats[max(seats, key=lambda value: len(groups[value]) / seats[value])] += 1
    return [
        names[place :: seats[value]]
        for value, names in groups.items()
        for place in range(seats[value])
    ]


def _dirichlet(
    groups: Mapping[str, list[str]], clients: int, alpha: float, seed: int, by: str, attempt: int
) -> list[list[str]]:
    parts: list[list[str]] = [[] for _ in range(clients)]
    for value, names in groups.items():
        key = int.from_bytes(_hash(seed, "dirichlet", by, value, str(attempt))[:16], "big")
        shares = np.random.Generator(np.random.PCG64(key)).dirichlet(np.full(clients, alpha))
        ends = np.rint(np.cumsum(shares) * len(names)).astype(int)
        ends[-1] = len(names)
        for part, begin, end in zip(parts, (0, *ends[:-1]), ends, strict=True):
            part.extend(names[begin:end])
    return parts


def _hash(seed: int, *words: str) -> bytes:
    return hashlib.sha256("\0".join((str(seed), *words)).encode()).digest()


def describe(entries: Iterable[Entry], parts: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Return per client its name, pictures, boxes, boxes per class, pictures per attribute."""
    known = {item.name: item for item in entries}
    digits = max(3, len(str(len(parts) - 1)))
    rows = []
    for number, names in enumerate(parts):
        own = [known[name] for name in names]
        classes = {name: sum(e.counts[k] for e in own) for k, name in enumerate(CLASSES)}
        row: dict[str, Any] = {
            "client": f"client_{number:0{digits}d}",
            "pictures": len(own),
            "boxes": sum(classes.values()),
            "classes": classes,
        }
        for attribute in ATTRIBUTES:
            values = Counter(e.attributes.get(attribute, UNDEFINED) for e in own)
            row[attribute] = dict(values.most_common())
        rows.append(row)
    return rows
