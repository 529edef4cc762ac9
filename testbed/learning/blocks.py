"""The layers of a network as matrices, the form in which Fisher and fusion see them.

A layer with weight (o, i) or (o, c, k, k) and an optional bias is one matrix W of shape
o x i, where i counts c k k columns and, last, one for the bias: the bias is the weight of
a constant input 1, so weight and bias share one Fisher block.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Block:
    """One layer whose parameters are fused together.

    Attributes
    ----------
    name : str
        The module's dotted name.
    shape : tuple of int
        Shape of its weight.
    bias : bool
    """

    name: str
    shape: tuple[int, ...]
    bias: bool

    @property
    def rows(self) -> int:
        """Outputs o."""
        return self.shape[0]

    @property
    def columns(self) -> int:
        """Inputs i, the constant one included."""
        return int(torch.Size(self.shape[1:]).numel()) + self.bias

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters the block covers."""
        names = (f"{self.name}.weight", f"{self.name}.bias")
        return names if self.bias else names[:1]


def blocks(model: nn.Module) -> tuple[Block, ...]:
    """Return the blocks of `model` in module order: its Linear and ungrouped Conv2d layers."""
    return tuple(
        Block(name, tuple(module.weight.shape), module.bias is not None)
        for name, module in fused_modules(model)
    )


def fused_modules(model: nn.Module) -> list[tuple[str, nn.Linear | nn.Conv2d]]:
    """Return the named modules behind `blocks`."""
    return [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and module.groups == 1)
    ]


def matrix(block: Block, state: State) -> Tensor:
    """Return the block's W (o x i) out of a state dict."""
    weight = state[f"{block.name}.weight"].reshape(block.rows, -1)
    if not block.bias:
        return weight
    return torch.cat([weight, state[f"{block.name}.bias"].unsqueeze(1)], dim=1)


def parameters(block: Block, w: Tensor) -> dict[str, Tensor]:
    """Return the parameters a matrix W stands for, the inverse of `matrix`."""
    inputs = block.columns - block.bias
    named = {f"{block.name}.weight": w[:, :inputs].reshape(block.shape).contiguous()}
    if block.bias:
        named[f"{block.name}.bias"] = w[:, inputs].contiguous()
    return named
