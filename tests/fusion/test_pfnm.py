"""PFNM: matching neurons under a Beta-Bernoulli process."""

import math

import numpy as np
import pytest
import torch
from chains import ORDERS, Residual, bars, known, learned, learner, permuted, seeded, tiny
from torch import nn

from testbed.errors import FusionError
from testbed.fusion.averaging import weighted_mean
from testbed.fusion.pfnm import WIDEST, Matching, Process, flops, fuse, grown, match
from testbed.fusion.rules import RULES
from testbed.learning.contribution import Contribution
from testbed.learning.evaluation import evaluate

BY = Process()
NO_PRIOR = np.zeros(2)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_gains_by_hand() -> None:
    """One global neuron (3, 0) of one client, J = 3; sigma = sigma0 = 1, gamma = 7."""
    state = Matching.empty(NO_PRIOR, BY, clients=3, width=9)
    assert state.add(np.array([[3.0, 0.0]])).tolist() == [0]
    gains = state.gains(np.array([[3.0, 0.0], [0.0, 4.0]]))
    price = 2 * math.log(7 / 3)
    expected = [
        # ((3+3)^2 / 3) - 9/2 + log(1/2);  9/2 for the first new one, less for the second
        [12 - 4.5 + math.log(0.5), 4.5 + price, 4.5 + price - 2 * math.log(2)],
        # (3^2 + 4^2)/3 - 9/2 + log(1/2);  16/2
        [25 / 3 - 4.5 + math.log(0.5), 8 + price, 8 + price - 2 * math.log(2)],
    ]
    np.testing.assert_allclose(gains, expected)
    assert state.add(np.array([[3.0, 0.0], [0.0, 4.0]])).tolist() == [0, 1]
    np.testing.assert_allclose(state.means, [[6 / 3, 0], [0, 4 / 2]])


def test_gains_with_a_prior_mean_and_other_variances_by_hand() -> None:
    by = Process(sigma=0.5, sigma0=2.0, gamma=3.0)
    state = Matching.empty(np.array([0.0, 0.4]), by, clients=2, width=9)
    # v / s^2 = 4 v;  mu0 / s0^2 = (0, 0.1);  1 / s0^2 = 0.25
    opened = (4.0**2 + 8.1**2) / 4.25 - 0.01 / 0.25 + 2 * math.log(3 / 2)
    np.testing.assert_allclose(state.gains(np.array([[1.0, 2.0]])), [[opened]])
    state.add(np.array([[1.0, 2.0]]))
    np.testing.assert_allclose(state.means, [[4 / 4.25, 8.1 / 4.25]])
    matched = (8.0**2 + 16.1**2) / 8.25 - (4.0**2 + 8.1**2) / 4.25 + math.log(1 / 1)
    assert state.gains(np.array([[1.0, 2.0]]))[0, 0] == pytest.approx(matched)


def test_popular_neurons_count_up_to_ten() -> None:
    state = Matching.empty(NO_PRIOR, BY, clients=20, width=9)
    rows = np.array([[5.0, 0.0]])
    for _ in range(12):
        assert state.add(rows).tolist() == [0]
    assert state.count.tolist() == [12]
    theta = 60.0
    expected = (theta + 5) ** 2 / 14 - theta**2 / 13 + math.log(10 / 10)
    assert state.gains(rows)[0, 0] == pytest.approx(expected)


def test_a_removed_client_leaves_no_trace() -> None:
    first, second = np.array([[3.0, 0.0]]), np.array([[0.0, 4.0], [3.0, 0.0]])
    state = Matching.empty(NO_PRIOR, BY, clients=3, width=9)
    state.add(first)
    before = state.theta.copy()
    assigned = state.add(second)
    assert assigned.tolist() == [1, 0]
    assert state.remove(second, assigned)[0] == 0
    np.testing.assert_array_equal(state.theta, before)
    assert state.count.tolist() == [1]
    # Neurons behind one that vanished move up.
    state.add(second)
    assert state.remove(first, np.array([0])).tolist() == [0, 1]
    third = Matching.empty(NO_PRIOR, BY, clients=3, width=9)
    third.add(second)
    assert third.remove(second[:1], np.array([0])).tolist() == [-1, 0]


def test_permuted_neurons_are_matched_to_each_other() -> None:
    base = rng().standard_normal((6, 8)) * 3
    orders = [rng(seed).permutation(6) for seed in range(4)]
    rows = [base[order] + 0.01 * rng(9).standard_normal((6, 8)) for order in orders]
    for width in (6, WIDEST):
        assigned, means = match(rows, np.zeros(8), width, rng(1), BY)
        assert means.shape == (6, 8)
        for order, found in zip(orders, assigned, strict=True):
            # Neuron base[i] of every client lies at the same global neuron.
            assert found[np.argsort(order)].tolist() == assigned[0][np.argsort(orders[0])].tolist()
        # theta / r of four clients that agree: 4 v / (1 + 4).
        np.testing.assert_allclose(means[assigned[0]], 0.8 * base[orders[0]], atol=0.05)


def test_different_neurons_stay_apart_unless_the_width_is_taken() -> None:
    rows = [np.eye(6)[:3] * 9, np.eye(6)[3:] * 9]
    assigned, means = match(rows, np.zeros(6), WIDEST, rng(), BY)
    assert len(means) == 6
    assert sorted(np.concatenate(assigned).tolist()) == list(range(6))
    assigned, means = match(rows, np.zeros(6), 3, rng(), BY)
    assert len(means) == 3
    assert all(sorted(each.tolist()) == [0, 1, 2] for each in assigned)


def test_clients_of_different_width() -> None:
    base = rng().standard_normal((5, 8)) * 3
    assigned, means = match([base[[4]], base, base[[1, 0]]], np.zeros(8), 5, rng(), BY)
    order = assigned[1]
    assert assigned[0].tolist() == [order[4]]
    assert assigned[2].tolist() == [order[1], order[0]]
    np.testing.assert_allclose(means[order[[0, 1, 4]]], base[[0, 1, 4]] * 2 / 3)
    np.testing.assert_allclose(means[order[[2, 3]]], base[[2, 3]] / 2)


def two(orders=ORDERS, bias: bool = False) -> tuple[nn.Module, list[Contribution]]:
    """A client and its permutation, with neurons far enough apart to be told."""
    model = seeded(lambda: tiny(bias))
    state = {name: value * 20 for name, value in model.state_dict().items()}
    counts = {"classes": torch.tensor([3, 1, 0])}, {"classes": torch.tensor([1, 1, 0])}
    return model, [
        Contribution(4, state, {}, counts[0]),
        Contribution(2, permuted(state, orders), {}, counts[1]),
    ]


@pytest.mark.parametrize("wide", [False, True])
def test_a_permuted_client_is_undone(wide: bool) -> None:
    """Hidden layers shrink by n / (n + 1) = 2/3 each: the function is the same up to 8/27."""
    model, contributions = two()
    network = known(model, (2, 6, 6), 3)
    x = torch.rand(50, 2, 6, 6)
    model.load_state_dict(contributions[0].model)
    expected = model(x) * (2 / 3) ** 3
    if wide:
        fused = grown(contributions, network, rng())
        assert [tuple(each.shape) for each in fused.parameters()] == [
            tuple(each.shape) for each in model.parameters()
        ]
    else:
        fused = seeded(lambda: tiny(False))
        fused.load_state_dict(fuse(contributions, network, rng()).model)
    torch.testing.assert_close(fused(x), expected, rtol=1e-4, atol=1e-3)
    model.load_state_dict(weighted_mean(contributions))
    assert (model(x) / model(x).norm() - expected / expected.norm()).norm() > 0.1


def test_two_clients_by_hand() -> None:
    """A layer of two units, the second client's in reverse order; classes by their counts."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2, bias=False))

    def client(w1, b1, w2, counts) -> Contribution:
        state = {"0.weight": w1, "0.bias": b1, "2.weight": w2}
        state = {name: torch.tensor(value) for name, value in state.items()}
        return Contribution(sum(counts), state, {}, {"classes": torch.tensor(counts)})

    one = client([[3.0, 0.0], [0.0, 6.0]], [0.5, 0.2], [[1.0, 2.0], [3.0, 4.0]], [3, 0])
    other = client([[0.0, 6.0], [3.0, 0.0]], [0.6, 0.7], [[8.0, 5.0], [10.0, 9.0]], [1, 0])
    fused = fuse([one, other], known(model, (1, 1, 2), 2), rng(2)).model
    # Which of the two comes first is the last client's to say; sort by the first weight.
    order = fused["0.weight"][:, 0].argsort(descending=True)
    expected = torch.tensor([[6 / 3, 0.0], [0.0, 12 / 3]])
    torch.testing.assert_close(fused["0.weight"][order], expected)
    # The prior mean of a bias is 0.1: (0.1 + 0.5 + 0.7) / 3 and (0.1 + 0.2 + 0.6) / 3.
    torch.testing.assert_close(fused["0.bias"][order], torch.tensor([1.3 / 3, 0.9 / 3]))
    # Class 0 by 3/4 and 1/4 of its samples; class 1, which nobody has, by data weights too.
    answers = torch.tensor([[0.75 * 1 + 0.25 * 5, 0.75 * 2 + 0.25 * 8], [4.5, 5.5]])
    torch.testing.assert_close(fused["2.weight"][:, order], answers)


def test_clients_that_learned_and_the_same_again() -> None:
    model = seeded(learner)
    contributions = learned(model, [[0, 1, 2], [1, 2, 3]])
    network = known(model, (1, 8, 8), 4)
    before = torch.get_rng_state()
    fused = fuse(contributions, network, rng(4)).model
    again = fuse(contributions, network, rng(4)).model
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(fused[name], again[name]) for name in fused)
    assert fused.keys() == contributions[0].model.keys()
    for name, value in contributions[0].model.items():
        assert (fused[name].shape, fused[name].dtype) == (value.shape, value.dtype)
    x, y = bars(400, [0, 1, 2, 3], 7)
    assert evaluate(model, fused, x, y).accuracy > 0.6
    # The published, wider network answers at least as well, and its shapes fit together.
    wide = grown(contributions, network, rng(4))
    assert wide[0].out_channels == len(wide[0].weight) == wide[0].bias.shape[0]
    assert wide[4].in_features == wide[4].weight.shape[1] == 16 * len(wide[0].weight)
    assert wide[6].in_features == wide[4].out_features == len(wide[4].weight) >= 16
    assert evaluate(wide, wide.state_dict(), x, y).accuracy > 0.6


def test_one_client_keeps_its_model() -> None:
    model = seeded(tiny)
    alone = Contribution(1, model.state_dict(), {}, {"classes": torch.tensor([1, 0, 0])})
    fused = fuse([alone], known(model, (2, 6, 6), 3), rng()).model
    assert all(torch.equal(fused[name], value) for name, value in alone.model.items())


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (lambda: Residual(), "'wide' is on a skip path"),
        (lambda: Residual(nn.BatchNorm2d), "'norm' is a normalisation layer"),
    ],
)
def test_refused_networks(model, problem: str) -> None:
    net = seeded(model)
    client = Contribution(1, net.state_dict(), {}, {"classes": torch.tensor([1, 0, 0])})
    with pytest.raises(FusionError, match=f"{problem}; use lenet") as caught:
        fuse([client, client], known(net, (1, 8, 8), 3), rng())
    assert "\n" not in str(caught.value)


def test_nobody() -> None:
    with pytest.raises(FusionError, match="no client contributed"):
        fuse([], known(seeded(tiny), (2, 6, 6), 3), rng())


def test_registered_and_counted() -> None:
    assert RULES["pfnm"].statistic == "model+classes"
    model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU(), nn.Linear(4, 2))
    assert flops(known(model, (1, 1, 3), 2), 5) == 5 * 6 * (2 * 16 * 3 + 64)
