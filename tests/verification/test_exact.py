"""Exact enumeration: the production coupling passes, wrong ones do not."""

from fractions import Fraction
from math import comb
from typing import Any

import pytest
import wrong
from certified import failed

from testbed.editing.coupling import couple
from testbed.verification.exact import Case, cases, exact, inspect, uniform


def single(M: int, P: int, d: int, a: int) -> Case:
    """Return a case in which the first d clients leave."""
    for case in cases(M, max(d, a)):
        if (len(case.population), case.size) == (M, P) and (
            len(case.change.departures),
            len(case.change.arrivals),
        ) == (d, a):
            return case
    raise AssertionError("no such case")


def test_every_change_of_every_small_population_is_there() -> None:
    """Every departing subset of d of M, any a of 0 to 3, every P; somebody stays or comes."""
    found = list(cases(5, 3))
    expected = sum(
        M * comb(M, d)
        for M in range(1, 6)
        for d in range(min(3, M) + 1)
        for a in range(4)
        if M - d + a > 0
    )
    assert len(found) == len({(c.population, c.size, c.change) for c in found}) == expected


def test_newcomers_stand_first_between_and_last() -> None:
    case = single(5, 2, 0, 3)
    assert [case.after.index(client) for client in case.change.arrivals] == [0, 4, 7]


def test_production_is_exact() -> None:
    part = exact(largest=5)
    assert part.passed
    assert part.numbers["violations"] == 0
    assert part.numbers["changes"] == len(list(cases(5, 3)))
    assert 0 < part.numbers["below_subset"] < part.numbers["changes"]
    assert part.numbers["outcomes"] > part.numbers["changes"]
    assert f"all {part.numbers['cases']} cases (M ≤ 5, P ≤ M, up to 3 joins" in part.sentence


def test_uniform_law() -> None:
    population = single(4, 2, 0, 0).population
    assert set(uniform(population, 2).values()) == {Fraction(1, 6)}
    assert uniform(population, 9) == {population: 1}


@pytest.mark.parametrize(
    ("couple_", "shape", "finding"),
    [
        # algorithmic facts computed elsewhere: total variation 1/15 and 1/5
        (wrong.insertion_with_p_over_m, (5, 2, 0, 1), "not uniform, total variation 1/15"),
        (wrong.lowest_id, (5, 2, 1, 0), "not uniform, total variation 1/5"),
        # half the time three new ones, each known with probability 2/5: 1/2 · 3 · 3/5
        (wrong.resampling, (6, 3, 1, 0), "9/10 members are replaced on average, not 1/2"),
        (wrong.never_refusing, (3, 3, 1, 0), "the strict mode does not refuse"),
    ],
)
def test_wrong_couplings_are_named(couple_: Any, shape: Any, finding: str) -> None:
    case = single(*shape)
    assert inspect(case, couple)[0] is None
    found, _ = inspect(case, couple_)
    assert found
    assert found.endswith(finding)


@pytest.mark.parametrize(
    "couple_", [wrong.insertion_with_p_over_m, wrong.lowest_id, wrong.never_refusing]
)
def test_the_part_fails(couple_: Any) -> None:
    part = exact(couple_, largest=4)
    assert part.numbers["violations"] > 0
    assert failed(part).startswith("M = ")


def test_a_coupling_that_cannot_be_walked_through_fails() -> None:
    def drawing(population: Any, subset: Any, change: Any, size: int, rng: Any, below: str) -> Any:
        return subset if rng.random() < 0.5 else ()

    assert "a draw by random cannot be enumerated" in failed(exact(drawing, largest=2))
