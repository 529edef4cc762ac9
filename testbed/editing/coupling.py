"""Couplings of uniform P-subsets: edit the subset, keep its law, change as little as possible.

Source: arXiv 2610.35212, section IV-B and Algorithm 4 (batch).

Notation (paper -> here)
------------------------
S, S'  population before and after  -> population, change.applied(population)
X, X'  uniform subset of S, of S'   -> subset, returned
M, P   |S|, subset size             -> len(population), size
D, A   departures, arrivals         -> change.departures, change.arrivals

Single deletion: a departing member is replaced by a uniform survivor outside X; changes X
with probability P/M.  Single insertion: with probability P/(M+1) the newcomer replaces a
uniform member (Vitter's reservoir step).  Batch: departures and arrivals are first paired
by a rule blind to X, an arrival taking its partner's place; the rest are deletions or
insertions.  Each keeps X' uniform on the P-subsets of S', and attains both
Pr[X' != X] = TV and the least expected number of replaced members.

Below P the uniform P-subset does not exist.  ``strict`` refuses; ``shrink`` continues with
the whole population, P_t = min(P, M_t), which is again exact in every step.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np

from testbed.editing.clients import Change, Client
from testbed.errors import EditError

BelowSubset = Literal["strict", "shrink"]


def draw(population: Sequence[Client], size: int, rng: np.random.Generator) -> tuple[Client, ...]:
    """Draw a uniform subset of `size` clients, sorted.

    A population smaller than `size` is drawn whole.
    """
    return tuple(sorted(_draw_outside(sorted(population), (), size, rng)))


def enough(population: Sequence[Client], size: int, below: BelowSubset) -> None:
    """Refuse a population smaller than P in strict mode.

    Raises
    ------
    EditError
    """
    if len(population) < size and below == "strict":
        raise EditError(
            f"{len(population)} clients are left but the subset needs P = {size}; "
            "set editing.below_subset=shrink or lower editing.rho"
        )


def couple(
    population: Sequence[Client],
    subset: Sequence[Client],
    change: Change,
    size: int,
    rng: np.random.Generator,
    below: BelowSubset = "strict",
) -> tuple[Client, ...]:
    """Carry a uniform subset of the old population over to the new one.

    Parameters
    ----------
    population : sequence of Client
        S, before the change; sorted.
    subset : sequence of Client
        X, uniform among the subsets of S of size min(P, M).
    change : Change
    size : int
        P.
    rng : Generator
        The coordinator's sampling stream, used for nothing else.
    below : {"strict", "shrink"}
        What to do when the new population is smaller than P.

    Returns
    -------
    tuple of Client
        X', sorted.

    Raises
    ------
    EditError
        If the change does not fit the population, or leaves fewer than P in strict mode.
    """
    after = change.applied(population)
    enough(after, size, below)
    chosen = set(subset)
    paired = min(len(change.departures), len(change.arrivals))
    # Sorted order decides who is paired with whom, so the pairing cannot depend on X.
    for out, into in zip(change.departures[:paired], change.arrivals[:paired], strict=True):
        if out in chosen:
            chosen.remove(out)
            chosen.add(into)
    kept = chosen.difference(change.departures[paired:])
    # Drawing among *final* survivors means that nobody who leaves is ever trained.
    chosen = kept.union(_draw_outside(after, kept, len(chosen) - len(kept), rng))
    present = len(population)
    for newcomer in change.arrivals[paired:]:
        present += 1
        _insert(chosen, newcomer, present, size, rng)
    return tuple(sorted(chosen))


def _draw_outside(
    everyone: Sequence[Client], members: Collection[Client], count: int, rng: np.random.Generator
) -> list[Client]:
    """Draw up to `count` uniform clients of a sorted sequence who are not `members`.

    The members are stepped over by their places, so the others are never listed.
    """
    outside = len(everyone) - len(members)
    count = min(count, outside)
    if not count:
        return []
    # The number of outsiders before each member.
    before = [bisect_left(everyone, one) - rank for rank, one in enumerate(sorted(members))]
    ranks = rng.choice(outside, size=count, replace=False)
    return [everyone[rank + bisect_right(before, rank)] for rank in ranks]


def _insert(
    chosen: set[Client], newcomer: Client, present: int, size: int, rng: np.random.Generator
) -> None:
    """Reservoir step; `present` counts the newcomer.  A subset not yet full admits everyone."""
    if len(chosen) < size:
        chosen.add(newcomer)
    elif rng.integers(present) < size:
        chosen.remove(sorted(chosen)[rng.integers(size)])
        chosen.add(newcomer)
