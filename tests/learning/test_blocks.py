"""Blocks: a layer's parameters as one matrix, and back."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from testbed.learning.blocks import Block, blocks, matrix, parameters

LAYERS = {
    "linear": lambda bias: nn.Linear(5, 3, bias=bias),
    "conv": lambda bias: nn.Conv2d(2, 4, (3, 2), bias=bias),
}


def only_block(layer: nn.Module) -> tuple[Block, dict[str, torch.Tensor]]:
    model = nn.Sequential(layer)
    (block,) = blocks(model)
    return block, dict(model.state_dict())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", LAYERS)
def test_matrix_and_parameters_are_inverse(kind: str, bias: bool) -> None:
    block, state = only_block(LAYERS[kind](bias))
    w = matrix(block, state)
    assert w.shape == (block.rows, block.columns)
    again = parameters(block, w)
    assert tuple(again) == block.parameters == tuple(state)
    assert all(torch.equal(again[name], state[name]) for name in state)
    assert all(value.is_contiguous() for value in again.values())


def test_sizes_of_a_block_are_counted_with_the_constant_input() -> None:
    block = Block("conv", (4, 2, 3, 2), bias=True)
    assert (block.rows, block.columns) == (4, 2 * 3 * 2 + 1)
    assert block.parameters == ("conv.weight", "conv.bias")
    bare = Block("fc", (4, 7), bias=False)
    assert (bare.rows, bare.columns, bare.parameters) == (4, 7, ("fc.weight",))


def test_the_bias_is_the_weight_of_a_constant_input_one() -> None:
    layer = nn.Linear(5, 3)
    block, state = only_block(layer)
    x = torch.randn(6, 5)
    rows = torch.cat([x, torch.ones(6, 1)], dim=1)
    torch.testing.assert_close(rows @ matrix(block, state).T, layer(x))


def test_columns_of_a_convolution_are_in_the_order_of_unfold() -> None:
    layer = nn.Conv2d(2, 4, 3, stride=2, padding=1)
    block, state = only_block(layer)
    x = torch.randn(2, 2, 6, 7)
    rows = functional.unfold(x, 3, stride=2, padding=1).transpose(1, 2)
    rows = torch.cat([rows, torch.ones(*rows.shape[:2], 1)], dim=2)
    out = (rows @ matrix(block, state).T).transpose(1, 2)
    torch.testing.assert_close(out, layer(x).flatten(2))


def test_blocks_are_linear_and_ungrouped_convolutions_in_module_order() -> None:
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.BatchNorm2d(4),
        nn.Conv2d(4, 4, 3, groups=2),
        nn.Sequential(nn.Flatten(), nn.Linear(16, 3, bias=False)),
    )
    assert blocks(model) == (
        Block("0", (4, 2, 3, 3), bias=True),
        Block("3.1", (3, 16), bias=False),
    )
