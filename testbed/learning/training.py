"""Local training at a client: plain SGD, every step determined by a named stream."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.learning.blocks import State
from testbed.learning.devices import CPU, on_cpu, placed


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
    device: torch.device = CPU,
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
    device : device
        Where the steps are computed.

    Returns
    -------
    dict of str to Tensor
        On the CPU, contiguous.

    Notes
    -----
    Bit for bit what `torch.optim.SGD` does in a plain loop over shuffled batches, with less
    between the kernels: one gather an epoch, no optimiser object, one call for all weights.
    """
    return descend(model, start, pictures, labels, recipe, rng, device, partial(_sgd, recipe))


# Takes a batch's loss and changes the weights.
Step = Callable[[Tensor], None]


def descend(
    model: nn.Module,
    start: State,
    pictures: Tensor,
    labels: Tensor,
    recipe: Recipe,
    rng: np.random.Generator,
    device: torch.device,
    stepper: Callable[[list[Tensor]], Step],
) -> dict[str, Tensor]:
    """Train as `train` does, with steps of another kind.

    Parameters
    ----------
    model, start, pictures, labels, recipe, rng, device
        See `train`; the recipe's epochs and batch are used here.
    stepper : callable
        Returns the step for the trainable weights, at the start of a training.
    """
    with placed(model, device):
        model.load_state_dict(dict(start))
        model.train()
        step = stepper([weight for weight in model.parameters() if weight.requires_grad])
        pictures, labels = pictures.to(device), labels.to(device)
        for _ in range(recipe.epochs):
            order = torch.from_numpy(rng.permutation(len(labels))).to(device)
            x_all, y_all = pictures[order], labels[order]
            for x, y in zip(
                torch.split(x_all, recipe.batch), torch.split(y_all, recipe.batch), strict=True
            ):
                step(functional.cross_entropy(model(x), y))
        return on_cpu(model.state_dict())


def _sgd(recipe: Recipe, weights: list[Tensor]) -> Step:
    """Return the step v = mu v + g, w = w - lr v, in place; the first v is g."""
    momenta: list[Tensor] = []

    def step(loss: Tensor) -> None:
        gradients = torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
        with torch.no_grad():
            if momenta:
                torch._foreach_mul_(momenta, recipe.momentum)
                torch._foreach_add_(momenta, gradients)
            else:
                momenta.extend(gradient.clone() for gradient in gradients)
            torch._foreach_add_(weights, momenta, alpha=-recipe.lr)

    return step
