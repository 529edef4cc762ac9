"""The walker, on functions whose laws are known by hand."""

from collections import defaultdict
from fractions import Fraction
from itertools import permutations
from typing import Any

import pytest

from testbed.errors import EditError
from testbed.verification.enumeration import Branching, outcomes


def law(function: Any) -> dict[Any, Fraction]:
    masses: dict[Any, Fraction] = defaultdict(Fraction)
    for probability, result in outcomes(function):
        masses[result] += probability
    assert sum(masses.values()) == 1
    return dict(masses)


def test_without_draws_there_is_one_outcome() -> None:
    assert list(outcomes(lambda rng: "always")) == [(1, "always")]


def test_a_number_used_as_such_has_all_its_values() -> None:
    assert law(lambda rng: "abc"[rng.integers(3)]) == dict.fromkeys("abc", Fraction(1, 3))
    assert law(lambda rng: int(rng.integers(4))) == dict.fromkeys(range(4), Fraction(1, 4))


@pytest.mark.parametrize(
    ("question", "share"),
    [
        (lambda n: n < 3, Fraction(3, 10)),
        (lambda n: n <= 3, Fraction(4, 10)),
        (lambda n: n >= 3, Fraction(7, 10)),
        (lambda n: n > 3, Fraction(6, 10)),
        (lambda n: n == 3, Fraction(1, 10)),
        (lambda n: n != 3, Fraction(9, 10)),
        (lambda n: n in {3, 4}, Fraction(2, 10)),
    ],
)
def test_a_number_only_compared_has_the_probability_of_the_answer(
    question: Any, share: Fraction
) -> None:
    assert law(lambda rng: question(rng.integers(10))) == {True: share, False: 1 - share}


def test_a_comparison_branches_in_two_and_a_certain_one_not_at_all() -> None:
    assert len(list(outcomes(lambda rng: rng.integers(1000) < 3))) == 2
    assert list(outcomes(lambda rng: rng.integers(5) < 5)) == [(1, True)]
    assert list(outcomes(lambda rng: rng.integers(5) < 0)) == [(1, False)]


def test_what_is_known_of_a_number_holds_later() -> None:
    """Below 3 out of 10, then its value: 0, 1 and 2 with 1/10 each, else the whole rest."""

    def look_twice(rng: Any) -> Any:
        number = rng.integers(10)
        if number < 3:
            assert number < 7
            assert not number >= 3
            first, second = int(number), int(number)
            assert first == second
            return first
        return "rest" if number > 2 else "impossible"

    assert law(look_twice) == {
        **dict.fromkeys(range(3), Fraction(1, 10)),
        "rest": Fraction(7, 10),
    }


def test_a_choice_has_every_order() -> None:
    expected = dict.fromkeys(permutations(range(3), 2), Fraction(1, 6))
    assert law(lambda rng: rng.choice(3, size=2, replace=False)) == expected


def test_draws_may_depend_on_each_other() -> None:
    """Two of three, then a coin only if 0 is first: 6 branches become 8."""

    def draws(rng: Any) -> Any:
        first, _ = rng.choice(3, size=2, replace=False)
        return (first, int(rng.integers(2)) if first == 0 else None)

    assert len(list(outcomes(draws))) == 8
    assert law(draws)[0, 1] == Fraction(1, 6)


@pytest.mark.parametrize(
    "draw", [lambda rng: rng.random(), lambda rng: rng.choice(3, size=2, replace=True)]
)
def test_what_cannot_be_enumerated_is_refused(draw: Any) -> None:
    with pytest.raises(EditError, match="cannot be enumerated; draw with integers"):
        draw(Branching([]))


def test_a_number_does_not_pass_for_a_real_one() -> None:
    with pytest.raises(TypeError):
        next(outcomes(lambda rng: rng.integers(3) + 1))
