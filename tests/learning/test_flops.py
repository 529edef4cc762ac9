"""FLOPs against counts made by hand for LeNet on 1x28x28 and 10 classes."""

import pytest
from torch import nn

from testbed.learning.flops import fisher_flops, forward_flops, solve_flops, training_flops
from testbed.learning.models import build

SHAPE = (1, 28, 28)
# Per layer: (T locations, i inputs, o outputs); a multiply-add counts as two.
LAYERS = [(24 * 24, 25, 6), (8 * 8, 150, 16), (1, 256, 120), (1, 120, 84), (1, 84, 10)]
FORWARD = 172_800 + 307_200 + 61_440 + 20_160 + 1_680


@pytest.fixture(scope="module")
def lenet():
    return build("lenet", SHAPE, 10, seed=0)


def test_forward(lenet) -> None:
    assert FORWARD == sum(2 * t * i * o for t, i, o in LAYERS) == 563_280
    assert forward_flops(lenet, SHAPE) == FORWARD


def test_training_costs_three_forward_passes_a_sample_and_epoch(lenet) -> None:
    assert training_flops(lenet, SHAPE, samples=70, epochs=30) == 3 * FORWARD * 70 * 30


def test_fisher_passes_and_factors(lenet) -> None:
    factors = {
        passes: sum(2 * t * (i * i + passes * o * o) for t, i, o in LAYERS) for passes in (1, 9)
    }
    assert factors[9] == 1_093_248 + 3_174_912 + 390_272 + 155_808 + 15_912
    for estimator, passes in (("exact", 9), ("sampled", 1), ("empirical", 1)):
        assert fisher_flops(lenet, SHAPE, 7, 10, "kfac", estimator) == 7 * (
            (1 + passes) * FORWARD + factors[passes]
        )
        assert fisher_flops(lenet, SHAPE, 7, 10, "diagonal", estimator) == 7 * (
            (1 + passes) * FORWARD + passes * FORWARD
        )


def test_solve(lenet) -> None:
    product = sum(2 * (o * o * i + o * i * i) for _, i, o in LAYERS)
    assert solve_flops(lenet, 25, "kfac", iterations=50) == 50 * 25 * product
    assert solve_flops(lenet, 25, "diagonal", iterations=50) == 25 * 2 * 44_190


def test_counting_leaves_no_hooks_behind(lenet) -> None:
    fisher_flops(lenet, SHAPE, 7, 10, "kfac", "exact")
    assert not any(module._forward_hooks for module in lenet.modules())


def test_normalisation_is_diagonal_whatever_the_kind() -> None:
    """Two rows (scale, shift) of 3 channels at T = 4 x 4 places, and a 48 -> 5 layer."""
    net = nn.Sequential(nn.GroupNorm(3, 3), nn.Flatten(), nn.Linear(48, 5, bias=False)).train()
    forward, norm = 2 * 48 * 5, 2 * 16 * 2 * 3
    kfac = 2 * forward + norm + 2 * (48 * 48 + 5 * 5)
    assert fisher_flops(net, (3, 4, 4), 7, 5, "kfac", "sampled") == 7 * kfac
    diagonal = 2 * forward + norm + forward
    assert fisher_flops(net, (3, 4, 4), 7, 5, "diagonal", "sampled") == 7 * diagonal
    assert solve_flops(net, 4, "kfac", 6) == 4 * (6 * 2 * (25 * 48 + 5 * 48 * 48) + 2 * 6)


def test_a_linear_layer_may_have_several_rows_a_picture() -> None:
    """A picture of 3 x 4 x 4 is 12 rows of 4 for the first layer: T = 12."""
    net = nn.Sequential(nn.Linear(4, 2, bias=False), nn.Flatten(), nn.Linear(24, 5, bias=False))
    per_sample = 2 * (2 * 12 * 4 * 2 + 2 * 24 * 5) + 2 * 12 * (16 + 4) + 2 * (24 * 24 + 25)
    assert fisher_flops(net, (3, 4, 4), 1, 5, "kfac", "empirical") == per_sample


def test_counting_leaves_running_statistics_alone() -> None:
    net = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, 5)).train()
    training_flops(net, (3, 4, 4), 1, 1)
    fisher_flops(net, (3, 4, 4), 1, 5, "kfac", "exact")
    assert net[0].num_batches_tracked == 0
