"""Local training at a client: plain SGD, every step determined by a named stream."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.learning.blocks import State


@dataclass(frozen=True)
class Recipe:
    """The local training recipe.

    Attributes
    ----------
    epochs : int
    lr : float
    batch : int
        Samples a step; the last, smaller batch of an epoch is used too.
    momentum : float
    """

    epochs: int
    lr: float
    batch: int
    momentum: float


def train(
    model: nn.Module,
    start: State,
    pictures: Tensor,
    labels: Tensor,
    recipe: Recipe,
    rng: np.random.Generator,
) -> dict[str, Tensor]:
    """Train from `start` and return the resulting state dict.

    Parameters
    ----------
    model : Module
        Supplies the architecture; its weights are overwritten.
    start : mapping of str to Tensor
        Initial state dict.
    pictures : Tensor, shape (n, c, h, w)
    labels : Tensor of int64, shape (n,)
    recipe : Recipe
    rng : Generator
        Orders the samples of each epoch; nothing else is random.
    """
    model.load_state_dict(dict(start))
    model.train()
    optimiser = torch.optim.SGD(model.parameters(), lr=recipe.lr, momentum=recipe.momentum)
    for _ in range(recipe.epochs):
        order = torch.from_numpy(rng.permutation(len(labels)))
        for chosen in torch.split(order, recipe.batch):
            optimiser.zero_grad(set_to_none=True)
            loss = functional.cross_entropy(model(pictures[chosen]), labels[chosen])
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
