"""Second-order steps: against dense Hessians, by hand, and on real pictures."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from testbed.learning import curvature
from testbed.learning.curvature import BETAS, EPS
from testbed.learning.models import build
from testbed.learning.training import Recipe

RECIPE = Recipe(epochs=1, lr=0.1, batch=4, momentum=0.9)


def start_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def signs(count: int, rng: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(2.0 * rng.integers(2, size=count, dtype=np.int8) - 1).float()


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3, 2))


def data(count: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(1)
    pictures = torch.from_numpy(rng.standard_normal((count, 1, 1, 3)).astype(np.float32))
    return pictures, torch.from_numpy(rng.integers(2, size=count))


def loss_of(model: nn.Module, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    pictures, labels = data()
    return functional.cross_entropy(functional.linear(pictures.flatten(1), weight, bias), labels)


def test_the_product_is_that_of_the_dense_hessian() -> None:
    model = linear()
    weights = list(model.parameters())
    loss = loss_of(model, *weights)
    gradients = torch.autograd.grad(loss, weights, create_graph=True)
    found = curvature.curvature(gradients, weights, np.random.default_rng(3))

    def flat(w: torch.Tensor) -> torch.Tensor:
        return loss_of(model, w[:6].reshape(2, 3), w[6:])

    w = torch.cat([each.detach().reshape(-1) for each in weights])
    dense = torch.autograd.functional.hessian(flat, w)
    expected = (dense @ signs(8, np.random.default_rng(3))).abs()
    torch.testing.assert_close(torch.cat([each.reshape(-1) for each in found]), expected)


def test_kernels_share_their_mean() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(8, 2))
    pictures, labels = torch.randn(3, 1, 4, 4), torch.tensor([0, 1, 1])
    weights = list(model.parameters())
    gradients = torch.autograd.grad(
        functional.cross_entropy(model(pictures), labels), weights, create_graph=True
    )
    kernels, *rest = curvature.curvature(gradients, weights, np.random.default_rng(0))
    assert kernels.shape == (2, 1, 3, 3)
    assert all(float(kernel.std()) < 1e-7 for kernel in kernels.flatten(1))
    assert float(kernels[0, 0, 0, 0]) != float(kernels[1, 0, 0, 0])
    assert float(rest[1].std()) > 0


def test_two_steps_by_hand() -> None:
    """Two batches of the same four pictures, written out with the dense Hessian."""
    model = linear()
    start = start_of(model)
    recipe = replace(RECIPE, epochs=2)
    trained = curvature.train(model, start, *data(), recipe, np.random.default_rng(3))

    rng = np.random.default_rng(3)
    w = torch.cat([start["1.weight"].reshape(-1), start["1.bias"]])
    mean, square = torch.zeros(8), torch.zeros(8)

    def flat(w: torch.Tensor) -> torch.Tensor:
        return loss_of(model, w[:6].reshape(2, 3), w[6:])

    for step in (1, 2):
        rng.permutation(4)
        gradient = torch.autograd.functional.jacobian(flat, w)
        size = (torch.autograd.functional.hessian(flat, w) @ signs(8, rng)).abs()
        mean = BETAS[0] * mean + (1 - BETAS[0]) * gradient
        square = BETAS[1] * square + (1 - BETAS[1]) * size**2
        first, second = mean / (1 - BETAS[0] ** step), square / (1 - BETAS[1] ** step)
        w = w - RECIPE.lr * first / (second.sqrt() + EPS)
    expected = {"1.weight": w[:6].reshape(2, 3), "1.bias": w[6:]}
    for name, value in expected.items():
        torch.testing.assert_close(trained[name], value, rtol=1e-4, atol=1e-5)


def test_training_is_deterministic_and_the_generator_decides() -> None:
    model = build("small-cnn", (1, 8, 8), 10, 0)
    start = start_of(model)
    pictures, labels = torch.rand(10, 1, 8, 8), torch.arange(10)
    runs = [
        curvature.train(model, start, pictures, labels, RECIPE, np.random.default_rng(seed))
        for seed in (5, 5, 6)
    ]
    assert all(torch.equal(runs[0][name], runs[1][name]) for name in start)
    assert any(not torch.equal(runs[0][name], runs[2][name]) for name in start)
    assert all(value.is_contiguous() and not value.requires_grad for value in runs[0].values())


def test_the_start_is_left_alone_and_statistics_are_kept() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 2))
    start = start_of(model)
    before = {name: value.clone() for name, value in start.items()}
    trained = curvature.train(
        model, start, torch.rand(6, 1, 4, 4), torch.arange(6) % 2, RECIPE, np.random.default_rng(0)
    )
    assert all(torch.equal(start[name], before[name]) for name in start)
    assert int(trained["1.num_batches_tracked"]) == 2
    assert not torch.equal(trained["1.running_mean"], start["1.running_mean"])
    assert trained.keys() == start.keys()


def test_frozen_weights_stay() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(3, 4), nn.Linear(4, 2))
    model[1].weight.requires_grad_(False)
    start = start_of(model)
    trained = curvature.train(model, start, *data(), RECIPE, np.random.default_rng(0))
    assert torch.equal(trained["1.weight"], start["1.weight"])
    assert not torch.equal(trained["1.bias"], start["1.bias"])


def test_weights_that_the_loss_ignores_stay() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x.flatten(1))

    model = Half()
    start = start_of(model)
    trained = curvature.train(model, start, *data(), RECIPE, np.random.default_rng(0))
    assert torch.equal(trained["idle.weight"], start["idle.weight"])
    assert not torch.equal(trained["used.weight"], start["used.weight"])


def test_real_pictures_are_learned() -> None:
    """Handwritten digits, 304 steps from the loss of guessing, log 10 = 2.3."""
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    pictures = torch.from_numpy((digits.images[:600, None] / 16).astype(np.float32))
    labels = torch.from_numpy(digits.target[:600].astype(np.int64))
    model = build("small-cnn", (1, 8, 8), 10, 0)
    recipe = Recipe(epochs=8, lr=0.01, batch=16, momentum=0.9)
    rng = np.random.default_rng(0)
    state = curvature.train(model, start_of(model), pictures, labels, recipe, rng)
    model.load_state_dict(state)
    model.eval()
    with torch.no_grad():
        assert float(functional.cross_entropy(model(pictures), labels)) < 0.5


def test_a_step_costs_three_plain_ones() -> None:
    model = build("lenet", (1, 28, 28), 10, 0)
    weights = list(model.parameters())
    pictures, labels = torch.rand(8, 1, 28, 28), torch.arange(8)

    def counted(second: bool) -> int:
        with FlopCounterMode(display=False) as counter:
            loss = functional.cross_entropy(model(pictures), labels)
            gradients = torch.autograd.grad(loss, weights, create_graph=second)
            if second:
                curvature.curvature(gradients, weights, np.random.default_rng(0))
        return int(counter.get_total_flops())

    assert 2.5 < counted(True) / counted(False) < 3.1
