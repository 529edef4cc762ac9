"""Exact laws: run a function once for every outcome of its random numbers.

`outcomes` hands the function a stand-in for a numpy Generator and walks through all branches,
each with its exact probability.  A whole number branches only as far as it is looked at:
``rng.integers(10) < 3`` has two outcomes, of probability 3/10 and 7/10, not ten.
"""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import permutations
from typing import Any, TypeVar

from testbed.errors import EditError

T = TypeVar("T")


class Branching:
    """Answers the draws of one walk; `script` fixes the outcomes of the first ones.

    It knows only draws whose outcomes can be enumerated and refuses all others with an
    EditError.
    """

    def __init__(self, script: Sequence[int]) -> None:
        self.script = list(script)
        self.options: list[int] = []
        self.numerator = self.denominator = 1

    def integers(self, high: int) -> "Number":
        """Draw a uniform number in [0, high)."""
        return Number(self, high)

    def choice(self, population: int, size: int, replace: bool = True) -> tuple[int, ...]:
        """Draw an ordered sample without replacement."""
        if replace:
            raise _unknown("choice(replace=True)")
        samples = _samples(population, size)
        return samples[self.pick([1] * len(samples))]

    def __getattr__(self, name: str) -> Any:
        raise _unknown(name)

    def pick(self, weights: Sequence[int]) -> int:
        """Branch: return an index with probability in proportion to its weight."""
        open_ = [index for index, weight in enumerate(weights) if weight]
        if len(open_) == 1:
            return open_[0]
        position = len(self.options)
        if position == len(self.script):
            self.script.append(0)
        self.options.append(len(open_))
        index = open_[self.script[position]]
        self.numerator *= weights[index]
        self.denominator *= sum(weights)
        return index


def _unknown(draw: str) -> EditError:
    return EditError(
        f"a draw by {draw} cannot be enumerated; draw with integers or choice(replace=False)"
    )


@cache
def _samples(population: int, size: int) -> tuple[tuple[int, ...], ...]:
    return tuple(permutations(range(population), size))


class Number:
    """A uniform whole number in [low, high), of which only that much is known so far."""

    def __init__(self, rng: Branching, high: int) -> None:
        self._rng, self._low, self._high = rng, 0, high

    def __lt__(self, limit: int) -> bool:
        cut = min(max(limit, self._low), self._high)
        below = self._rng.pick((cut - self._low, self._high - cut)) == 0
        self._low, self._high = (self._low, cut) if below else (cut, self._high)
        return below

    def __ge__(self, limit: int) -> bool:
        return not self < limit

    def __le__(self, limit: int) -> bool:
        return self < limit + 1

    def __gt__(self, limit: int) -> bool:
        return not self < limit + 1

    def __index__(self) -> int:
        self._low += self._rng.pick([1] * (self._high - self._low))
        self._high = self._low + 1
        return self._low

    __int__ = __index__

    def __eq__(self, other: object) -> bool:
        return int(self) == other

    def __hash__(self) -> int:
        return hash(int(self))


def outcomes(function: Callable[[Any], T]) -> Iterator[tuple[Fraction, T]]:
    """Yield (probability, result) for all outcomes of the random numbers `function` draws.

    Examples
    --------
    >>> [(str(p), r) for p, r in outcomes(lambda rng: rng.integers(10) < 3)]
    [('3/10', True), ('7/10', False)]
    """
    script: list[int] = []
    while True:
        rng = Branching(script)
        result = function(rng)
        yield Fraction(rng.numerator, rng.denominator), result
        script = rng.script
        while script and script[-1] == rng.options[len(script) - 1] - 1:
            script.pop()
        if not script:
            return
        script[-1] += 1
