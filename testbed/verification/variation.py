"""Total variation: how far apart two laws are, and how stable a uniform P-subset is.

Source: arXiv 2610.35212, sections III-D and V-A.  One-shot training is a fixed function of
the subset, so two populations' models are no further apart than their subsets' laws, and no
edit can leave the subset alone with a probability above 1 - TV.
"""

from collections.abc import Hashable, Mapping
from fractions import Fraction
from math import comb
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def distance(one: Mapping[T, Fraction], other: Mapping[T, Fraction]) -> Fraction:
    """Return the total variation distance of two laws given by their masses.

    Examples
    --------
    >>> half = Fraction(1, 2)
    >>> distance({"a": half, "b": half}, {"b": half, "c": half})
    Fraction(1, 2)
    """
    nothing = Fraction(0)
    differences = (
        abs(one.get(x, nothing) - other.get(x, nothing)) for x in one.keys() | other.keys()
    )
    return sum(differences, nothing) / 2


def subset_distance(
    population: int, size: int, departures: int = 0, arrivals: int = 0
) -> Fraction:
    """Return the distance of a uniform P-subset's laws before and after a change.

    With m who stay it is 1 - C(m, P) / C(max(M, M'), P): P / M for one departure, P / (M + 1)
    for one arrival.  A population below P is taken whole.

    Parameters
    ----------
    population, size : int
        M, before the change, and P.
    departures, arrivals : int
        Of the change.

    Examples
    --------
    >>> subset_distance(50, 25, departures=1), subset_distance(49, 25, arrivals=1)
    (Fraction(1, 2), Fraction(1, 2))
    """
    staying = population - departures
    after = staying + arrivals
    if min(size, population) != min(size, after):
        return Fraction(1)
    members = min(size, population)
    return 1 - Fraction(comb(staying, members), comb(max(population, after), members))


def bound(rho: Fraction, changes: int) -> Fraction:
    """Return the analysis's bound min(1, 2 rho k) for a batch of k changes.

    It holds while the population stays above half of the initial one; for a single change
    of a population of at least the initial size it is rho.
    """
    return min(Fraction(1), 2 * rho * changes)
