"""Bootstrap intervals: exact where that can be worked out, and the same in every process."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.reporting.intervals import mean, ratio

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12)


def test_two_seeds_reach_from_one_to_the_other():
    # A quarter of the resamples draws the same seed twice, more than the 2.5 % of a tail.
    found = mean([3.0, 7.0])
    assert (found.mean, found.low, found.high, found.half, found.n) == (5, 3, 7, 2, 2)


def test_four_seeds_do_not_reach_to_the_ends():
    # Of 256 resamples 1 draws the least seed four times, fewer than 2.5 %; the quantiles are
    # those of all 256 sums, which can be listed.
    values = np.array([0.0, 1.0, 10.0, 100.0])
    sums = np.sort([sum(values[list(draw)]) / 4 for draw in np.ndindex(4, 4, 4, 4)])
    found = mean(values)
    assert found.low > 0
    assert found.high < 100
    assert sums[3] <= found.low <= sums[10]
    assert sums[-11] <= found.high <= sums[-4]


def test_one_seed_has_no_width():
    found = mean([[1.0, 2.0]])
    assert found.low.tolist() == found.mean.tolist() == found.high.tolist() == [1, 2]
    assert found.half.tolist() == [0, 0]


def test_every_request_has_the_same_resamples():
    # So a line and its double have bands of the same shape.
    samples = np.array([[1.0, 2.0], [5.0, 10.0], [2.0, 4.0]])
    found = mean(samples)
    assert found.low[1] == pytest.approx(2 * found.low[0])
    assert found.high[1] == pytest.approx(2 * found.high[0])


def test_what_a_seed_does_to_both_methods_cancels():
    # Seeds differ a hundredfold, the ratio does not: no interval but for the last digit.
    found = ratio([2.0, 20.0, 200.0], [4.0, 40.0, 400.0])
    assert found.mean == pytest.approx(0.5)
    assert found.half < 1e-12


def test_a_ratio_is_one_of_sums():
    assert ratio([1.0, 3.0], [2.0, 2.0]).mean == 1.0
    assert ratio([1.0, 9.0], [1.0, 4.0]).mean == 2.0


def test_another_unit_scales_everything():
    found = mean([1000.0, 3000.0]).scaled(1e-3)
    assert (found.mean, found.low, found.high, found.n) == (2, 1, 3, 2)


@given(VALUES)
def test_the_interval_holds_the_mean_and_stays_within_the_values(values):
    found = mean(values)
    slack = 1e-9 * max(1.0, *map(abs, values))
    assert found.low <= found.mean <= found.high
    assert min(values) - slack <= found.low
    assert found.high <= max(values) + slack


def test_it_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(5)
    found = mean(rng.normal(0, 1, (12, 2000)))
    covered = np.mean((found.low <= 0) & (found.high >= 0))
    # The percentile bootstrap is a little too narrow for few seeds.
    assert 0.88 < covered < 0.96


def test_a_new_process_finds_the_same():
    code = (
        "from testbed.reporting.intervals import mean\n"
        "found = mean([0.1, 0.7, 0.4, 0.9, 0.2])\n"
        "print(repr(float(found.low)), repr(float(found.high)))"
    )
    done = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    here = mean([0.1, 0.7, 0.4, 0.9, 0.2])
    assert done[0].stdout.split() == [repr(float(here.low)), repr(float(here.high))]
    assert done[0].stdout == done[1].stdout
