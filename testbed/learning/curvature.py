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
from functools import partial
from itertools import count

import numpy as np
import torch
from torch import Tensor, nn

from testbed.learning.blocks import State
from testbed.learning.devices import CPU
from testbed.learning.training import Recipe, Step, descend

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
    """Train as `testbed.learning.training.train` does, with `BETAS` in the place of momentum.

    The generator orders the samples of each epoch and draws the probes.
    """
    by = partial(_second_order, recipe.lr, rng)
    return descend(model, start, pictures, labels, recipe, rng, device, by)


def _second_order(lr: float, rng: np.random.Generator, weights: list[Tensor]) -> Step:
    """Return the step of the module's head, in place."""
    means = [torch.zeros_like(weight) for weight in weights]
    squares = [torch.zeros_like(weight) for weight in weights]
    numbers = count(1)

    def step(loss: Tensor) -> None:
        gradients = torch.autograd.grad(
            loss, weights, create_graph=True, allow_unused=True, materialize_grads=True
        )
        sizes = curvature(gradients, weights, rng)
        number = next(numbers)
        with torch.no_grad():
            torch._foreach_lerp_(means, gradients, 1 - BETAS[0])
            torch._foreach_mul_(squares, BETAS[1])
            torch._foreach_addcmul_(squares, sizes, sizes, 1 - BETAS[1])
            scales = torch._foreach_div(squares, 1 - BETAS[1] ** number)
            torch._foreach_sqrt_(scales)
            torch._foreach_add_(scales, EPS)
            torch._foreach_addcdiv_(weights, means, scales, -lr / (1 - BETAS[0] ** number))

    return step


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
