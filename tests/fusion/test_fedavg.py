"""One-shot FedAvg."""

import pytest
import torch
from federated import RNG, has, only, weights

from testbed.fusion.averaging import plain_mean
from testbed.fusion.fedavg import flops, fuse


def test_two_clients_by_hand() -> None:
    """n 1 and 3: p 1/4 and 3/4, so 1/4 (1, 2) + 3/4 (5, 6) = (4, 5)."""
    clients = [has([[1.0, 2.0]], samples=1), has([[5.0, 6.0]], samples=3)]
    assert weights(fuse(clients, only(1, 2), RNG).model).tolist() == [[4.0, 5.0]]
    assert weights(plain_mean(clients)).tolist() == [[3.0, 4.0]]


def test_types_stay() -> None:
    clients = [has([[1.0]]), has([[2.0]])]
    for each in clients:
        each.model["fc.weight"] = each.model["fc.weight"].float()
    fused = weights(fuse(clients, only(1, 1), RNG).model)
    assert fused.dtype == weights(plain_mean(clients)).dtype == torch.float32
    assert fused.item() == pytest.approx(1.5)


def test_flops_are_a_multiply_add_a_number() -> None:
    assert flops(only(3, 5), 4) == 2 * 15 * 4
