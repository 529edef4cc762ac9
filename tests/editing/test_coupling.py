"""The couplings: exact by enumeration, and by statistics with the real generator.

The exact laws are those of arXiv 2610.35212, section IV-B: with m clients common to both
populations, TV = 1 - C(m, P) / C(max(M, M'), P), and no coupling can replace fewer than
max(P d / M, P a / M') members on average.
"""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from exact import Branching, changed, clients, distance, every, joint, marginal, replaced, uniform
from scipy import stats

from testbed.editing import coupling
from testbed.editing.clients import Change, Client
from testbed.editing.coupling import couple, draw
from testbed.errors import EditError
from testbed.streams import Streams

# (P, d, a) by M: all that are feasible with up to three departures and arrivals.
CASES = {
    M: [
        (P, d, a)
        for P in range(1, M + 1)
        for d in range(min(3, M) + 1)
        for a in range(4)
        if d + a > 0 and M - d + a >= P
    ]
    for M in range(1, 7)
}


def case(M: int, d: int, a: int) -> tuple[tuple[Client, ...], Change]:
    """Return M clients of whom d leave and whom a join, at both ends and in between."""
    population = clients([10 * number for number in range(1, M + 1)])
    departures = [population[index] for index in (0, -1, 1)[:d]]
    return population, Change.of(departures, clients([5, 95, 35][:a]))


# --- by enumeration --------------------------------------------------------------------


@pytest.mark.parametrize("M", range(1, 7))
def test_uniform_maximal_and_least_replacing(M: int) -> None:
    for P, d, a in CASES[M]:
        population, change = case(M, d, a)
        after = change.applied(population)
        law = joint(population, change, P)
        assert marginal(law) == uniform(after, P), (P, d, a)
        assert changed(law) == 1 - Fraction(comb(M - d, P), comb(max(M, len(after)), P))
        assert replaced(law) == max(Fraction(P * d, M), Fraction(P * a, len(after)))


@pytest.mark.parametrize(("M", "P"), [(6, 3), (7, 2)])
def test_single_requests(M: int, P: int) -> None:
    """A leave triggers with probability P/M, a join with P/(M+1); one member is replaced."""
    for (d, a), rate in {(1, 0): Fraction(P, M), (0, 1): Fraction(P, M + 1)}.items():
        law = joint(*case(M, d, a), P)
        assert changed(law) == replaced(law) == rate


def test_members_replaced_follow_the_hypergeometric_law() -> None:
    """M = 7, P = 3, d = 3, a = 1: as many as there are departures in a uniform subset."""
    law = joint(*case(7, 3, 1), 3)
    for count in range(4):
        share = sum(p for (x, y), p in law.items() if len(set(y) - set(x)) == count)
        assert share == Fraction(comb(3, count) * comb(4, 3 - count), comb(7, 3))


def test_pairing_is_free_of_randomness_and_blind_to_the_subset() -> None:
    population, change = case(6, 2, 2)
    partner = dict(zip(change.departures, change.arrivals, strict=True))
    for subset in uniform(population, 3):
        rng = Branching([])
        after = couple(population, subset, change, 3, rng)
        assert rng.sizes == []
        assert after == tuple(sorted(partner.get(client, client) for client in subset))


def test_nobody_who_leaves_is_ever_drawn() -> None:
    population, change = case(6, 3, 1)
    for (_, after), probability in joint(population, change, 3).items():
        assert probability > 0
        assert not set(after) & set(change.departures)


def test_shrink_keeps_the_uniform_law_below_p_and_back() -> None:
    """P = 3 with 5 -> 4 -> 2 -> 1 -> 3 -> 5 clients: P_t = min(P, M_t) at every step."""
    P, population = 3, clients(range(5))
    law = uniform(population, P)
    for departures, arrivals in [
        (population[:1], ()),
        (population[1:3], ()),
        (population[3:4], ()),
        ((), clients([7, 8])),
        (population[4:], clients([1, 9, 10])),
        ((), clients([11])),
    ]:
        change = Change.of(departures, arrivals)
        step: dict = {}
        for subset, weight in law.items():

            def run(rng, S=population, X=subset, change=change):
                return couple(S, X, change, P, rng, "shrink")

            for probability, result in every(run):
                step[result] = step.get(result, 0) + weight * probability
        population, law = change.applied(population), step
        assert law == uniform(population, P), len(population)
    assert len(population) == 6


def test_shrink_from_a_population_below_p_in_one_batch() -> None:
    for M, d, a in [(3, 2, 1), (3, 1, 3), (2, 2, 3), (3, 3, 0), (2, 0, 3)]:
        population, change = case(M, d, a)
        law = joint(population, change, 4, "shrink")
        assert marginal(law) == uniform(change.applied(population), 4), (M, d, a)


def test_draw_is_uniform() -> None:
    population = clients(range(5))
    for size in range(1, 7):
        law: dict = {}
        for probability, subset in every(lambda rng, size=size: draw(population[::-1], size, rng)):
            law[subset] = law.get(subset, 0) + probability
        assert law == uniform(population, size)


# --- the checks have teeth -------------------------------------------------------------


def test_insertion_with_p_over_m_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = coupling._insert
    monkeypatch.setattr(
        coupling,
        "_insert",
        lambda chosen, new, present, *rest: right(chosen, new, present - 1, *rest),
    )
    population, change = case(5, 0, 1)
    law = marginal(joint(population, change, 2))
    assert distance(law, uniform(change.applied(population), 2)) == Fraction(1, 15)


def test_replacement_by_the_lowest_id_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        coupling,
        "_draw_outside",
        lambda everyone, members, count, rng: [c for c in everyone if c not in members][:count],
    )
    population, change = case(5, 1, 0)
    law = marginal(joint(population, change, 2))
    assert distance(law, uniform(change.applied(population), 2)) == Fraction(1, 5)


def test_unpaired_batches_are_exact_but_change_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """One leaves, one joins, M = 7, P = 3: 0.673 and 0.796 instead of 3/7 each."""
    population, change = case(7, 1, 1)
    paired = joint(population, change, 3)
    assert changed(paired) == replaced(paired) == Fraction(3, 7)
    left = Change.of(change.departures).applied(population)
    unpaired: dict = {}
    second = Change.of(arrivals=change.arrivals)
    for (before, middle), weight in joint(population, Change.of(change.departures), 3).items():

        def run(rng, middle=middle):
            return couple(left, middle, second, 3, rng)

        for probability, result in every(run):
            unpaired[before, result] = unpaired.get((before, result), 0) + weight * probability
    assert marginal(unpaired) == uniform(change.applied(population), 3)
    assert float(changed(unpaired)) == pytest.approx(0.673, abs=5e-4)
    assert float(replaced(unpaired)) == pytest.approx(0.796, abs=5e-4)


# --- with the real generator -----------------------------------------------------------


def history(rng: np.random.Generator, population, P: int, changes):
    subset = draw(population, P, rng)
    for change in changes:
        subset = couple(population, subset, change, P, rng)
        population = change.applied(population)
    return population, subset


def test_all_subsets_are_equally_frequent_after_three_batches() -> None:
    population = clients(range(7))
    changes = [
        Change.of(clients([0, 1]), clients([10, 11, 12])),
        Change.of(clients([10, 3, 4]), clients([13])),
        Change.of((), clients([0])),  # a client returns
    ]
    rng, counts, runs = Streams(0).rng("chi"), {}, 14_000
    for _ in range(runs):
        after, subset = history(rng, population, 3, changes)
        counts[subset] = counts.get(subset, 0) + 1
    cells = comb(len(after), 3)
    expected = runs / cells
    square = sum((counts.get(x, 0) - expected) ** 2 / expected for x in uniform(after, 3))
    assert cells == 35
    assert 1e-3 < stats.chi2.sf(square, cells - 1) < 1 - 1e-3


def test_inclusion_at_the_papers_size() -> None:
    """M = 50, P = 25: every client is a member equally often, newcomers as often as any."""
    P, runs = 25, 3_000
    changes = [
        Change.of(clients([3, 4, 20]), clients(range(50, 54))),
        Change.of(clients([50, 7, 8, 9]), clients([60])),
        Change.of((), clients([3, 61])),
        Change.of(clients([61, 11]), clients([4, 62])),
    ]
    rng = Streams(0).rng("inclusion")
    counts: dict[Client, int] = {}
    watched, together = set(clients([3, 4, 51, 52, 53, 60, 62])), np.zeros(8)
    for _ in range(runs):
        after, subset = history(rng, clients(range(50)), P, changes)
        for client in subset:
            counts[client] = counts.get(client, 0) + 1
        together[len(watched & set(subset))] += 1
    M = len(after)
    assert M == 50 - 9 + 9
    assert watched < set(after)
    # Counts of a fixed-size sample are negatively correlated; (M - 1) / M corrects for it.
    p = P / M
    square = sum((counts[client] - runs * p) ** 2 for client in after) / (runs * p * (1 - p))
    assert 1e-3 < stats.chi2.sf(square * (M - 1) / M, M - 1) < 1 - 1e-3
    expected = stats.hypergeom(M, len(watched), P).pmf(range(8)) * runs
    assert stats.chisquare(together, expected).pvalue > 1e-3


def test_trigger_rate_is_the_sum_of_p_over_m() -> None:
    """60 single requests, 150 times over: as often as the sum of P/M and P/(M+1) says."""
    P, runs = 25, 150
    expected, variance, triggered = 0.0, 0.0, 0
    for run in range(runs):
        rng, traffic = Streams(run).rng("sampling"), Streams(run).rng("traffic")
        population = clients(range(50))
        subset = draw(population, P, rng)
        for request in range(60):
            if len(population) > P and traffic.random() < 0.5:
                leaving = population[traffic.integers(len(population))]
                change, rate = Change.of([leaving]), P / len(population)
            else:
                change, rate = Change.of((), clients([100 + request])), P / (len(population) + 1)
            after = couple(population, subset, change, P, rng)
            triggered += after != subset
            expected += rate
            variance += rate * (1 - rate)
            population, subset = change.applied(population), after
    assert abs(triggered - expected) < 4 * variance**0.5


# --- refusals --------------------------------------------------------------------------


def test_strict_refuses_to_fall_below_p() -> None:
    population, change = case(4, 2, 1)
    with pytest.raises(EditError, match=r"3 clients are left .* P = 4; .*shrink") as caught:
        couple(population, population, change, 4, np.random.default_rng(0))
    assert "\n" not in str(caught.value)
    after = couple(population, population, change, 4, np.random.default_rng(0), "shrink")
    assert after == change.applied(population)


def test_strict_allows_exactly_p() -> None:
    population, change = case(4, 1, 0)
    after = couple(population, population[:3], change, 3, np.random.default_rng(0))
    assert after == change.applied(population)


@pytest.mark.parametrize("below", ["strict", "shrink"])
@pytest.mark.parametrize(("d", "a"), [(3, 2), (3, 3), (2, 3)])
def test_a_batch_may_pass_below_p_in_between(below: str, d: int, a: int) -> None:
    """M = 4, P = 3: after its departures alone one or two clients would be left."""
    population, change = case(4, d, a)
    after = change.applied(population)
    law = joint(population, change, 3, below)
    assert marginal(law) == uniform(after, 3)
    assert changed(law) == 1 - Fraction(comb(4 - d, 3), comb(max(4, len(after)), 3)) == 1
    assert replaced(law) == max(Fraction(3 * d, 4), Fraction(3 * a, len(after)))


def test_the_draw_steps_over_members_wherever_they_stand() -> None:
    population = clients(range(6))
    for members in [(), (0, 1), (4, 5), (1, 3), (0, 2, 5), range(6)]:
        inside = clients(members)

        def run(rng, inside=inside):
            return tuple(coupling._draw_outside(population, inside, 1, rng))

        drawn = {found: probability for probability, found in every(run)}
        outside = [client for client in population if client not in inside]
        expected = {(one,): Fraction(1, len(outside)) for one in outside} or {(): Fraction(1)}
        assert drawn == expected


def test_a_change_that_does_not_fit_draws_nothing() -> None:
    population = clients(range(4))
    for change in (Change.of(clients([9])), Change.of((), population[:1])):
        rng = Branching([])
        with pytest.raises(EditError):
            couple(population, population[:2], change, 2, rng)
        assert rng.sizes == []


def test_no_change_is_no_edit() -> None:
    population = clients(range(4))
    rng = Branching([])
    assert couple(population, population[:2], Change.of(), 2, rng) == population[:2]
    assert rng.sizes == []
