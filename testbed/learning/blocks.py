"""The layers of a network as matrices, the form in which Fisher and fusion see them.

A layer with weight (o, i) or (o, c, k, k) and an optional bias is one matrix W of shape
o x i, where i counts c k k columns and, last, one for the bias: the bias is the weight of
a constant input 1, so weight and bias share one Fisher block.  A normalisation layer of C
channels is W of shape 2 x C, the scales in row 0 and the shifts in row 1.

Parameters outside every block (embeddings, grouped convolutions, frozen layers, ...) have
no Fisher; fusion gives them their plain mean.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from testbed.errors import FusionError

State = Mapping[str, Tensor]
Norm = nn.BatchNorm1d | nn.BatchNorm2d | nn.GroupNorm
Fused = nn.Linear | nn.Conv2d | Norm


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
    norm : bool
        A normalisation layer: its Fisher is diagonal whatever the kind asked for.
    """

    name: str
    shape: tuple[int, ...]
    bias: bool
    norm: bool = False

    @property
    def rows(self) -> int:
        """Outputs o; of a normalisation layer, 1 and one for the bias."""
        return 1 + self.bias if self.norm else self.shape[0]

    @property
    def columns(self) -> int:
        """Inputs i, the constant one included; of a normalisation layer, its channels."""
        return self.shape[0] if self.norm else math.prod(self.shape[1:]) + self.bias

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters the block covers."""
        names = (f"{self.name}.weight", f"{self.name}.bias")
        return names if self.bias else names[:1]


def blocks(model: nn.Module) -> tuple[Block, ...]:
    """Return the blocks of `model` in module order.

    Raises
    ------
    FusionError
        If two layers share a parameter: they cannot be fused apart.
    """
    return tuple(block for block, _ in fused_modules(model))


def fused_modules(model: nn.Module) -> list[tuple[Block, Fused]]:
    """Return the blocks of `model` with their modules; see `blocks`.

    They are the Linear, ungrouped Conv2d, BatchNorm1d, BatchNorm2d and GroupNorm modules
    that have parameters, none of them frozen.
    """
    found: list[tuple[Block, Fused]] = []
    owners: dict[Tensor, str] = {}
    for name, module in model.named_modules():
        if not isinstance(module, Fused) or not _has_a_block(module):
            continue
        bias, norm = module.bias is not None, isinstance(module, Norm)
        found.append((Block(name, tuple(module.weight.shape), bias, norm), module))
        for parameter in module.parameters():
            owner = owners.setdefault(parameter, name)
            if owner != name:
                raise FusionError(
                    f"layers '{owner}' and '{name}' share a parameter, so neither has a "
                    "Fisher block of its own; untie them"
                )
    return found


def _has_a_block(module: Fused) -> bool:
    grouped = isinstance(module, nn.Conv2d) and module.groups > 1
    trainable = all(parameter.requires_grad for parameter in module.parameters())
    return module.weight is not None and trainable and not grouped


def matrix(block: Block, state: State) -> Tensor:
    """Return the block's W (o x i) out of a state dict."""
    if block.norm:
        return torch.stack([state[name] for name in block.parameters])
    weight = state[f"{block.name}.weight"].reshape(block.rows, -1)
    if not block.bias:
        return weight
    return torch.cat([weight, state[f"{block.name}.bias"].unsqueeze(1)], dim=1)


def parameters(block: Block, w: Tensor) -> dict[str, Tensor]:
    """Return the parameters a matrix W stands for, the inverse of `matrix`."""
    if block.norm:
        return {name: row.clone() for name, row in zip(block.parameters, w, strict=True)}
    inputs = block.columns - block.bias
    named = {f"{block.name}.weight": w[:, :inputs].reshape(block.shape).contiguous()}
    if block.bias:
        named[f"{block.name}.bias"] = w[:, inputs].contiguous()
    return named
