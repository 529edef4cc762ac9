"""FedLPA."""

from math import sqrt

import numpy as np
import pytest
import torch
from federated import RNG, federation, has, layer, only, task, weights
from quadratics import psd

from testbed.fusion import fsosa
from testbed.fusion.fedlpa import PUBLISHED, Descent, descend, equations, fuse
from testbed.fusion.kronecker import KroneckerSum
from testbed.fusion.rules import network_of
from testbed.learning.blocks import matrix
from testbed.learning.factors import Kronecker

C = PUBLISHED.damping


def scalar(value: float) -> torch.Tensor:
    return torch.tensor([[value]], dtype=torch.float64)


def client(w: float, a: float, g: float, **extra):
    """Factors are given as they are once c was added."""
    return has([[w]], 1, Kronecker(a=scalar(a - C), g=scalar(g - C)), **extra)


def literal(system: KroneckerSum, z, start, by: Descent):
    """The authors' loop: autograd of a mean squared error."""
    w = start
    for _ in range(by.steps):
        w = w.detach().requires_grad_()
        product = sum(g @ w @ a for g, a in zip(system.g, system.a, strict=True))
        (gradient,) = torch.autograd.grad(torch.nn.functional.mse_loss(product, z), w)
        w = w - by.lr * gradient
    return w.detach()


def test_two_clients_by_hand() -> None:
    """F = 1/2 (2 * .3 + 4 * .1) = .5 and Z = 1/2 (2 * .3 * 1 + 4 * .1 * 3) = .9.

    Closed: .9 / (.2 * 3) = 1.5.  One step from there: eta = 2, and
    1.5 - 2 * .5 * (.5 * 1.5 - .9) = 1.65.  In the limit .9 / .5 = 1.8.
    """
    clients = [client(1.0, 2.0, 0.3), client(3.0, 4.0, 0.1)]
    system, z = equations(clients, layer(1, 1)[0], locations=1)
    assert float(system.operator()(scalar(1.0))) == pytest.approx(0.5)
    assert z.item() == pytest.approx(0.9)
    assert pytest.approx(sqrt(0.001)) == C
    assert descend(system, z, scalar(1.5), Descent(steps=1)).item() == pytest.approx(1.65)
    assert descend(system, z, scalar(1.5), Descent(steps=2)).item() == pytest.approx(1.725)
    assert descend(system, z, scalar(1.5)).item() == pytest.approx(1.8)


@pytest.mark.parametrize(("threshold", "expected"), [(1.6, 1.5), (1.4, 1.8)])
def test_held_out_pictures_choose_between_the_two(threshold, expected) -> None:
    """Two outputs W and `threshold` on the picture 1: whether the first one wins decides."""
    clients = []
    for w, a, g in ((1.0, 2.0, 0.3), (3.0, 4.0, 0.1)):
        factor = Kronecker(a=scalar(a - C), g=(g - C) * torch.eye(2, dtype=torch.float64))
        clients.append(
            has(
                [[w], [threshold]],
                1,
                factor,
                holdout__x=torch.full((1, 1, 1, 1), 255).byte(),
                # The first output wins for both or for the descended answer only.
                holdout__y=torch.tensor([0 if expected == 1.8 else 1]).byte(),
            )
        )
    network = only(2, 1)
    got = weights(fuse(clients, network, RNG).model)[0].item()
    # With threshold 1.4 both answers give label 0; equals go to the closed one.
    assert got == pytest.approx(1.5 if threshold == 1.4 else expected, abs=1e-3)


@pytest.mark.parametrize("steps", [1, 7, 500, 10_000])
def test_the_series_is_the_authors_loop(steps) -> None:
    rng = np.random.default_rng(2)
    clients = [
        has(
            rng.standard_normal((3, 5)).tolist(),
            n,
            Kronecker(a=psd(rng, 5, 2) / 2, g=n * psd(rng, 3, 1) / 2),
        )
        for n in (3, 8, 4)
    ]
    system, z = equations(clients, layer(3, 5)[0], locations=1)
    start = torch.from_numpy(rng.standard_normal((3, 5)))
    by = Descent(steps=steps)
    ours, theirs = descend(system, z, start, by), literal(system, z, start, by)
    assert float((theirs - start).norm()) > 0.01
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)


def test_a_descent_that_diverges_is_told() -> None:
    system = KroneckerSum(g=scalar(1.0)[None], a=scalar(1.01)[None], tau=0.0)  # eta F^2 = 2.04
    assert descend(system, scalar(1.0), scalar(0.0)) is None
    assert not literal(system, scalar(1.0), scalar(0.0), Descent(steps=20_000)).isfinite().all()
    near = KroneckerSum(g=scalar(1.0)[None], a=scalar(0.99)[None], tau=0.0)
    assert descend(near, scalar(1.0), scalar(0.0)).item() == pytest.approx(1 / 0.99)


def test_a_bound_that_is_too_large_does_not_make_it_diverge() -> None:
    """Two clients that each act on a direction of their own: the norms add up, F's do not."""
    g = torch.eye(1, dtype=torch.float64).expand(2, 1, 1)
    a = torch.stack([torch.diag(torch.tensor(d, dtype=torch.float64)) for d in ([1, 0], [0, 1])])
    z = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    got = descend(KroneckerSum(g, 1.2 * a, tau=0.0), z, torch.zeros_like(z))
    torch.testing.assert_close(got, z / 1.2)


def test_it_is_f_sosa_damped_where_inputs_are_white() -> None:
    """A_k = a I: F = sum p_k (G_k + c) (x) (a + c), F-SOSA's with tau = c (a + c)."""
    rng = np.random.default_rng(4)
    network, white, clients, theirs = only(3, 4), 0.7, [], []
    for _ in range(3):
        w, g = rng.standard_normal((3, 4)), psd(rng, 3, 2)
        eye = torch.eye(4, dtype=torch.float64)
        clients.append(has(w.tolist(), 6, Kronecker(a=white * eye, g=6 * g)))
        theirs.append(has(w.tolist(), 6, Kronecker(a=(white + C) * eye, g=g / 3)))
    system, z = equations(clients, network.blocks[0], locations=1)
    ours = torch.linalg.solve(system.g.sum(dim=0), z) / (white + C)  # closed, exact here
    trace = sum(float(each.fisher["fc"].g.trace()) * 4 * (white + C) for each in theirs)
    damping = C * (white + C) * 12 / trace
    damped = fsosa.Projection(damping=damping, output_damping=damping, rtol=1e-12)
    fused = weights(fsosa.fuse(theirs, network.blocks, damped).model)
    torch.testing.assert_close(ours, fused, rtol=0, atol=1e-9)


def test_its_limit_is_f_sosas_projection_of_damped_factors() -> None:
    rng = np.random.default_rng(6)
    network = only(2, 3)
    clients = [
        has(rng.standard_normal((2, 3)).tolist(), 1, Kronecker(psd(rng, 3, 3), psd(rng, 2, 2)))
        for _ in range(2)
    ]
    system, z = equations(clients, network.blocks[0], locations=1)
    limit = descend(system, z, torch.zeros_like(z), Descent(steps=10**9, lr=0.01))
    damped = [
        has(each.model["fc.weight"].tolist(), 1, Kronecker(a, g))
        for each, a, g in zip(clients, system.a, system.g, strict=True)
    ]
    plain = fsosa.Projection(damping=0.0, output_damping=0.0, rtol=1e-13)
    fused = weights(fsosa.fuse(damped, network.blocks, plain).model)
    torch.testing.assert_close(limit, fused, rtol=0, atol=1e-8)


def test_a_convolutions_factors_are_scaled_as_the_authors_do() -> None:
    """Padded 3x3 on 6x6 pictures: T = 36; the product A (x) G is KFC's either way."""
    learning = task("with bias")
    contributions = federation(learning, "empirical+holdout")
    network = network_of(learning)
    block = network.blocks[0]
    system, _ = equations(contributions, block, locations=36)
    first = contributions[0].fisher["0"]
    a = first.a.double() / 36**2 + C * torch.eye(10)
    torch.testing.assert_close(system.a[0], a)
    # With a bias the last diagonal entry of A is E[T] = 36 as uploaded, 1 / 36 here.
    assert system.a[0, -1, -1].item() == pytest.approx(1 / 36 + C, rel=1e-6)
    g = 70 / 135 * (first.g.double() / 70 * 36**2 + C * torch.eye(4))
    torch.testing.assert_close(system.g[0], g)
    fused = fuse(contributions, network, RNG).model
    assert matrix(block, fused).shape == (4, 10)
