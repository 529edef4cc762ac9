"""FedFisher's server optimiser."""

from math import sqrt

import pytest
import torch
from federated import has, layer, task, weights

from testbed.fusion.averaging import weighted_mean
from testbed.fusion.fedfisher import Optimiser, descend, diagonal_flops, flops
from testbed.fusion.rules import RULES, network_of
from testbed.learning.factors import Diagonal, Kronecker


def scalar(*values: float) -> torch.Tensor:
    return torch.tensor([list(values)], dtype=torch.float64)


def diagonal(w: float, f: float, samples: int = 1):
    return has([[w]], samples, Diagonal(scalar(f)))


def kfac(w: float, a: float, g: float, samples: int = 1):
    return has([[w]], samples, Kronecker(a=scalar(a), g=scalar(g)))


def run(clients, steps: int, every: int = 1, validate=None):
    seen = []

    def last(model) -> float:
        seen.append(float(weights(model)))
        return float(len(seen))

    start = weighted_mean(clients)
    by = Optimiser(steps=steps, every=every)
    return descend(clients, layer(1, 1), start, validate or last, by), seen


def test_two_clients_by_hand_diagonal() -> None:
    """W_0 = 2, v = (6 (2 - 0) + 2 (2 - 4)) / 2 = 4, m = 4, s = 16: a step of .04 / 4.01.

    Then v' = (8 W_1 - 8) / 2, m' = .9 * 4 + v', s' = .99 * 16 + v'^2.
    """
    _, seen = run([diagonal(0.0, 6.0), diagonal(4.0, 2.0)], steps=2)
    first = 2 - 0.01 * 4 / (4 + 0.01)
    v = (8 * first - 8) / 2
    second = first - 0.01 * (0.9 * 4 + v) / (sqrt(0.99 * 16 + v * v) + 0.01)
    assert seen == pytest.approx([2.0, first, second])


def test_two_clients_by_hand_kfac() -> None:
    """The same F = 3 * 2 and 1 * 2, but eps stands under the root."""
    _, seen = run([kfac(0.0, 3.0, 2.0), kfac(4.0, 1.0, 2.0)], steps=1)
    assert seen == pytest.approx([2.0, 2 - 0.01 * 4 / sqrt(16 + 0.01)])


def test_clients_count_by_their_data() -> None:
    """Fisher sums over 1 and 3 samples: the start is 3, v = (1 * 3 + 3 * (-1)) / 4 = 0."""
    best, seen = run([diagonal(0.0, 1.0, 1), diagonal(4.0, 3.0, 3)], steps=3)
    assert seen == pytest.approx([3.0] * 4)
    assert best.step == 3  # the latest of rising values


def test_it_descends_to_where_f_sosa_projects() -> None:
    best, _ = run([kfac(0.0, 3.0, 2.0), kfac(4.0, 1.0, 2.0)], steps=2000, every=100)
    assert weights(best.model).item() == pytest.approx(1.0, abs=0.02)  # 8 / 8


def test_the_best_iterate_is_returned_and_the_start_may_be_it() -> None:
    clients = [diagonal(0.0, 6.0), diagonal(4.0, 2.0)]
    best, _ = run(clients, 400, 1, validate=lambda model: -abs(float(weights(model)) - 1.6))
    assert weights(best.model).item() == pytest.approx(1.6, abs=0.02)
    assert best.value == -abs(weights(best.model).item() - 1.6)
    assert 0 < best.step < 400
    kept, _ = run(clients, 400, 100, validate=lambda model: float(weights(model)))
    assert (kept.step, weights(kept.model).item()) == (0, 2.0)


def test_both_kinds_are_rules_and_kfac_costs_more() -> None:
    assert RULES["fedfisher"].statistic == "kfac+holdout"
    assert RULES["fedfisher-diagonal"].statistic == "diagonal+holdout"
    network = network_of(task("with bias"))
    assert flops(network, 3) > 2 * diagonal_flops(network, 3)
    assert flops(network, 4) > flops(network, 3)
