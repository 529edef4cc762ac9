"""ROC curves, what is read off them, and their intervals, against numbers worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from testbed.privacy.roc import (
    Scored,
    auc,
    balanced_accuracy,
    curve,
    enough,
    lacking,
    measure,
    needed,
    tpr_at,
)


def scored(members, others, groups=None):
    score = np.array([*members, *others], dtype=float)
    member = np.arange(len(score)) < len(members)
    return Scored(
        score, member, np.atleast_2d(np.arange(len(score)) if groups is None else groups)
    )


def test_a_curve_by_hand():
    """Members 4, 3, 1 and non-members 3, 2, 0: the tie at 3 is one slanted step."""
    found = curve(scored([4, 3, 1], [3, 2, 0]))
    third = 1 / 3
    assert found.fpr.tolist() == pytest.approx([0, 0, third, 2 * third, 2 * third, 1])
    assert found.tpr.tolist() == pytest.approx([0, third, 2 * third, 2 * third, 1, 1])
    # Of the nine pairs 4 beats 3, 3 beats 2 (2 and 0, tie with 3), 1 beats 1.
    assert auc(found) == pytest.approx((3 + 2.5 + 1) / 9)
    assert balanced_accuracy(found) == pytest.approx((1 + third) / 2)
    assert tpr_at(found, 0.1) == pytest.approx(third)
    assert tpr_at(found, third) == pytest.approx(2 * third)
    assert tpr_at(found, 1) == 1


def test_perfect_useless_and_reversed():
    for members, others, area, balanced in (
        ([2, 3], [0, 1], 1.0, 1.0),
        ([1, 1], [1, 1], 0.5, 0.5),
        ([0, 1], [2, 3], 0.0, 0.5),
    ):
        found = curve(scored(members, others))
        assert (auc(found), balanced_accuracy(found)) == (area, balanced)


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=20),
    st.lists(st.integers(0, 5), min_size=1, max_size=20),
)
def test_it_is_scikit_learns(members, others):
    one = scored(members, others)
    fpr, tpr, _ = roc_curve(one.member, one.score, drop_intermediate=False)
    found = curve(one)
    assert found.fpr.tolist() == pytest.approx(fpr.tolist())
    assert found.tpr.tolist() == pytest.approx(tpr.tolist())
    assert auc(found) == pytest.approx(roc_auc_score(one.member, one.score))


def test_weights_count_like_repetitions():
    one = scored([3, 1], [2, 0, 2])
    heavy = curve(one, np.array([2.0, 1, 3, 0, 1]))
    assert auc(heavy) == pytest.approx(auc(curve(scored([3, 3, 1], [2, 2, 2, 2]))))


def test_a_false_positive_rate_needs_its_reciprocal_of_non_members():
    assert [needed(fpr) for fpr in (0.5, 0.01, 0.001)] == [2, 100, 1000]
    found = measure(scored(range(10), np.arange(99) / 10), np.random.default_rng(0)).quantities
    assert np.isnan(found["tpr_at_fpr_0.01"].value)
    found = measure(scored(range(10), np.arange(100) / 10), np.random.default_rng(0)).quantities
    # One non-member in a hundred may be above the threshold, which then lies just below 9.9.
    assert found["tpr_at_fpr_0.01"].value == 0.0
    assert np.isnan(found["tpr_at_fpr_0.001"].value)


def test_what_is_lacking_is_said_in_one_line():
    few = scored(range(7), range(2000))
    assert not enough(few)
    assert lacking(few) == ("7 members and 2000 non-members are there; an attack needs 8 of each")
    some = scored(range(8), range(150))
    assert enough(some)
    assert lacking(some) == "150 non-members are there; the TPR needs 1000 at 0.1 % FPR"
    assert "needs 100 at 1 % FPR and 1000 at 0.1 % FPR" in str(lacking(scored([1] * 8, [1] * 8)))
    assert lacking(scored(range(8), range(1000))) is None


def test_intervals_hold_the_truth_as_often_as_they_say():
    """Normal scores one deviation apart: the AUC is Phi(1 / sqrt 2) = 0.7602."""
    held = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        one = scored(rng.normal(1, 1, 60), rng.normal(0, 1, 60))
        found = measure(one, np.random.default_rng(1)).quantities["auc"]
        assert found.low <= found.value <= found.high
        held += found.low <= 0.7602 <= found.high
    assert held >= 51


def test_scores_of_one_group_are_resampled_together():
    """Twenty copies of every score say no more than one, and only grouped it shows."""
    rng = np.random.default_rng(2)
    members, others = rng.normal(1, 1, 20), rng.normal(0, 1, 20)
    once = scored(members, others)
    copies = scored(np.repeat(members, 20), np.repeat(others, 20), np.repeat(np.arange(40), 20))
    alone = scored(np.repeat(members, 20), np.repeat(others, 20))
    widths = []
    for one in (once, copies, alone):
        of = measure(one, np.random.default_rng(3)).quantities["auc"]
        widths.append(of.high - of.low)
    assert widths[1] == pytest.approx(widths[0])
    assert widths[2] < widths[0] / 3


def test_two_factors_count_both():
    """Ten models and ten clients: what varies with the client alone is not averaged away."""
    rng = np.random.default_rng(4)
    quirk = rng.normal(0, 1, 20)
    model, client = np.divmod(np.arange(400), 20)
    member = client % 2 == 0
    score = quirk[client] + 0.01 * rng.normal(size=400) + member
    widths = []
    for groups in ([model], [client], [client, model]):
        one = Scored(score, member, np.stack(groups))
        of = measure(one, np.random.default_rng(5)).quantities["auc"]
        widths.append(of.high - of.low)
    assert widths[0] < 0.05
    assert widths[1] > 0.2
    assert widths[2] == pytest.approx(widths[1], rel=0.2)


def test_too_few_groups_have_no_interval():
    grouped = scored(range(10), range(10), [0, 1] * 10)
    found = measure(grouped, np.random.default_rng(0)).quantities["auc"]
    assert found.value == 0.5
    assert np.isnan([found.low, found.high]).all()


def test_the_same_stream_gives_the_same_interval():
    one = scored(range(20), range(5, 25))
    first, second = (measure(one, np.random.default_rng(7)).quantities for _ in range(2))
    assert str(first) == str(second)
    other = measure(one, np.random.default_rng(8)).quantities
    assert other["auc"].value == first["auc"].value
    assert other["auc"].low != first["auc"].low
