"""Floating-point operations of a client's work, counted from the real model.

A multiply-add counts as two.  A training pass costs three forward passes (forward, and
backward to inputs and to weights); a Fisher pass costs one, since only gradients of layer
outputs are taken.  An exact Fisher takes C - 1 of them for C classes.  Input covariances are
counted as products of patches, the textbook way, whatever shortcut `patches` finds.  The
counts depend on shapes alone, never on learned weights.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from testbed.learning.blocks import blocks, fused_modules
from testbed.learning.factors import Kind
from testbed.learning.fisher import Estimator
from testbed.learning.models import Shape
from testbed.learning.shapes import once

_TRAINING_PASSES = 3
CURVATURE_PASSES = 3  # of training: a step has a second backward pass through the first


def forward_flops(model: nn.Module, shape: Shape) -> int:
    """FLOPs of one forward pass for one picture of `shape` (c, h, w)."""

    def count() -> int:
        model.eval()  # one picture has no batch statistics
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            model(torch.zeros(1, *shape))
        return int(counter.get_total_flops())

    return once(model, ("forward", shape), count)


def training_flops(model: nn.Module, shape: Shape, samples: int, epochs: int) -> int:
    """FLOPs of local training."""
    return _TRAINING_PASSES * forward_flops(model, shape) * samples * epochs


def fisher_flops(
    model: nn.Module, shape: Shape, samples: int, classes: int, kind: Kind, estimator: Estimator
) -> int:
    """FLOPs of the Fisher on all of a client's samples."""
    passes = classes - 1 if estimator == "exact" else 1
    per_sample = forward_flops(model, shape) * (1 + passes)
    locations = once(model, ("locations", shape), lambda: _locations(model, shape))
    for block in blocks(model):
        o, i, t = block.rows, block.columns, locations.get(block.name, 0)
        if kind == "kfac" and not block.norm:
            per_sample += 2 * t * (i * i + passes * o * o)
        else:
            per_sample += passes * 2 * t * i * o
    return per_sample * samples


def solve_flops(model: nn.Module, subset: int, kind: Kind, iterations: int) -> int:
    """FLOPs of a projection: `iterations` products F v of `subset` clients' blocks."""
    total = 0
    for block in blocks(model):
        o, i = block.rows, block.columns
        if kind == "kfac" and not block.norm:
            total += iterations * subset * 2 * (o * o * i + o * i * i)
        else:
            total += subset * 2 * o * i
    return total


def _locations(model: nn.Module, shape: Shape) -> dict[str, int]:
    """T by block: outputs of a channel for one picture, 1 for a linear layer on vectors."""
    seen: dict[str, int] = {}

    def hook_for(name: str) -> Callable[[nn.Module, object, torch.Tensor], None]:
        def hook(module: nn.Module, args: object, output: torch.Tensor) -> None:
            channels = output.shape[-1 if isinstance(module, nn.Linear) else 1]
            seen[name] = output.numel() // channels

        return hook

    model.eval()
    hooks = [
        module.register_forward_hook(hook_for(block.name))
        for block, module in fused_modules(model)
    ]
    with torch.no_grad():
        model(torch.zeros(1, *shape))
    for hook in hooks:
        hook.remove()
    return seen
