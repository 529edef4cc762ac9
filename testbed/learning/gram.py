"""Statistic ``gram``: second moments of the inputs of linear layers (RegMean).

Source: Jin, Ren, Preotiuc-Pietro, Cheng, "Dataless Knowledge Fusion by Merging Weights of
Language Models", ICLR 2023 (arXiv 2212.09849).

Gamma = (1/n) sum x x^T over the client's n samples, with x the input of a linear layer
and, where the layer has a bias, a constant 1 last.  A layer that works on several rows of a
sample counts every row.  Sent as ``gram/<layer>``; other layers have none.
"""

import torch
from torch import Tensor

from testbed.learning.blocks import Block, Fused, State, blocks
from testbed.learning.classification import classified
from testbed.learning.flops import forward_flops
from testbed.learning.inputs import inputs_like, show
from testbed.learning.task import Task

_BATCH = 200


def linear(block: Block) -> bool:
    """Whether a block is a linear layer."""
    return len(block.shape) == 2


def gram(task: Task, part: int, state: State) -> dict[str, Tensor]:
    """Return the Gamma of a client's trained model on its data, by name."""
    sums = {name: value.double() for name, value in like(task, part).items()}
    rows = dict.fromkeys(sums, 0)

    def see(block: Block, module: Fused, x: Tensor) -> None:
        if linear(block):
            name, x = f"gram/{block.name}", x.reshape(-1, x.shape[-1])
            if block.bias:
                x = torch.cat([x, x.new_ones(len(x), 1)], dim=1)
            sums[name] += (x.T @ x).cpu()
            rows[name] += len(x)

    batches = torch.split(classified(task).samples(part)[0], _BATCH)
    show(task.model, state, batches, see, task.device)
    means = {name: value / max(rows[name], 1) for name, value in sums.items()}
    return {name: ((mean + mean.T) / 2).float() for name, mean in means.items()}


def like(task: Task, part: int) -> dict[str, Tensor]:
    """Return zeros of the names and shapes of `gram`."""
    return {
        f"gram/{block.name}": torch.zeros(block.columns, block.columns)
        for block in blocks(task.model)
        if linear(block)
    }


def gram_flops(task: Task) -> int:
    """FLOPs per sample: a forward pass, and the products x x^T."""
    inputs = inputs_like(task.model, task.shape)
    products = sum(
        2 * inputs[block.name].numel() // block.shape[1] * block.columns**2
        for block in blocks(task.model)
        if linear(block) and block.name in inputs
    )
    return forward_flops(task.model, task.shape) + products
