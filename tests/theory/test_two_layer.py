"""The analysis's network against autograd, and its projection against the fusion of every run."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from testbed.fusion.fsosa import Projection, fuse
from testbed.learning.blocks import Block
from testbed.learning.contribution import Contribution
from testbed.learning.factors import Kronecker
from testbed.verification.two_layer import TwoLayer, limit_gram

WIDTH, INPUTS, COUNTS = 12, 5, (3, 4, 2)
PLAIN = Projection(damping=0.0, output_damping=0.0, rtol=1e-12)


def inputs(count: int, rng: np.random.Generator) -> Tensor:
    x = torch.from_numpy(rng.standard_normal((count, INPUTS)))
    return x / x.norm(dim=1, keepdim=True)


@pytest.fixture
def network() -> TwoLayer:
    return TwoLayer.drawn(WIDTH, INPUTS, np.random.default_rng(0))


@pytest.fixture
def clients(network: TwoLayer) -> tuple[list[Tensor], list[Tensor]]:
    """Weights and inputs of three clients."""
    rng = np.random.default_rng(1)
    xs = [inputs(count, rng) for count in COUNTS]
    ys = [torch.from_numpy(rng.standard_normal(count)) for count in COUNTS]
    return [next(network.train(x, y, (50,))) for x, y in zip(xs, ys, strict=True)], xs


def jacobian(network: TwoLayer, w: Tensor, x: Tensor) -> Tensor:
    """One row of gradients per sample, by autograd."""
    rows = []
    for sample in x:
        w = w.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(network(w, sample.unsqueeze(0))[0], w)
        rows.append(gradient.flatten())
    return torch.stack(rows)


def test_it_is_the_network_of_the_analysis(network: TwoLayer) -> None:
    by_hand = TwoLayer(torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([0.5, -0.5]))
    x = torch.tensor([[0.6, 0.8], [-1.0, 0.0]])
    # 0.5 * 0.6 - 0.5 * 1.6, and nothing where no unit is active.
    assert torch.allclose(by_hand(by_hand.start, x), torch.tensor([-0.5, 0.0]))
    assert by_hand.loss(by_hand.start, x, torch.tensor([0.5, 1.0])) == pytest.approx(1.0)
    assert torch.allclose(network.output.square(), torch.full((WIDTH,), 1 / WIDTH).double())
    assert network.start.shape == (WIDTH, INPUTS)


def test_slopes_give_the_gradients(
    network: TwoLayer, clients: tuple[list[Tensor], list[Tensor]]
) -> None:
    for w, x in zip(*clients, strict=True):
        outer = network.slopes(w, x).unsqueeze(2) * x.unsqueeze(1)
        assert torch.allclose(outer.flatten(1), jacobian(network, w, x))


def test_training_is_gradient_descent(network: TwoLayer) -> None:
    rng = np.random.default_rng(2)
    x, y = inputs(6, rng), torch.from_numpy(rng.standard_normal(6))
    rate = 1.0 / float(torch.linalg.eigvalsh(x @ x.T)[-1])
    w, wanted = network.start.clone(), []
    for step in range(1, 8):
        errors = network(w, x) - y
        w = w - rate * (errors @ jacobian(network, w, x)).view_as(w)
        if step in (3, 7):
            wanted.append(w)
    for found, by_hand in zip(network.train(x, y, (3, 7)), wanted, strict=True):
        assert torch.allclose(found, by_hand)


def test_training_lowers_the_loss(network: TwoLayer) -> None:
    rng = np.random.default_rng(3)
    x, y = inputs(6, rng), torch.from_numpy(rng.standard_normal(6))
    losses = [network.loss(w, x, y) for w in network.train(x, y, (0, 1, 10, 100, 1000))]
    assert losses[0] == network.loss(network.start, x, y)
    assert all(after < before for before, after in pairwise(losses))


def test_factors_are_those_of_the_gradients(
    network: TwoLayer, clients: tuple[list[Tensor], list[Tensor]]
) -> None:
    for w, x in zip(*clients, strict=True):
        rows = jacobian(network, w, x)
        diagonal = network.diagonal(w, x).f
        assert torch.allclose(diagonal.flatten(), rows.square().sum(dim=0))
        kfac, slopes = network.kfac(w, x), network.slopes(w, x)
        pairs = torch.stack([torch.outer(s, a).flatten() for s in slopes for a in x])
        assert torch.allclose(torch.kron(kfac.g, kfac.a), pairs.T @ pairs / len(x))


def test_the_full_projection_is_that_of_the_fusion(
    network: TwoLayer, clients: tuple[list[Tensor], list[Tensor]]
) -> None:
    """A layer of one row, whose A is the full Fisher of all weights."""
    ws, xs = clients
    whole = Block("hidden", (1, WIDTH * INPUTS), bias=False)
    sent = []
    for w, x in zip(ws, xs, strict=True):
        rows = jacobian(network, w, x)
        factor = Kronecker(a=rows.T @ rows, g=torch.ones(1, 1, dtype=torch.float64))
        sent.append(Contribution(len(x), {"hidden.weight": w.reshape(1, -1)}, {"hidden": factor}))
    fused = fuse(sent, [whole], PLAIN).model["hidden.weight"].view(WIDTH, INPUTS)
    found = network.project(ws, xs, "full")
    assert (found - fused).norm() < 1e-10 * (found - torch.stack(ws).mean(dim=0)).norm()


def test_the_kfac_projection_is_that_of_the_fusion(
    network: TwoLayer, clients: tuple[list[Tensor], list[Tensor]]
) -> None:
    ws, xs = clients
    layer = Block("hidden", (WIDTH, INPUTS), bias=False)
    sent = [
        Contribution(len(x), {"hidden.weight": w}, {"hidden": network.kfac(w, x)})
        for w, x in zip(ws, xs, strict=True)
    ]
    fused = fuse(sent, [layer], PLAIN).model["hidden.weight"]
    found = network.project(ws, xs, "kfac")
    assert (found - fused).norm() < 1e-9 * (found - torch.stack(ws).mean(dim=0)).norm()


def test_the_projection_meets_the_constraint_and_is_the_closest_that_does(
    network: TwoLayer, clients: tuple[list[Tensor], list[Tensor]]
) -> None:
    ws, xs = clients
    rows = [jacobian(network, w, x) for w, x in zip(ws, xs, strict=True)]
    f = sum((each.T @ each for each in rows), torch.zeros(WIDTH * INPUTS, WIDTH * INPUTS))
    b = sum(
        (each.T @ each @ w.flatten() for each, w in zip(rows, ws, strict=True)),
        torch.zeros(WIDTH * INPUTS),
    )
    found = network.project(ws, xs, "full").flatten()
    assert torch.allclose(f @ found, b, atol=1e-9)
    # What F says nothing about stays at the mean.
    apart = found - torch.stack(ws).mean(dim=0).flatten()
    values, vectors = torch.linalg.eigh(f)
    null = vectors[:, values < 1e-9 * values[-1]]
    assert null.shape[1] == WIDTH * INPUTS - sum(COUNTS)
    assert float((null.T @ apart).abs().max()) < 1e-10


@pytest.mark.parametrize("fisher", ["full", "kfac"])
def test_of_one_client_the_projection_is_its_model(
    network: TwoLayer, clients: tuple[list[Tensor], list[Tensor]], fisher: str
) -> None:
    ws, xs = clients
    assert torch.allclose(network.project(ws[:1], xs[:1], fisher), ws[0])


def test_the_limit_gram_is_known_by_hand_and_reached_by_wide_networks() -> None:
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5**0.5, 0.5**0.5]], dtype=torch.float64)
    gram = limit_gram(x)
    # Equal inputs are active together half of the time; at 45 degrees three times in eight.
    assert torch.allclose(gram.diagonal(), torch.full((3,), 0.5).double())
    assert float(gram[0, 1]) == pytest.approx(0.0, abs=1e-15)
    assert float(gram[0, 2]) == pytest.approx(0.5**0.5 * 3 / 8)
    wide = TwoLayer.drawn(40_000, 2, np.random.default_rng(4))
    slopes = wide.slopes(wide.start, x)
    assert torch.allclose((slopes @ slopes.T) * (x @ x.T), gram, atol=0.01)
