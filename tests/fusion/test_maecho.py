"""MA-Echo."""

from dataclasses import replace

import pytest
import torch
from federated import RNG, has, only, plain, weights
from torch import nn

from testbed.errors import FusionError
from testbed.fusion.maecho import CONVOLUTIONAL, LINEAR, Iteration, constants, flops, fuse, meet
from testbed.fusion.network import Network
from testbed.learning.blocks import blocks

ONCE = Iteration(iterations=1, step=1.0, normalise=False)


def pair() -> tuple[torch.Tensor, torch.Tensor]:
    local = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]], dtype=torch.float64)
    projectors = torch.tensor([[[0.0, 0], [0, 1]], [[1, 0], [0, 0]]], dtype=torch.float64)
    return local, projectors


def test_two_clients_by_hand() -> None:
    """W_1 = (1, 0) has free direction (0, 1), W_2 = (0, 1) has (1, 0); W = (.5, .5).

    W moves by 1/2 ((-.5, .5) diag(-1, 0) + (.5, -.5) diag(0, -1)) = (.25, .25).  Then W_1
    moves by (-.25, .75) diag(0, 1) = (0, .75), W_2 by (.75, 0): (1, .75) and (.75, 1).
    """
    assert meet(*pair(), ONCE)[0].tolist() == [0.875, 0.875]


def test_they_meet_where_both_keep_what_they_know() -> None:
    assert meet(*pair(), LINEAR)[0].tolist() == pytest.approx([1.0, 1.0])


def test_a_normalised_move_has_length_lambda() -> None:
    """The moves of two clients by hand, (0, .75) and (.75, 0), become (0, 1) and (1, 0)."""
    assert meet(*pair(), replace(ONCE, normalise=True))[0].tolist() == [1.0, 1.0]
    local, projectors = pair()
    # A client that is where W is does not move, whatever its length.
    same = local[:1].expand(2, 1, 2)
    assert meet(same, projectors, replace(ONCE, normalise=True))[0].tolist() == [1.0, 0.0]


def test_the_last_layer_is_shared_by_owners() -> None:
    """Class 0: both own it.  1: only the second.  2: a single sample is too few, so all."""
    clients = [
        has([[1.0], [1.0], [1.0]], classes=torch.tensor([5, 1, 1])),
        has([[3.0], [5.0], [9.0]], classes=torch.tensor([2, 4, 0])),
    ]
    assert weights(fuse(clients, only(3, 1), RNG).model).flatten().tolist() == [2.0, 5.0, 5.0]


def test_networks_get_the_constants_published_for_their_kind() -> None:
    model = plain(bias=False)
    convolutional = Network(model, blocks(model), (1, 6, 6), 3)
    assert constants(convolutional) == CONVOLUTIONAL
    assert constants(only(3, 1)) == LINEAR
    assert (CONVOLUTIONAL.iterations, CONVOLUTIONAL.step) == (300, 0.05)
    assert (LINEAR.iterations, LINEAR.step) == (60, 1.6)
    # conv 4x9 and linear 8x36 move, the last layer does not.
    assert flops(convolutional, 2) == 300 * 2 * 4 * (4 * 9**2 + 8 * 36**2)


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Conv2d(1, 3, 6), nn.Flatten()),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 4)),
    ],
    ids=["convolution", "four outputs for three classes"],
)
def test_a_last_layer_without_a_row_per_class_is_refused(model) -> None:
    state = {name: value.clone() for name, value in model.state_dict().items()}
    client = replace(has([[0.0]]), model=state)
    with pytest.raises(FusionError, match="no linear layer with 3 outputs; use") as caught:
        fuse([client], Network(model, blocks(model), (1, 6, 6), 3), RNG)
    assert "\n" not in str(caught.value)
