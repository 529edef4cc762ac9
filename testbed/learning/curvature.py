"""Local training by steps scaled with the diagonal of the curvature, FedRR's.

Source: the update of Liu et al., INFOCOM 2022, arXiv 2203.07320, a momentum of gradients
over the root of a momentum of squared diagonal curvature.  The diagonal is estimated as in
AdaHessian (Yao et al., AAAI 2021, arXiv 2006.00719), which the authors' code uses:

    z  : a probe of independent random signs
    d  : |z * H z| = |H z|, H the Hessian of the batch's loss
    m  : beta_1 m + (1 - beta_1) gradient
    v  : beta_2 v + (1 - beta_2) d^2
    w -= lr m_hat / (sqrt(v_hat) + eps), m and v corrected for their start at zero

The entries of one k x k kernel of a convolution share their mean d.  H z is the gradient of
(gradient, z): a second backward pass through the first.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.learning.blocks import State
from testbed.learning.devices import CPU, on_cpu, placed
from testbed.learning.training import Recipe

BETAS = (0.9, 0.999)
EPS = 1e-4  # AdaHessian's; a Newton step where there is no curvature has no bound


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
        `BETAS` take the place of its momentum.
    rng : Generator
        Orders the samples of each epoch and draws the probes; nothing else is random.
    device : device
        Where the steps are computed.

    Returns
    -------
    dict of str to Tensor
        On the CPU, contiguous.
    """
    with placed(model, device):
        model.load_state_dict(dict(start))
        model.train()
        weights: list[Tensor] = [weight for weight in model.parameters() if weight.requires_grad]
        moments = _Moments(
            means=[torch.zeros_like(weight) for weight in weights],
            squares=[torch.zeros_like(weight) for weight in weights],
        )
        pictures, labels = pictures.to(device), labels.to(device)
        for _ in range(recipe.epochs):
            order = torch.from_numpy(rng.permutation(len(labels))).to(device)
            x_all, y_all = pictures[order], labels[order]
            for x, y in zip(
                torch.split(x_all, recipe.batch), torch.split(y_all, recipe.batch), strict=True
            ):
                _step(weights, moments, functional.cross_entropy(model(x), y), recipe.lr, rng)
        return on_cpu(model.state_dict())


@dataclass
class _Moments:
    """m and v, and the number of steps they are made of."""

    means: list[Tensor]
    squares: list[Tensor]
    steps: int = 0


def _step(
    weights: list[Tensor], moments: _Moments, loss: Tensor, lr: float, rng: np.random.Generator
) -> None:
    """Take one step, in place."""
    gradients = torch.autograd.grad(
        loss, weights, create_graph=True, allow_unused=True, materialize_grads=True
    )
    sizes = curvature(gradients, weights, rng)
    means, squares = moments.means, moments.squares
    moments.steps += 1
    with torch.no_grad():
        torch._foreach_lerp_(means, gradients, 1 - BETAS[0])
        torch._foreach_mul_(squares, BETAS[1])
        torch._foreach_addcmul_(squares, sizes, sizes, 1 - BETAS[1])
        scales = torch._foreach_div(squares, 1 - BETAS[1] ** moments.steps)
        torch._foreach_sqrt_(scales)
        torch._foreach_add_(scales, EPS)
        torch._foreach_addcdiv_(weights, means, scales, -lr / (1 - BETAS[0] ** moments.steps))


def curvature(
    gradients: Sequence[Tensor], weights: Sequence[Tensor], rng: np.random.Generator
) -> list[Tensor]:
    """Return |H z| of a fresh probe z, averaged over each kernel of a convolution.

    Parameters
    ----------
    gradients : sequence of Tensor
        Of a loss, with their graph.
    weights : sequence of Tensor
        What they are gradients by.
    rng : Generator
    """
    counts = [weight.numel() for weight in weights]
    signs = torch.from_numpy(rng.integers(2, size=sum(counts), dtype=np.int8)).mul_(2).sub_(1)
    probe = [
        part.reshape(weight.shape).to(weight)
        for part, weight in zip(torch.split(signs, counts), weights, strict=True)
    ]
    # A weight that the loss does not depend on has a gradient without a graph.
    used = [index for index, gradient in enumerate(gradients) if gradient.requires_grad]
    products = torch.autograd.grad(
        [gradients[index] for index in used],
        weights,
        [probe[index] for index in used],
        allow_unused=True,
        materialize_grads=True,
    )
    return [
        each.abs().mean((2, 3), keepdim=True).expand_as(each) if each.dim() == 4 else each.abs()
        for each in products
    ]
