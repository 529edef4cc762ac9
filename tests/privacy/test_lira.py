"""LiRA by hand, where it is silent, and on a federation whose fusion is least squares."""

import numpy as np
import pytest
from scipy.stats import norm

from testbed.privacy.comparison import compare
from testbed.privacy.lira import fit
from testbed.privacy.roc import Scored, auc, curve


def halves(models, targets):
    return np.arange(models)[:, None] % 2 == np.arange(targets)[None] % 2


def test_gaussians_by_hand():
    """One target: with it 1, 3 (and so on), without it 0, 0, ..."""
    statistic = np.array([1.0, 0, 3, 0] * 4)[:, None]
    found = fit(statistic, halves(16, 1))
    assert (found.inside.mean.item(), found.outside.mean.item()) == (2.0, 0.0)
    assert found.inside.deviation.item() == pytest.approx((8 / 7) ** 0.5)
    assert found.inside.count.item() == found.outside.count.item() == 8


def test_scores_are_the_densities():
    rng = np.random.default_rng(0)
    inside = halves(400, 3)
    statistic = rng.normal(size=(400, 3)) * [1, 2, 3] + inside * [3, 1, 2]
    found = fit(statistic, inside)
    values = np.array([[0.5, -1.0, 2.0], [3.0, 3.0, 3.0]])
    into, out = found.inside, found.outside
    ratio = norm.logpdf(values, into.mean, into.deviation) - norm.logpdf(
        values, out.mean, out.deviation
    )
    assert found.online(values) == pytest.approx(ratio)
    probability = norm.cdf(values, out.mean, out.deviation)
    assert norm.cdf(found.offline(values)) == pytest.approx(probability)
    assert into.deviation == pytest.approx([1, 2, 3], rel=0.15)
    assert into.mean - out.mean == pytest.approx([3, 1, 2], abs=0.6)


def test_few_shadow_models_share_a_variance():
    rng = np.random.default_rng(1)
    inside = halves(40, 4)
    found = fit(rng.normal(size=(40, 4)) * [1, 2, 3, 4], inside)
    assert len(set(found.inside.deviation.tolist())) == 1
    assert found.inside.deviation[0] == pytest.approx((30 / 4) ** 0.5, rel=0.3)


def test_without_eight_models_of_a_kind_there_is_no_score():
    statistic = np.random.default_rng(2).normal(size=(20, 2))
    inside = np.zeros((20, 2), dtype=bool)
    inside[:7, 0] = inside[:8, 1] = True
    found = fit(statistic, inside)
    online, offline = found.online(np.zeros(2)), found.offline(np.zeros(2))
    assert np.isnan(online).tolist() == [True, False]
    assert np.isfinite(offline).all()


def test_one_target_is_that_of_all():
    statistic = np.random.default_rng(3).normal(size=(40, 3))
    found = fit(statistic, halves(40, 3))
    values = np.array([0.1, 0.2, 0.3])
    assert found.target(1).online(values[1:2]) == found.online(values)[1:2]
    assert found.target(1).offline(values[1:2]) == found.offline(values)[1:2]


class Linear:
    """Clients with linear models; F-SOSA's projection is then pooled least squares."""

    def __init__(self, clients=30, features=20, samples=14, seed=0):
        self.rng = rng = np.random.default_rng(seed)
        self.clients = clients
        truth = rng.standard_normal(features)
        self.x = rng.standard_normal((clients, samples, features))
        self.y = self.x @ truth + rng.standard_normal((clients, samples))

    def fuse(self, subset):
        x, y = np.concatenate(self.x[subset]), np.concatenate(self.y[subset])
        return np.linalg.lstsq(x, y, rcond=None)[0]

    def subset(self, without=None):
        everyone = [client for client in range(self.clients) if client != without]
        return sorted(self.rng.choice(everyone, self.clients // 2, replace=False))

    def losses(self, model):
        return ((self.x @ model - self.y) ** 2).mean(axis=1)

    def bank(self, models):
        subsets = [self.subset() for _ in range(models)]
        inside = np.array([np.isin(np.arange(self.clients), subset) for subset in subsets])
        return inside, -np.array([self.losses(self.fuse(subset)) for subset in subsets])


@pytest.fixture(scope="module")
def linear():
    return Linear()


def test_it_finds_members_of_a_fused_model_and_beats_the_loss(linear):
    inside, statistic = linear.bank(300)
    found = fit(statistic, inside)
    members, others = linear.bank(60)

    def area(scores):
        flat = scores.ravel()
        return auc(curve(Scored(flat, members.ravel(), np.arange(len(flat))[None])))

    online, offline, loss = (
        area(s) for s in (found.online(others), found.offline(others), others)
    )
    assert online > 0.85
    assert online >= offline - 0.01
    assert offline > loss + 0.1


def test_an_edited_model_is_a_retrained_one_and_a_kept_contribution_is_not(linear):
    inside, statistic = linear.bank(200)
    client = 4
    found = fit(statistic, inside).target(client)
    edited, kept, retrained = [], [], []
    while len(edited) < 80:
        subset = linear.subset()
        if client not in subset:
            continue
        outside = [other for other in range(linear.clients) if other not in subset]
        after = sorted({*subset, linear.rng.choice(outside)} - {client})
        for sample, members in (
            (kept, subset),
            (edited, after),
            (retrained, linear.subset(without=client)),
        ):
            loss = linear.losses(linear.fuse(members))[client : client + 1]
            sample.append(found.online(-loss).item())
    edited, kept, retrained = map(np.array, (edited, kept, retrained))
    same = compare(edited, retrained, np.random.default_rng(0))
    other = compare(kept, retrained, np.random.default_rng(0))
    assert min(same.ks_p, same.auc_p) > 0.01
    assert max(other.ks_p, other.auc_p) < 1e-12
    assert other.auc > 0.85
