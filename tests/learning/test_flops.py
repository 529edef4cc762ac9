"""FLOPs against counts made by hand for LeNet on 1x28x28 and 10 classes."""

import pytest

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
        passes: sum(2 * t * (i * i + passes * o * o) for t, i, o in LAYERS) for passes in (1, 10)
    }
    assert factors[10] == 1_134_720 + 3_207_680 + 419_072 + 169_920 + 16_112
    for estimator, passes in (("exact", 10), ("sampled", 1), ("empirical", 1)):
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
