"""Which layer reads whose units."""

import pytest
import torch
from chains import Residual, tiny
from torch import nn
from torch.nn import functional

from testbed.errors import FusionError
from testbed.fusion.chain import mapped, walk
from testbed.learning.blocks import Block, blocks
from testbed.learning.models import MODELS, build
from testbed.learning.pooling import MaxPool2x2


class Function(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


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


@pytest.mark.parametrize("name", sorted(MODELS))
def test_networks_of_the_testbed(name: str) -> None:
    """All but the one with GroupNorm can be followed, from the picture to the answer."""
    model = build(name, (1, 32, 32), 10, 0, width=20)
    if name == "resnet18":
        with pytest.raises(FusionError, match="'norm' normalises neighbouring channels"):
            walk(model)
        return
    layers = walk(model)
    assert [layer.block for layer in layers if not layer.sources] == [blocks(model)[0]]
    assert sorted(layer.block.name for layer in layers) == sorted(b.name for b in blocks(model))
    assert layers[-1].block.rows == 10


@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool2d(2),
        MaxPool2x2(),
        nn.AdaptiveAvgPool2d(1),
        Function(lambda x: functional.max_pool2d(x, 2)),
        Function(lambda x: functional.adaptive_avg_pool2d(functional.avg_pool2d(x, 2), 1)),
    ],
    ids=["module", "fast", "adaptive", "function", "functions"],
)
def test_pooling_keeps_units(pool: nn.Module) -> None:
    model = nn.Sequential(nn.Conv2d(1, 3, 3), pool, nn.Flatten(), nn.Linear(3, 2))
    assert followed(model) == [("0", ()), ("3", (0,))]


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
