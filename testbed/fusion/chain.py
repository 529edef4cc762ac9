"""Which layer reads whose units, for methods that put neurons into another order.

A unit is a channel of a convolution or an output of a linear layer.  The network is traced
symbolically and followed from the picture on: activations, pooling and flattening keep the
units in order, a sum adds those of several layers (a residual network's skip path).  Columns
of a weight matrix stand unit after unit, k k to a unit in a convolution, and as many as a
channel has pixels in the first linear layer after one.
"""

import operator
from dataclasses import dataclass

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from testbed.errors import FusionError
from testbed.learning.blocks import Block, blocks

_PLAIN = (
    nn.ReLU,
    nn.LeakyReLU,
    nn.GELU,
    nn.SiLU,
    nn.Tanh,
    nn.Sigmoid,
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
    nn.Dropout,
    nn.Flatten,
    nn.Identity,
)
_PLAIN_CALLS = frozenset(
    {
        torch.flatten,
        torch.relu,
        functional.relu,
        functional.max_pool2d,
        functional.avg_pool2d,
        functional.adaptive_avg_pool2d,
        "flatten",
        "mean",
        "relu",
        "reshape",
        "size",
        "view",
    }
)
_SUMS = frozenset({operator.add, operator.iadd, torch.add, "add", "add_"})


@dataclass(frozen=True)
class Layer:
    """A layer and what it reads.

    Attributes
    ----------
    block : Block
    sources : tuple of int
        Positions, in the walk, of the layers whose outputs it reads, summed; none: the picture.
    """

    block: Block
    sources: tuple[int, ...]


class _Tracer(fx.Tracer):
    """Looks into no module that is known to keep units in order."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, _PLAIN) or super().is_leaf_module(m, module_qualified_name)


def walk(model: nn.Module) -> tuple[Layer, ...]:
    """Return the layers of a network in the order in which they work; the last one answers.

    Raises
    ------
    FusionError
        If units cannot be followed through the network.
    """
    try:
        graph = _Tracer().trace(model)
    except Exception as error:  # symbolic tracing fails in as many ways as there are networks
        raise FusionError(
            f"neurons cannot be aligned: tracing the network failed: {error}; use a network "
            "whose forward pass does not depend on values"
        ) from error
    known = {block.name: block for block in blocks(model)}
    layers: list[Layer] = []
    units: dict[fx.Node, tuple[int, ...]] = {}
    for node in graph.nodes:
        inputs = [units[each] for each in node.all_input_nodes]
        if node.op == "placeholder":
            units[node] = ()
        elif node.op == "call_module" and (block := known.pop(str(node.target), None)):
            _followable(model, block)
            units[node] = (len(layers),)
            layers.append(Layer(block, inputs[0]))
        elif node.op == "output" or _keeps_order(model, node):
            units[node] = inputs[0]
        elif node.op.startswith("call_") and node.target in _SUMS and all(inputs):
            units[node] = tuple(sorted({each for one in inputs for each in one}))
        else:
            raise FusionError(
                f"neurons cannot be aligned: '{node.name}' mixes them in a way that is not "
                "known; use a network of convolutions, linear layers and activations"
            )
    if left := sorted(set(dict(model.named_parameters())) - _covered(layers)):
        raise FusionError(
            f"neurons cannot be aligned: parameter '{left[0]}' belongs to no layer that the "
            "picture passes once; use a network of convolutions and linear layers"
        )
    return tuple(layers)


def mapped(w: Tensor, block: Block, incoming: Tensor | None) -> Tensor:
    """Return a layer's matrix with its columns carried over to other units.

    Parameters
    ----------
    w : Tensor, shape (o, i)
        As `testbed.learning.blocks.matrix` makes it; the column of a bias stays.
    block : Block
    incoming : Tensor, shape (units, new units), or None
        None for a layer that reads the picture.
    """
    if incoming is None:
        return w
    units = len(incoming)
    weight, bias = w[:, : w.shape[1] - block.bias], w[:, w.shape[1] - block.bias :]
    blocked = weight.reshape(len(w), units, -1)
    carried = torch.einsum("oup,uv->ovp", blocked, incoming).flatten(1)
    return torch.cat([carried, bias], dim=1)


def _covered(layers: list[Layer]) -> set[str]:
    return {name for layer in layers for name in layer.block.parameters}


def _keeps_order(model: nn.Module, node: fx.Node) -> bool:
    if node.op == "call_module":
        return isinstance(model.get_submodule(str(node.target)), _PLAIN)
    return node.op.startswith("call_") and node.target in _PLAIN_CALLS


def _followable(model: nn.Module, block: Block) -> None:
    if isinstance(model.get_submodule(block.name), nn.GroupNorm):
        raise FusionError(
            f"neurons cannot be aligned: '{block.name}' normalises neighbouring channels "
            "together (GroupNorm); use a network with BatchNorm or without normalisation"
        )
