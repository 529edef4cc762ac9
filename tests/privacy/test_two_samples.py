"""The two-sample tests against scipy and by hand, their error rate, and the verdict's rules."""

from math import comb

import numpy as np
import pytest
from scipy.stats import ks_2samp, mannwhitneyu

from testbed.privacy.comparison import LEVEL, Comparison, compare, judge, least_p


def normal(seed, n, shift=0.0, scale=1.0):
    return np.random.default_rng(seed).normal(shift, scale, n)


@pytest.mark.parametrize(("n", "m"), [(40, 40), (25, 60)])
def test_large_samples_are_scipys(n, m):
    first, second = normal(1, n, 0.3), normal(2, m)
    found = compare(first, second, np.random.default_rng(0))
    ks = ks_2samp(first, second, method="asymp")
    whitney = mannwhitneyu(first, second, method="asymptotic")
    assert (found.ks, found.ks_p) == pytest.approx((ks.statistic, ks.pvalue))
    assert (found.auc, found.auc_p) == pytest.approx((whitney.statistic / n / m, whitney.pvalue))
    assert (found.n, found.m) == (n, m)


def test_small_samples_are_permuted():
    """Two samples of six far apart: 2 of the C(12, 6) divisions are as extreme."""
    found = compare(np.arange(6.0) + 10, np.arange(6.0), np.random.default_rng(0))
    assert (found.ks, found.auc) == (1.0, 1.0)
    assert found.ks_p == pytest.approx(2 / comb(12, 6), rel=0.35)
    assert found.auc_p == pytest.approx(2 / comb(12, 6), rel=0.35)


def test_small_samples_agree_with_the_exact_law():
    first, second = normal(3, 9, 1.0), normal(4, 9)
    found = compare(first, second, np.random.default_rng(0))
    exact = mannwhitneyu(first, second, method="exact").pvalue
    assert found.auc_p == pytest.approx(exact, rel=0.1)
    assert found.ks_p == pytest.approx(ks_2samp(first, second, method="exact").pvalue, rel=0.1)


@pytest.mark.parametrize("n", [10, 19, 20, 40, 3000])
def test_no_p_value_is_nought(n):
    """However far apart, two divisions of the values are as extreme; formulas say 0 there."""
    found = compare(np.arange(float(n)) + n, np.arange(float(n)), np.random.default_rng(0))
    assert (found.ks, found.auc) == (1.0, 1.0)
    assert min(found.ks_p, found.auc_p) >= least_p(n, n) > 0
    assert least_p(n, n) == pytest.approx(2 / comb(2 * n, n), abs=1e-300)
    if n == 40:
        assert found.ks_p == least_p(n, n)  # 2e-23, where scipy has 0
    verdict = judge([found], [found])
    assert 0 < verdict.p_value < LEVEL


@pytest.mark.parametrize("n", [10, 40])
def test_equal_values_tell_nothing(n):
    found = compare(np.ones(n), np.ones(n), np.random.default_rng(0))
    assert (found.ks, found.ks_p, found.auc, found.auc_p) == (0.0, 1.0, 0.5, 1.0)


def test_a_difference_in_spread_alone_is_seen():
    found = compare(normal(5, 100, scale=4.0), normal(6, 100), np.random.default_rng(0))
    assert found.ks_p < 1e-4 < found.auc_p


@pytest.mark.parametrize(("n", "trials"), [(12, 40), (30, 400)])
def test_samples_of_one_law_are_rarely_told_apart(n, trials):
    """At five per cent; the bound is four deviations of a binomial above the mean."""
    rng = np.random.default_rng(11)
    alarms = sum(
        min(one.ks_p, one.auc_p) * 2 < 0.05
        for one in (compare(rng.normal(size=n), rng.normal(size=n), rng) for _ in range(trials))
    )
    assert alarms <= trials * 0.05 + 4 * (trials * 0.05 * 0.95) ** 0.5


def of(p_value, n=30, auc=0.5):
    return Comparison(n, n, 0.1, p_value, auc, p_value)


def test_the_verdict_counts_the_tests():
    caught = of(1e-8)
    alone = judge([of(0.004)], [caught])
    assert (alone.finding, alone.p_value) == ("distinguishable", pytest.approx(0.008))
    # The same smallest value among eight instead of two.
    among = judge([of(0.004), of(0.5), of(0.5), of(0.5)], [caught] * 4)
    assert (among.finding, among.p_value) == ("indistinguishable", pytest.approx(0.032))


def test_nothing_is_shown_where_the_control_is_not_caught_or_models_are_few():
    blind = judge([of(0.5)], [of(0.2)])
    assert blind.finding == "undecided"
    assert blind.control_p > LEVEL
    assert judge([of(0.5, n=7)], [of(1e-6, n=7)]).finding == "undecided"
    assert judge([of(0.5)], [of(1e-6)]).finding == "indistinguishable"
    assert judge([of(1e-6)], [of(0.2)]).finding == "distinguishable"


def test_the_verdict_says_in_which_direction():
    assert judge([of(0.5, auc=0.6), of(0.5, auc=0.1)], [of(0.5)]).auc == 0.1
