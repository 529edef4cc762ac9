"""Long random sequences of changes, and many subsets carried through each."""

from dataclasses import dataclass
from math import comb

import numpy as np

from testbed.editing import coupling
from testbed.editing.clients import Change, Client
from testbed.editing.coupling import draw
from testbed.streams import Streams
from testbed.verification.changes import fleet, random_changes
from testbed.verification.exact import Couple

# How far the population wanders from where it starts.
_DRIFT = 3


@dataclass(frozen=True, eq=False)
class Trial:
    """What became of many subsets in one sequence of changes.

    Attributes
    ----------
    initial, size : int
        M at the start and at the end, and P.
    changes : int
    included : array of bool, shape (replicas, M)
        Who is in the subset at the end.
    triggers : array of int, shape (replicas,)
        How many changes touched the subset.
    expected : float
        The mean of `triggers` that the theory gives.
    """

    initial: int
    size: int
    changes: int
    included: np.ndarray
    triggers: np.ndarray
    expected: float


def trial(
    streams: Streams,
    number: int,
    initial: int,
    size: int,
    length: int,
    replicas: int,
    couple: Couple = coupling.couple,
) -> Trial:
    """Carry `replicas` subsets through one random sequence.

    Parameters
    ----------
    streams : Streams
    number : int
        Distinguishes the trials of one seed.
    initial, size : int
        M, to which the sequence returns in its last change, and P.
    length : int
        Number of changes.
    replicas : int
    couple : callable
        The function under test, with the signature of `coupling.couple`.
    """
    steps = _sequence(streams, number, initial, size, length)
    final = steps[-1][1].applied(steps[-1][0])
    included = np.zeros((replicas, len(final)), dtype=bool)
    triggers = np.zeros(replicas, dtype=int)
    for replica in range(replicas):
        rng = streams.rng("verification", "subset", initial, number, replica)
        subset = draw(steps[0][0], size, rng)
        for population, change in steps:
            carried = couple(population, subset, change, size, rng, "strict")
            triggers[replica] += carried != subset
            subset = carried
        members = set(subset)
        included[replica] = [client in members for client in final]
    expected = sum(_probability(len(population), change, size) for population, change in steps)
    return Trial(initial, size, len(steps), included, triggers, expected)


def _sequence(
    streams: Streams, number: int, initial: int, size: int, length: int
) -> list[tuple[tuple[Client, ...], Change]]:
    """Draw the changes, each with the population it meets."""
    pool = fleet(2 * initial)
    rng = streams.rng("verification", "sequence", initial, number)
    bounds = (max(size, initial - _DRIFT), initial + _DRIFT)
    steps = []
    population = pool[:initial]
    for change in random_changes(pool, initial, bounds, length - 1, rng):
        steps.append((population, change))
        population = change.applied(population)
    surplus = len(population) - initial
    outside = [client for client in pool if client not in population]
    restoring = (
        Change.of(departures=population[:surplus])
        if surplus > 0
        else Change.of(arrivals=outside[:-surplus] if surplus else ())
    )
    return [*steps, (population, restoring)]


def _probability(M: int, change: Change, P: int) -> float:
    staying = M - len(change.departures)
    after = staying + len(change.arrivals)
    return 1 - comb(staying, P) / comb(max(M, after), P)
