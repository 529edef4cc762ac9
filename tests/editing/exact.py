"""Exact laws: run the real coupling once for every outcome of its random numbers."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import combinations
from math import comb
from typing import Any

from testbed.editing import coupling
from testbed.editing.clients import Change, Client

Subset = tuple[Client, ...]
Law = dict[Subset, Fraction]
Joint = dict[tuple[Subset, Subset], Fraction]


class Branching:
    """A stand-in for a Generator that is told the outcomes of its first draws.

    A further draw takes its first outcome.  `sizes` counts the outcomes of every draw, all
    equally likely, so that `every` can walk through all of them.
    """

    def __init__(self, script: Sequence[int]) -> None:
        self.script = list(script)
        self.sizes: list[int] = []

    def _draw(self, outcomes: int) -> int:
        position = len(self.sizes)
        self.sizes.append(outcomes)
        if position == len(self.script):
            self.script.append(0)
        return self.script[position]

    def integers(self, high: int) -> int:
        return self._draw(high)

    def choice(self, population: int, size: int, replace: bool) -> tuple[int, ...]:
        assert not replace
        outcome = self._draw(comb(population, size))
        return list(combinations(range(population), size))[outcome]


def every(function: Callable[[Any], Subset]) -> Iterator[tuple[Fraction, Subset]]:
    """Yield (probability, result) for all outcomes of the random numbers `function` uses."""
    script: list[int] = []
    while True:
        rng = Branching(script)
        result = function(rng)
        probability = Fraction(1)
        for outcomes in rng.sizes:
            probability /= outcomes
        yield probability, result
        script = rng.script
        while script and script[-1] == rng.sizes[len(script) - 1] - 1:
            script.pop()
        if not script:
            return
        script[-1] += 1


def clients(numbers: Sequence[int]) -> Subset:
    return tuple(Client(f"v{number:02d}", number) for number in numbers)


def uniform(population: Subset, size: int) -> Law:
    subsets = list(combinations(sorted(population), min(size, len(population))))
    return dict.fromkeys(subsets, Fraction(1, len(subsets)))


def joint(population: Subset, change: Change, size: int, below: str = "strict") -> Joint:
    """Law of (X, X') for X uniform on the subsets of `population`."""
    law: Joint = defaultdict(Fraction)
    for subset, weight in uniform(population, size).items():

        def run(rng: Any, subset: Subset = subset) -> Subset:
            return coupling.couple(population, subset, change, size, rng, below)

        for probability, result in every(run):
            law[subset, result] += weight * probability
    return dict(law)


def marginal(law: Joint) -> Law:
    """Law of X'."""
    result: Law = defaultdict(Fraction)
    for (_, after), probability in law.items():
        result[after] += probability
    return dict(result)


def changed(law: Joint) -> Fraction:
    """Pr[X' != X]."""
    return sum((p for (before, after), p in law.items() if before != after), Fraction(0))


def replaced(law: Joint) -> Fraction:
    """Expected number of members of X' that are not in X."""
    return sum(
        (p * len(set(after) - set(before)) for (before, after), p in law.items()), Fraction(0)
    )


def distance(one: Law, other: Law) -> Fraction:
    """Total variation."""
    return sum(abs(one.get(x, 0) - other.get(x, 0)) for x in one.keys() | other.keys()) / Fraction(
        2
    )
