"""Random sequences of population changes, fixed before any subset is drawn."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from testbed.editing.clients import Change, Client

_MOST = 3


def fleet(count: int) -> tuple[Client, ...]:
    """Name `count` clients, each with a data partition of its own."""
    return tuple(Client(f"veh{number:04d}", number) for number in range(count))


def random_changes(
    pool: Sequence[Client],
    initial: int,
    bounds: tuple[int, int],
    count: int,
    rng: np.random.Generator,
) -> tuple[Change, ...]:
    """Draw joins, leaves, batches and returns.

    Every second change, on average, is a single join or leave; the others are batches of up
    to three of each.  A client that left may come back.

    Parameters
    ----------
    pool : sequence of Client
        All who may ever take part.
    initial : int
        The first so many are present at the start.
    bounds : (int, int)
        Least and greatest population after a change.
    count : int
    rng : Generator
    """
    least, greatest = bounds
    present, absent = list(pool[:initial]), list(pool[initial:])
    changes = []
    for _ in range(count):
        shapes = [
            (d, a)
            for d in range(min(_MOST, len(present)) + 1)
            for a in range(min(_MOST, len(absent)) + 1)
            if d + a and least <= len(present) - d + a <= greatest
        ]
        single = [shape for shape in shapes if sum(shape) == 1]
        if single and rng.integers(2):
            shapes = single
        d, a = shapes[rng.integers(len(shapes))]
        change = Change.of(_take(present, d, rng), _take(absent, a, rng))
        present += change.arrivals
        absent += change.departures
        changes.append(change)
    return tuple(changes)


def _take(clients: list[Client], count: int, rng: np.random.Generator) -> list[Client]:
    """Remove `count` uniform clients from the list and return them."""
    return [clients.pop(rng.integers(len(clients))) for _ in range(count)]


def tally(changes: Sequence[Change]) -> dict[str, int]:
    """Count the kinds of changes, and the clients who returned after having left."""
    counts = Counter(joins=0, leaves=0, batches=0, returns=0)
    left: set[Client] = set()
    for change in changes:
        d, a = len(change.departures), len(change.arrivals)
        counts["batches" if d + a > 1 else "leaves" if d else "joins"] += 1
        counts["returns"] += len(left.intersection(change.arrivals))
        left.update(change.departures)
    return dict(counts)
