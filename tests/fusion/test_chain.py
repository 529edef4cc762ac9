"""Which layer reads whose units."""

import pytest
import torch
from chains import Residual, tiny
from torch import nn
from torch.nn import functional

from testbed.errors import FusionError
from testbed.fusion.chain import mapped, walk
from testbed.learning.blocks import Block
from testbed.learning.models import build


def followed(model: nn.Module) -> list[tuple[str, tuple[int, ...]]]:
    return [(layer.block.name, layer.sources) for layer in walk(model)]


def test_a_sequence_is_a_chain() -> None:
    assert followed(tiny()) == [("0", ()), ("3", (0,)), ("6", (1,)), ("8", (2,))]
    assert [name for name, _ in followed(build("lenet", (1, 28, 28), 10, 0))] == [
        "0",
        "3",
        "7",
        "9",
        "11",
    ]


def test_skip_paths_have_several_sources() -> None:
    assert followed(Residual(nn.BatchNorm2d)) == [
        ("stem", ()),
        ("same", (0,)),
        ("norm", (1,)),
        ("wide", (0, 2)),
        ("short", (0, 2)),
        ("answer", (3, 4)),
    ]


def test_columns_follow_their_units_and_the_bias_stays() -> None:
    w = torch.tensor([[1.0, 2, 3, 4, 5, 6, 9]])  # three units of two columns, and a bias
    block = Block("fc", (1, 6), bias=True)
    cycle = torch.tensor([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]])  # unit 0 becomes 1, 1 becomes 2
    assert mapped(w, block, cycle).tolist() == [[5, 6, 1, 2, 3, 4, 9]]
    half = torch.tensor([[0.5], [0.5], [0.0]])  # two units become one
    assert mapped(w, block, half).tolist() == [[2, 3, 9]]
    assert mapped(w, block, None) is w


class Strange(nn.Module):
    def __init__(self, forward) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.way = forward

    def forward(self, x):
        return self.way(self.fc, x)


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.Softmax(dim=1)), "'_1' mixes them"),
        (nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4)), "'1' normalises neighbouring"),
        (nn.Sequential(nn.Conv2d(4, 4, 3, groups=2)), "mixes them"),
        (Strange(lambda fc, x: fc(x) + x), "'add' mixes them"),
        (Strange(lambda fc, x: torch.cat([fc(x), fc(x)])), "mixes them"),
        (Strange(lambda fc, x: fc(fc(x))), "'fc_1' mixes them"),
        (Strange(lambda fc, x: functional.linear(x, fc.weight)), "mixes them"),
        (Strange(lambda fc, x: fc(x) if x.sum() > 0 else x), "tracing the network failed"),
        (Strange(lambda fc, x: functional.relu(x)), "parameter 'fc.bias' belongs to no layer"),
    ],
)
def test_what_cannot_be_followed_is_refused_in_one_line(model, problem) -> None:
    with pytest.raises(FusionError, match=problem) as caught:
        walk(model)
    assert "\n" not in str(caught.value)
    assert "; use a network" in str(caught.value)
