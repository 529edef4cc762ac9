r"""Part *exact*: the coupling's law by enumeration, in rational numbers.

For every M, P, number of departures d and of arrivals a, and every choice of who departs,
the joint law of (X, X') follows from running the production coupling through all outcomes
of its random numbers.  With m = M - d who stay and M' = m + a it must be (arXiv 2610.35212,
section IV-B)

* uniform in X',
* Pr[X' != X] = 1 - C(m, P) / C(max(M, M'), P), the total variation distance: no coupling of
  the two uniform laws changes its subset less often,
* E[|X' \ X|] = max(P d / M, P a / M'), the least possible as well.

Where M' < P the strict mode must refuse, and the shrink mode be uniform on the subsets of
size min(P, M').
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import comb
from typing import Any

from testbed.editing import coupling
from testbed.editing.clients import Change, Client
from testbed.errors import EditError
from testbed.verification.enumeration import outcomes
from testbed.verification.part import Part

Couple = Callable[..., tuple[Client, ...]]
Subset = tuple[Client, ...]
Law = dict[Subset, Fraction]

# Newcomers come first, last and in between in the canonical order.
_ARRIVALS = (5, 95, 35)


@dataclass(frozen=True)
class Case:
    """M clients, a subset of P, and a change."""

    population: Subset
    size: int
    change: Change

    @property
    def after(self) -> Subset:
        """The population after the change."""
        return self.change.applied(self.population)

    def __str__(self) -> str:
        return (
            f"M = {len(self.population)}, P = {self.size}, "
            f"joins = {len(self.change.arrivals)}, leaves = {len(self.change.departures)}"
        )


def exact(couple: Couple = coupling.couple, largest: int = 7, most: int = 3) -> Part:
    """Verify the coupling for all populations up to `largest`, by enumeration.

    Parameters
    ----------
    couple : callable
        The function under test, with the signature of `coupling.couple`.
    largest : int
        The largest M.
    most : int
        The most joins, and the most leaves, in one change.
    """
    counts = Counter[str]()
    shapes = set()
    violation = None
    for case in cases(largest, most):
        shapes.add(str(case))
        counts["changes"] += 1
        found, walked = inspect(case, couple)
        counts["outcomes"] += walked
        counts["violations"] += found is not None
        counts["below_subset"] += len(case.after) < case.size
        if found and not violation:
            violation = f"{case}: {found}"
    within = f"M ≤ {largest}, P ≤ M, up to {most} joins and {most} leaves"
    return Part(
        name="exact",
        passed=violation is None,
        sentence=violation
        or f"In all {len(shapes)} cases ({within}) and for every choice of who leaves, the new "
        "subset is exactly uniform, and it changes as seldom and by as few members as any "
        "exact method can.",
        numbers={
            "largest_population": largest,
            "most_joins": most,
            "most_leaves": most,
            "cases": len(shapes),
            "changes": counts["changes"],
            "below_subset": counts["below_subset"],
            "outcomes": counts["outcomes"],
            "violations": counts["violations"],
        },
    )


def cases(largest: int, most: int) -> Iterator[Case]:
    """All changes that leave somebody, with every choice of who departs."""
    for M in range(1, largest + 1):
        population = _clients(range(10, 10 * M + 1, 10))
        for d in range(min(most, M) + 1):
            for a in range(d == M, most + 1):
                arrivals = _clients(_ARRIVALS[:a])
                for departures in combinations(population, d):
                    change = Change.of(departures, arrivals)
                    for P in range(1, M + 1):
                        yield Case(population, P, change)


def _clients(numbers: Iterable[int]) -> Subset:
    return tuple(Client(f"v{number:02d}", number) for number in numbers)


def uniform(population: Subset, size: int) -> Law:
    """Return the uniform law on the subsets of `size`, or on the whole if that is smaller."""
    subsets = list(combinations(sorted(population), min(size, len(population))))
    return dict.fromkeys(subsets, Fraction(1, len(subsets)))


def inspect(case: Case, couple: Couple) -> tuple[str | None, int]:
    """Return what is wrong with one case, if anything, and how many outcomes were walked."""
    after, P = case.after, case.size
    M, d, a = len(case.population), len(case.change.departures), len(case.change.arrivals)
    full = len(after) >= P
    if not full and not _refused(case, couple):
        return "the strict mode does not refuse", 0
    law: Law = defaultdict(Fraction)
    changed = replaced = Fraction(0)
    walked = 0
    try:
        for subset, weight in uniform(case.population, P).items():

            def run(rng: Any, subset: Subset = subset) -> Subset:
                below = "strict" if full else "shrink"
                return couple(case.population, subset, case.change, P, rng, below)

            for probability, result in outcomes(run):
                walked += 1
                mass = weight * probability
                law[result] += mass
                if result != subset:
                    changed += mass
                    replaced += mass * len(set(result) - set(subset))
    except EditError as error:
        return f"it ends with an error ({error})", walked
    if law != (wanted := uniform(after, P)):
        return f"the new subset is not uniform, total variation {_distance(law, wanted)}", walked
    if full:
        least = 1 - Fraction(comb(M - d, P), comb(max(M, len(after)), P))
        fewest = max(Fraction(P * d, M), Fraction(P * a, len(after)))
        if changed != least:
            return f"the subset changes with probability {changed}, not {least}", walked
        if replaced != fewest:
            return f"{replaced} members are replaced on average, not {fewest}", walked
    return None, walked


def _refused(case: Case, couple: Couple) -> bool:
    subset = next(iter(uniform(case.population, case.size)))
    try:
        for _ in outcomes(
            lambda rng: couple(case.population, subset, case.change, case.size, rng, "strict")
        ):
            return False
    except EditError:
        return True
    return False


def _distance(one: Law, other: Law) -> Fraction:
    """Total variation."""
    nothing = Fraction(0)
    masses = [(one.get(x, nothing), other.get(x, nothing)) for x in one.keys() | other.keys()]
    return sum((abs(a - b) for a, b in masses), nothing) / 2
