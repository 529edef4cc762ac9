"""The statistics of RegMean, MA-Echo and PFNM: Gram matrices, projectors, class counts."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from nets import NETS, seeded
from torch import nn

from testbed.data.dataset import Dataset
from testbed.learning.classification import Classification
from testbed.learning.gram import gram, gram_flops
from testbed.learning.projector import PUBLISHED, projector, projector_flops, shrink
from testbed.learning.statistics import contribute, extra_like, statistic_flops
from testbed.learning.task import Task
from testbed.learning.training import Recipe
from testbed.streams import Streams


def task(model: nn.Module, shape, classes: int = 4, sizes=(90, 30)) -> Task:
    rng = np.random.default_rng(0)
    x = rng.random((sum(sizes), *shape), dtype=np.float32)
    y = rng.integers(0, classes - 1, sum(sizes))  # nobody has the last class
    _, state = seeded(model)
    return Classification(
        dataset=Dataset("noise", x, y, x[:1], y[:1], tuple(map(str, range(classes))), ""),
        parts=[np.arange(sizes[0]), np.arange(sizes[0], sum(sizes))],
        model=model,
        initial=state,
        recipe=Recipe(epochs=1, lr=0.1, batch=8, momentum=0.0),
        kind="kfac",
        estimator="exact",
        streams=Streams(0),
    )


def mlp() -> nn.Sequential:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(6, 5), nn.ReLU(inplace=True), nn.Linear(5, 4, bias=False)
    )


def test_gram_is_the_second_moment_of_a_layers_inputs() -> None:
    learning = task(mlp(), (1, 2, 3))
    got = gram(learning, 1, learning.initial)
    x = torch.from_numpy(learning.dataset.x_train[90:]).flatten(1)
    ones = torch.cat([x, torch.ones(30, 1)], dim=1)
    hidden = ones @ torch.cat([learning.initial["1.weight"].T, learning.initial["1.bias"][None]])
    hidden = hidden.clamp_min(0)
    assert list(got) == ["gram/1", "gram/3"]
    torch.testing.assert_close(got["gram/1"], ones.T @ ones / 30)
    torch.testing.assert_close(got["gram/3"], hidden.T @ hidden / 30)
    assert torch.equal(got["gram/1"], got["gram/1"].T)


def test_gram_counts_every_row_of_a_sample() -> None:
    make, shape, classes = NETS["rows"]
    learning = task(make(), shape, classes)
    got = gram(learning, 0, learning.initial)
    rows = torch.from_numpy(learning.dataset.x_train[:90]).reshape(-1, 5)
    torch.testing.assert_close(got["gram/rows"][:5, :5], rows.T @ rows / 900)
    assert got["gram/rows"][5, 5].item() == pytest.approx(1.0)


def test_a_step_of_the_projector_by_hand() -> None:
    """x = (1, 0), alpha = 1: k = x, and P loses C / (1 + 1) = 1/4 in that direction."""
    p = torch.eye(2, dtype=torch.float64)
    shrink(p, torch.tensor([1.0, 0.0], dtype=torch.float64), alpha=1.0)
    assert p.tolist() == [[0.75, 0.0], [0.0, 1.0]]
    # Again: k = (.75, 0), x k = .75: .75 - .5 * .5625 / 1.75.
    shrink(p, torch.tensor([1.0, 0.0], dtype=torch.float64), alpha=1.0)
    assert p[0, 0].item() == pytest.approx(0.75 - 0.5 * 0.5625 / 1.75)
    assert PUBLISHED.alpha_linear == pytest.approx(0.025118864)
    assert PUBLISHED.alpha_convolution == pytest.approx(1e-4)


def test_projectors_keep_what_inputs_do_not_touch() -> None:
    """Pictures whose last column is black: the direction stays free, others shrink."""
    learning = task(mlp(), (1, 2, 3))
    learning.dataset.x_train[..., 2] = 0.0
    p = projector(learning, 0, learning.initial)["projector/1"]
    assert p.shape == (7, 7)  # with the constant input of the bias
    black = torch.zeros(7)
    black[2] = 1.0
    torch.testing.assert_close(p @ black, black)
    mean = torch.cat(
        [torch.from_numpy(learning.dataset.x_train[:90]).mean(0).flatten(), torch.ones(1)]
    )
    assert float((p @ mean).norm() / mean.norm()) < 0.4  # halved by either of two batches
    values = torch.linalg.eigvalsh(p)
    assert values.min() > -1e-6
    assert values.max() < 1 + 1e-6


def test_a_convolution_takes_patches_at_every_second_location() -> None:
    """One batch of 5x5 pictures, kernel 3: patches at (0, 0), (0, 2), (2, 0), (2, 2)."""
    model = nn.Sequential(nn.Conv2d(2, 3, 3, bias=False), nn.Flatten(), nn.Linear(27, 4))
    learning = task(model, (2, 5, 5), sizes=(40, 30))
    got = projector(learning, 0, learning.initial)["projector/0"]
    mean = torch.from_numpy(learning.dataset.x_train[:40]).mean(0).double()
    p = torch.eye(18, dtype=torch.float64)
    for down in (0, 2):
        for along in (0, 2):
            x = mean[:, down : down + 3, along : along + 3].flatten()
            k = p @ x
            p = p - 0.5 * torch.outer(k, k) / (1e-4 + x @ k)
    torch.testing.assert_close(got.double(), p, rtol=0, atol=1e-6)


def test_class_counts() -> None:
    learning = task(mlp(), (1, 2, 3))
    got = contribute(learning, 1, learning.initial, "projector+classes").extra["classes"]
    assert got.tolist() == np.bincount(learning.dataset.y_train[90:], minlength=4).tolist()
    assert (got.dtype, got[3].item()) == (torch.int64, 0)
    assert extra_like(learning, 1, "classes")["classes"].shape == (4,)


@pytest.mark.parametrize("net", list(NETS))
@pytest.mark.parametrize("statistic", ["gram", "projector"])
def test_any_network_has_them_and_they_are_pure(net, statistic) -> None:
    make, shape, classes = NETS[net]
    learning = task(make(), shape, classes)
    first = contribute(learning, 0, learning.initial, statistic)
    contribute(learning, 1, learning.initial, statistic)
    learning.model.train()
    again = contribute(learning, 0, learning.initial, statistic)
    assert first.finite()
    shapes = {name: value.shape for name, value in extra_like(learning, 0, statistic).items()}
    assert {name: value.shape for name, value in first.extra.items()} == shapes
    for name, value in first.extra.items():
        assert torch.equal(value, again.extra[name])
        assert bool(value.any())
    other = replace(learning, streams=Streams(1))
    moved = contribute(other, 0, learning.initial, statistic).extra
    same = all(torch.equal(value, moved[name]) for name, value in first.extra.items())
    assert same == (statistic == "gram")  # the projector's batches are drawn


def test_flops_by_hand() -> None:
    """MLP 6 -> 5 -> 4: forward 2 (30 + 20); Gram 2 (7^2 + 5^2); a step 4 (7^2 + 5^2) / 64."""
    learning = task(mlp(), (1, 2, 3))
    assert gram_flops(learning) == 100 + 2 * (49 + 25)
    assert projector_flops(learning) == 100 + 4 * (49 + 25) // 64
    assert statistic_flops(learning, "gram+holdout") == gram_flops(learning)
