"""The coupling over long sequences, with the real generator."""

from math import comb, sqrt

import numpy as np
import pytest
import wrong
from certified import failed
from scipy.stats import chi2

from testbed.editing.clients import Change
from testbed.streams import Streams
from testbed.verification.changes import fleet, random_changes, tally
from testbed.verification.statistics import law, rate
from testbed.verification.trials import Trial, trial

STREAMS = Streams(3)


def drawn(M: int, P: int, replicas: int) -> Trial:
    """Return a trial without changes: subsets straight from the generator."""
    rng = np.random.default_rng(8)
    included = np.array([rng.permutation(M) < P for _ in range(replicas)])
    return Trial(M, P, 1, included, np.zeros(replicas, dtype=int), 0.0)


@pytest.fixture(scope="module")
def large() -> list[Trial]:
    return [trial(STREAMS, number, 50, 25, 30, 200) for number in range(2)]


@pytest.fixture(scope="module")
def small() -> list[Trial]:
    return [trial(STREAMS, number, 6, 3, 40, 250) for number in range(2)]


# --- the changes -----------------------------------------------------------------------


def test_random_changes_are_possible_and_of_every_kind() -> None:
    pool = fleet(12)
    changes = random_changes(pool, 8, (4, 12), 60, np.random.default_rng(0))
    population = pool[:8]
    for change in changes:
        population = change.applied(population)  # refuses what does not fit
        assert 4 <= len(population) <= 12
        assert 1 <= len(change.departures) + len(change.arrivals) <= 6
    counts = tally(changes)
    assert counts["joins"] + counts["leaves"] + counts["batches"] == 60
    assert min(counts.values()) > 5
    again = random_changes(pool, 8, (4, 12), 60, np.random.default_rng(0))
    assert again == changes


def test_tally() -> None:
    a, b, c, d = fleet(4)
    changes = [Change.of([a]), Change.of([b], [c]), Change.of((), [a]), Change.of((), [b, d])]
    assert tally(changes) == {"joins": 1, "leaves": 1, "batches": 2, "returns": 2}


# --- trials ----------------------------------------------------------------------------


def test_a_trial_keeps_its_size_and_repeats(large: list[Trial]) -> None:
    first = large[0]
    assert first.included.shape == (200, 50)
    assert (first.included.sum(axis=1) == 25).all()
    assert first.changes == 30
    assert 0 < first.triggers.min() <= first.triggers.max() <= 30
    again = trial(STREAMS, 0, 50, 25, 30, 50)
    assert (again.included == first.included[:50]).all()
    assert again.expected == first.expected


def test_expected_triggers_by_hand() -> None:
    """A lone change that must restore M: none, so nothing can trigger."""
    alone = trial(STREAMS, 0, 6, 3, 1, 20)
    assert alone.expected == 0.0
    assert alone.triggers.sum() == 0


# --- the law ---------------------------------------------------------------------------


def test_the_law_of_production(large: list[Trial]) -> None:
    part = law(large)
    assert part.passed
    assert part.numbers["inclusion"]["degrees_of_freedom"] == 2 * 49
    assert part.numbers["pattern"]["degrees_of_freedom"] == 2 * 31
    assert "400 subsets of M = 50, P = 25, each after 30 random changes, agree" in part.sentence


def test_statistics_by_hand() -> None:
    """M = 10, P = 5, four times the clients 0 to 4, of whom 0, 2 and 4 are watched.

    Inclusion: 10 · 2² / (4 · 5 · 5 / (10 · 9)) = 36.  Pattern: one cell holds all four and
    expects 4 · C(5, 2) / C(10, 5) = 40 / 252: 4² · 252 / 40 - 4 = 96.8.
    """
    included = np.zeros((4, 10), dtype=bool)
    included[:, :5] = True
    part = law([Trial(10, 5, 1, included, np.zeros(4, dtype=int), 0.0)])
    assert part.numbers["inclusion"]["chi2"] == 36.0
    assert part.numbers["inclusion"]["degrees_of_freedom"] == 9
    assert part.numbers["inclusion"]["p_value"] == pytest.approx(chi2.sf(36, 9), rel=1e-2)
    assert part.numbers["pattern"]["chi2"] == 96.8


def test_statistics_have_their_degrees_of_freedom_as_mean() -> None:
    tests = [law([drawn(20, 8, 4000)]).numbers[name] for name in ("inclusion", "pattern")]
    for test in tests:
        freedom = test["degrees_of_freedom"]
        assert abs(test["chi2"] - freedom) < 4 * sqrt(2 * freedom)


def test_replacement_by_the_lowest_id_contradicts_the_law() -> None:
    skewed = [trial(STREAMS, number, 50, 25, 30, 200, wrong.lowest_id) for number in range(2)]
    part = law(skewed)
    assert "contradict the uniform law" in failed(part)
    assert max(part.numbers[name]["p_value"] for name in ("inclusion", "pattern")) < 1e-5


def test_a_dependence_that_inclusion_counts_do_not_show() -> None:
    """The first and the last client are in together or not at all."""
    rng = np.random.default_rng(2)
    included = np.zeros((1000, 20), dtype=bool)
    for row in included:
        row[[0, 19]] = rng.random() < 0.5
        row[rng.permutation(np.arange(1, 19))[: 10 - row.sum()]] = True
    part = law([Trial(20, 10, 1, included, np.zeros(1000, dtype=int), 0.0)])
    assert part.numbers["inclusion"]["p_value"] > 1e-5
    assert part.numbers["pattern"]["p_value"] < 1e-5
    assert failed(part)


# --- the rate --------------------------------------------------------------------------


def test_the_rate_of_production(large: list[Trial], small: list[Trial]) -> None:
    part = rate([large, small])
    assert part.passed
    assert "meets ΣP/M" in part.sentence
    assert [row["changes"] for row in part.numbers["groups"]] == [2 * 200 * 30, 2 * 250 * 40]


def test_the_interval_by_hand() -> None:
    """Four replicas of 10 changes with 4, 6, 4, 6 triggers: 0.5 ± 5 · sqrt(4 · 4/3) / 40."""
    triggers = np.array([4, 6, 4, 6])
    one = Trial(6, 3, 10, np.zeros((4, 6), dtype=bool), triggers, expected=5.0)
    (row,) = rate([[one]]).numbers["groups"]
    assert row["observed"] == row["expected"] == 0.5
    assert row["high"] - 0.5 == pytest.approx(5 * sqrt(4 * 4 / 3) / 40, abs=1e-6)


def test_insertion_with_p_over_m_misses_the_rate() -> None:
    often = [
        trial(STREAMS, number, 6, 3, 50, 400, wrong.insertion_with_p_over_m) for number in range(4)
    ]
    part = rate([often])
    assert "misses ΣP/M" in failed(part)
    (row,) = part.numbers["groups"]
    assert row["observed"] > row["high"]


def test_one_bad_group_is_enough(small: list[Trial]) -> None:
    bad = Trial(6, 3, 40, small[0].included, small[0].triggers * 0 + small[0].triggers % 2, 20.0)
    assert failed(rate([small, [bad]]))


def test_single_changes_trigger_with_p_over_m() -> None:
    """The sum that the rate is compared with, for M = 50, P = 25."""
    leave = 1 - comb(49, 25) / comb(50, 25)
    join = 1 - comb(50, 25) / comb(51, 25)
    assert leave == pytest.approx(25 / 50)
    assert join == pytest.approx(25 / 51)
