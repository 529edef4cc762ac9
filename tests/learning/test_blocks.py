"""Blocks: a layer's parameters as one matrix, and back."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from testbed.errors import FusionError
from testbed.learning.blocks import Block, blocks, matrix, parameters

LAYERS = {
    "linear": lambda bias: nn.Linear(5, 3, bias=bias),
    "batch norm": lambda bias: nn.BatchNorm2d(3),
    "group norm": lambda bias: nn.GroupNorm(2, 4),
    "conv": lambda bias: nn.Conv2d(2, 4, (3, 2), bias=bias),
}


def only_block(layer: nn.Module) -> tuple[Block, dict[str, torch.Tensor]]:
    model = nn.Sequential(layer)
    (block,) = blocks(model)
    return block, {name: value.detach() for name, value in model.named_parameters()}


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


def test_blocks_are_layers_with_a_fisher_in_module_order() -> None:
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding="same"),
        nn.BatchNorm2d(4),
        nn.Conv2d(4, 4, 3, groups=2),
        nn.GroupNorm(2, 4),
        nn.BatchNorm2d(4, affine=False),
        nn.LayerNorm(3),
        nn.Sequential(nn.Flatten(), nn.Linear(16, 3, bias=False), nn.BatchNorm1d(3)),
    )
    assert blocks(model) == (
        Block("0", (4, 2, 3, 3), bias=True),
        Block("1", (4,), bias=True, norm=True),
        Block("3", (4,), bias=True, norm=True),
        Block("6.1", (3, 16), bias=False),
        Block("6.2", (3,), bias=True, norm=True),
    )


def test_a_layer_with_a_frozen_parameter_is_no_block() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2), nn.BatchNorm1d(2))
    model[0].weight.requires_grad_(False)
    model[2].requires_grad_(False)
    assert [block.name for block in blocks(model)] == ["1"]


def test_layers_that_share_a_parameter_are_refused() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    with pytest.raises(FusionError, match="'0' and '2' share a parameter"):
        blocks(model)
    assert len(blocks(nn.Sequential(model[0], nn.ReLU(), model[0]))) == 1  # one layer, once


def test_a_normalisation_block_has_the_scales_in_row_0_and_the_shifts_in_row_1() -> None:
    state = {"n.weight": torch.tensor([1.0, 2.0, 3.0]), "n.bias": torch.tensor([4.0, 5.0, 6.0])}
    block = Block("n", (3,), bias=True, norm=True)
    assert (block.rows, block.columns) == (2, 3)
    assert matrix(block, state).tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
