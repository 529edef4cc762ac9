"""Local training of a detector at a vehicle: every step is one of the recipe's.

The recipe is that of ultralytics' trainer without what changes it behind the scenes: one
step a batch, never fewer; the learning rate is constant; the weights that come back are the
last ones, not their running mean, not those of the best epoch and not in half precision.
Nothing is validated.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from testbed.learning.blocks import State
from testbed.learning.detection.augment import Augment, batch
from testbed.learning.detection.network import loss
from testbed.learning.detection.pictures import Pictures
from testbed.learning.devices import CPU, on_cpu, placed
from testbed.streams import Streams

# Largest norm of a step's gradient, as in ultralytics' trainer.
CLIP = 10.0


@dataclass(frozen=True)
class DetectionRecipe:
    """The local training recipe of a detector.

    Attributes
    ----------
    epochs : int
    lr : float
        Constant.
    batch : int
        Pictures a step; the last, smaller batch of an epoch is a step too.
    momentum : float
        Nesterov's for SGD, the first decay rate of AdamW.
    optimiser : {"sgd", "adamw"}
        Both without weight decay.
    augment : {"none", "flip", "mosaic"}
        See `augment.batch`.
    precision : {"float32", "bf16"}
        Of the forward and backward pass; weights, loss and steps are in float32.
    compile : bool
        Whether the network is compiled, once for all clients of a process.
    """

    epochs: int
    lr: float
    batch: int
    momentum: float
    optimiser: Literal["sgd", "adamw"] = "sgd"
    augment: Augment = "none"
    precision: Literal["float32", "bf16"] = "float32"
    compile: bool = False


def train(
    model: nn.Module,
    start: State,
    pictures: Pictures,
    chosen: NDArray[np.int64],
    recipe: DetectionRecipe,
    rng: np.random.Generator,
    device: torch.device = CPU,
) -> dict[str, Tensor]:
    """Train from `start` and return the resulting state dict.

    Parameters
    ----------
    model : Module
        Made by `network.build`; its weights are overwritten.
    start : mapping of str to Tensor
        Initial state dict.
    pictures : Pictures
    chosen : int64 array
        The client's pictures; one without a box is background.
    recipe : DetectionRecipe
    rng : Generator
        Its first draw keys the augmentation, the others order the pictures of each epoch;
        nothing else is random.
    device : device
        Where the steps are computed.

    Returns
    -------
    dict of str to Tensor
        On the CPU, contiguous; with the running statistics of the normalisation layers.

    Raises
    ------
    ArithmeticError
        If a loss or its gradient is not finite.
    """
    with placed(model, device):
        model.load_state_dict(dict(start))
        model.train()
        called: Any = torch.compile(model) if recipe.compile else model
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        optimiser = _optimiser(recipe, weights)
        try:
            for step, (images, targets) in enumerate(_batches(pictures, chosen, recipe, rng), 1):
                x, y = images.to(device).float() / 255, targets.to(device)
                with torch.autocast(device.type, torch.bfloat16, recipe.precision == "bf16"):
                    total = loss(called, x, y)
                optimiser.zero_grad()
                total.backward()  # type: ignore[no-untyped-call]
                _check(total, _clip(weights), step)
                optimiser.step()
        finally:
            optimiser.zero_grad()  # as much memory as the weights
        return on_cpu(model.state_dict())


def _batches(
    pictures: Pictures,
    chosen: NDArray[np.int64],
    recipe: DetectionRecipe,
    rng: np.random.Generator,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the batches of all epochs; a picture's augmentation depends on its epoch only."""
    streams = Streams(int(rng.integers(2**63)))
    for epoch in range(recipe.epochs):
        order = chosen[rng.permutation(len(chosen))]

        def key(picture: int, epoch: int = epoch) -> np.random.Generator:
            return streams.rng("augmentation", epoch, picture)

        for first in range(0, len(order), recipe.batch):
            part = order[first : first + recipe.batch]
            yield batch(pictures, part, recipe.augment, key, chosen)


def _optimiser(recipe: DetectionRecipe, weights: list[nn.Parameter]) -> torch.optim.Optimizer:
    if recipe.optimiser == "adamw":
        betas = (recipe.momentum, 0.999)
        return torch.optim.AdamW(weights, recipe.lr, betas, weight_decay=0.0, fused=True)
    nesterov = recipe.momentum > 0
    return torch.optim.SGD(weights, recipe.lr, recipe.momentum, nesterov=nesterov, fused=True)


def _clip(weights: list[nn.Parameter]) -> Tensor:
    """Shorten the gradient to a norm of `CLIP`; return the norm it had."""
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    for precision in (torch.float32, torch.float64):  # squares may overflow the first
        norms = torch._foreach_norm(gradients, 2, precision)
        norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
        if norm.isfinite():
            break
    nn.utils.clip_grads_with_norm_(weights, CLIP, norm)
    return norm


def _check(total: Tensor, norm: Tensor, step: int) -> None:
    """Refuse to go on from numbers that are not finite; a step never uses them.

    Raises
    ------
    ArithmeticError
    """
    if not math.isfinite(float(total.detach() + norm)):
        # Later ones come of the learning rate, of which whoever ends the run speaks.
        advice = "; check the weights that training starts from" if step == 1 else ""
        raise ArithmeticError(
            f"step {step}: the loss is {float(total.detach()):g} and the norm of its gradient "
            f"{float(norm):g}{advice}"
        )
