"""Fisher information against brute force, and K-FAC against curvlinops."""

import warnings

import numpy as np
import pytest
import torch
from nets import (
    ESTIMATORS,
    KINDS,
    NETS,
    Normalised,
    Residual,
    Rows,
    distance,
    drawn,
    expectation,
    relative,
    samples,
    seeded,
    stream,
    tensors,
    tiny,
)
from torch import nn
from torch.nn import functional

from testbed.learning.blocks import blocks
from testbed.learning.fisher import Diagonal, Kronecker, fisher

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its dependencies use deprecated parts of torch
    from curvlinops import KFACLinearOperator


# --- K-FAC against curvlinops ----------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "theirs"), [("exact", "type-2"), ("empirical", "empirical")]
)
@pytest.mark.parametrize("net", NETS)
def test_kfac_equals_curvlinops(net: str, estimator: str, theirs: str) -> None:
    make, shape, classes = NETS[net]
    model, state = seeded(make())
    pictures, labels = samples(24, shape, classes)
    matrices = [block for block in blocks(model) if not block.norm]
    ours = fisher(model, state, pictures, labels, "kfac", estimator, stream())
    operator = KFACLinearOperator(
        model,
        nn.CrossEntropyLoss(),
        [model.get_parameter(name) for block in matrices for name in block.parameters],
        [(pictures[:10], labels[:10]), (pictures[10:], labels[10:])],
        fisher_type=theirs,
        separate_weight_and_bias=False,
        check_deterministic=False,
    )
    operator.compute_kronecker_factors()
    factors = operator.state_dict()
    # Theirs is a mean over samples, ours a sum; the number of locations divides A there.
    for block in matrices:
        a = factors["input_covariances"][block.name]
        g = factors["gradient_covariances"][block.name] * len(labels)
        assert distance(ours[block.name], a, g) < 1e-5, block.name
        v = torch.randn(block.rows, block.columns, generator=torch.Generator().manual_seed(2))
        mine = ours[block.name]
        assert relative(mine.g @ v @ mine.a, g @ v @ a) < 1e-5, block.name


# --- K-FAC by definition ---------------------------------------------------------------


def test_kfac_of_one_sample_is_the_exact_fisher_of_a_linear_layer() -> None:
    model, state = seeded(nn.Sequential(nn.Flatten(), nn.Linear(6, 4)).double())
    pictures, labels = samples(1, (1, 2, 3), 4)
    pictures = pictures.double()
    (factor,) = fisher(model, state, pictures, labels, "kfac", "exact", stream()).values()
    assert isinstance(factor, Kronecker)
    dense = sum(
        weight * torch.outer(each["1"].reshape(-1), each["1"].reshape(-1))
        for weight, each in expectation(model, pictures, labels, exact=True)
    )
    torch.testing.assert_close(torch.kron(factor.g, factor.a), dense, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_kfac_factors_by_brute_force(estimator: str) -> None:
    """A = (1/n) sum a a', G = (1/T) sum E[g g'] with T = 9 locations of the convolution."""
    model, state = seeded(tiny().double())
    pictures, labels = samples(6, (2, 5, 5), 3)
    pictures = pictures.double()
    ours = fisher(model, state, pictures, labels, "kfac", estimator, stream())
    if estimator == "sampled":
        labels = drawn(model, pictures)
    conv, first, second = (model[index] for index in (0, 3, 5))
    a = dict.fromkeys(ours, 0.0)
    g = dict.fromkeys(ours, 0.0)
    for x, y in zip(pictures, labels, strict=True):
        one = torch.ones(1, dtype=x.dtype)
        patches = functional.unfold(x[None], 3, stride=2, padding=1)[0].T
        s0 = conv(x[None])
        h0 = torch.relu(s0).flatten()
        s3 = first(h0)
        h3 = torch.relu(s3)
        s5 = second(h3)
        rows = torch.cat([patches, one.expand(9, 1)], dim=1)
        a["0"] += rows.T @ rows / 6
        a["3"] += torch.outer(torch.cat([h0, one]), torch.cat([h0, one])) / 6
        a["5"] += torch.outer(h3, h3) / 6
        logp = functional.log_softmax(s5, dim=0)
        for label in range(3):
            weight = (
                float(logp[label].detach().exp()) if estimator == "exact" else float(label == y)
            )
            g0, g3, g5 = torch.autograd.grad(logp[label], (s0, s3, s5), retain_graph=True)
            g0 = g0[0].flatten(1)
            g["0"] += weight * g0 @ g0.T / 9
            g["3"] += weight * torch.outer(g3, g3)
            g["5"] += weight * torch.outer(g5, g5)
    for name, factor in ours.items():
        torch.testing.assert_close(factor.a, a[name].detach(), rtol=1e-10, atol=1e-14)
        torch.testing.assert_close(factor.g, g[name], rtol=1e-10, atol=1e-14)


def test_kfac_factors_are_exactly_symmetric_and_singular_by_the_softmax_shift() -> None:
    model, state = seeded(tiny())
    pictures, labels = samples(40, (2, 5, 5), 3)
    factors = fisher(model, state, pictures, labels, "kfac", "exact", stream())
    for factor in factors.values():
        for side in tensors(factor):
            assert side.dtype == torch.float32
            assert torch.equal(side, side.T)
            assert torch.linalg.eigvalsh(side.double())[0] > -1e-5 * side.norm()
    # Adding a constant to all logits changes nothing: G of the last layer maps 1 to 0.
    last = factors["5"].g
    assert (last @ torch.ones(3)).norm() < 1e-5 * last.norm()


# --- the diagonal ----------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("net", [tiny, Residual, Normalised, Rows])
def test_diagonal_by_brute_force(net, estimator: str) -> None:
    model, state = seeded(net().double())
    model.eval()
    pictures, labels = samples(6, (2, 5, 5), 3)
    pictures = pictures.double()
    ours = fisher(model, state, pictures, labels, "diagonal", estimator, stream())
    if estimator == "sampled":
        labels = drawn(model, pictures)
    expected = {block.name: 0.0 for block in blocks(model)}
    for weight, each in expectation(model, pictures, labels, estimator == "exact"):
        for name, gradient in each.items():
            expected[name] += weight * gradient.square()
    assert ours.keys() == expected.keys()
    for name, factor in ours.items():
        assert isinstance(factor, Diagonal)
        torch.testing.assert_close(factor.f, expected[name], rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_normalisation_is_diagonal_under_kfac_too(estimator: str) -> None:
    model, state = seeded(Normalised())
    pictures, labels = samples(10, (2, 8, 8), 3)
    kfac, diagonal = (
        fisher(model, state, pictures, labels, kind, estimator, stream()) for kind in KINDS
    )
    for block in blocks(model):
        assert isinstance(kfac[block.name], Diagonal if block.norm else Kronecker)
        if block.norm:
            assert torch.equal(kfac[block.name].f, diagonal[block.name].f)
            assert (kfac[block.name].f > 0).all()


def test_normalisation_by_hand() -> None:
    """xhat = (5 - 1) / 2 = 2 and scale 1, shift 0: logits (2, 0), p = sigmoid(2)."""
    norm = nn.BatchNorm1d(1, eps=0.0)
    model = nn.Sequential(norm, nn.Linear(1, 2, bias=False))
    state = {
        "0.weight": torch.ones(1),
        "0.bias": torch.zeros(1),
        "0.running_mean": torch.ones(1),
        "0.running_var": torch.full((1,), 4.0),
        "0.num_batches_tracked": torch.tensor(1),
        "1.weight": torch.tensor([[1.0], [0.0]]),
    }
    f = fisher(model, state, torch.tensor([[5.0]]), torch.tensor([0]), "kfac", "exact", stream())
    p = 1 / (1 + np.exp(-2))
    # The gradient of the logits' difference is xhat = 2 for the scale, 1 for the shift.
    np.testing.assert_allclose(f["0"].f.flatten(), [4 * p * (1 - p), p * (1 - p)], rtol=1e-5)
