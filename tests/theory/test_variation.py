"""Total variation by hand, and the closed form against enumerated laws."""

from fractions import Fraction
from itertools import product

import pytest

from testbed.config import subset_size
from testbed.verification.changes import fleet
from testbed.verification.exact import uniform
from testbed.verification.variation import bound, distance, subset_distance

HALF, THIRD = Fraction(1, 2), Fraction(1, 3)


def test_distance_by_hand() -> None:
    assert distance({"a": HALF, "b": HALF}, {"a": HALF, "b": HALF}) == 0
    assert distance({"a": Fraction(1)}, {"b": Fraction(1)}) == 1
    assert distance({"a": HALF, "b": HALF}, dict.fromkeys("abc", THIRD)) == THIRD


def test_distance_is_a_metric() -> None:
    laws = [uniform(fleet(count), 2) for count in (3, 4, 5)]
    one, two, three = laws
    assert distance(one, two) == distance(two, one) > 0
    assert distance(one, three) <= distance(one, two) + distance(two, three)


def test_one_change_has_the_probabilities_of_the_paper() -> None:
    for M, P in ((50, 25), (500, 50), (5000, 2500)):
        assert subset_distance(M, P, departures=1) == Fraction(P, M)
        assert subset_distance(M, P, arrivals=1) == Fraction(P, M + 1)
    assert subset_distance(50, 25) == 0


@pytest.mark.parametrize("M", range(1, 7))
def test_the_closed_form_is_the_distance_of_the_laws(M: int) -> None:
    """With populations below P, which are taken whole, included."""
    everyone = fleet(M + 3)
    for P, leaves, joins in product(range(1, M + 1), range(min(3, M) + 1), range(4)):
        if leaves == M and not joins:
            continue
        before, after = uniform(everyone[:M], P), uniform(everyone[leaves : M + joins], P)
        assert subset_distance(M, P, leaves, joins) == distance(before, after)


def test_below_the_subset_the_laws_are_apart() -> None:
    assert subset_distance(4, 4, departures=1) == 1
    assert subset_distance(3, 5, arrivals=1) == 1
    assert subset_distance(3, 5) == 0


def test_the_bound_by_hand() -> None:
    assert bound(Fraction(1, 10), 1) == Fraction(1, 5)
    assert bound(Fraction(1, 10), 4) == Fraction(4, 5)
    assert bound(Fraction(1, 10), 5) == bound(Fraction(1, 10), 50) == 1


@pytest.mark.parametrize("initial", [7, 20, 51])
@pytest.mark.parametrize("rho", [0.1, 0.29, 0.5])
def test_no_change_above_half_exceeds_the_bounds(initial: int, rho: float) -> None:
    P, exact = subset_size(rho, initial), Fraction(repr(rho))
    for M in range(initial, 2 * initial):
        assert max(subset_distance(M, P, 1), subset_distance(M, P, 0, 1)) <= exact
    for M, leaves, joins in product(range(-(-initial // 2), 2 * initial + 1), range(6), range(6)):
        if leaves <= M and 2 * (M - leaves + joins) >= initial and M - leaves + joins >= P:
            assert subset_distance(M, P, leaves, joins) <= bound(exact, leaves + joins)


def test_a_shrunken_population_exceeds_rho() -> None:
    """Stability is that of M clients: after half have left it is 2 rho, as in the batch bound."""
    assert Fraction(1, 10) < subset_distance(26, 5, departures=1) <= Fraction(2, 10)
