"""Fisher information of a detector on a client's pictures.

A detector has no distribution over labels to take an expectation of: its loss picks the
predictions that it compares with a box by the boxes themselves.  So the Fisher is the
empirical one, of the true boxes, with the picture's detection loss l(x, y) (box, class and
distribution terms, weighed as in training) in place of -log p(y | x):

``diagonal``  f = sum over pictures of (dl / dW)^2, entry by entry;
``kfac``      A and G of convolutions as in `testbed.learning.fisher`, from patches of their
              inputs and dl / d(output); BatchNorm stays diagonal.

A picture's loss is that of a batch of one: the loss of a larger batch divides all pictures
by the target scores of all, so its gradient is not a sum of theirs.  In eval mode BatchNorm
uses its running statistics, and nothing is augmented, so that a picture's term depends on
that picture and the weights alone.  The sum is taken picture by picture in float32, in the
order given: the Fisher of some pictures is, to the bit, the sum of the Fishers of each.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from testbed.learning.accumulators import Accumulator
from testbed.learning.blocks import State, blocks, matrix
from testbed.learning.detection.augment import plain
from testbed.learning.detection.network import loss
from testbed.learning.detection.pictures import Pictures
from testbed.learning.devices import CPU, factors_on_cpu, placed
from testbed.learning.factors import Diagonal, Factor, Kind
from testbed.learning.fisher import collected, collecting


def fisher(
    model: nn.Module,
    state: State,
    pictures: Pictures,
    chosen: NDArray[np.int64],
    kind: Kind,
    device: torch.device = CPU,
) -> dict[str, Factor]:
    """Compute the Fisher blocks of `state` on a client's pictures.

    Parameters
    ----------
    model : Module
        Made by `network.build`; its weights are overwritten.  Run in eval mode, and left in
        the mode it was in.
    state : mapping of str to Tensor
    pictures : Pictures
    chosen : int64 array, shape (n,)
        The client's pictures, in the order of the sum.
    kind : {"kfac", "diagonal"}
    device : device
        Where it is computed, in float32 whatever the precision of training.

    Returns
    -------
    dict of str to Kronecker or Diagonal
        One per block of the model, on the CPU.
    """
    training = model.training
    model.load_state_dict(dict(state))
    with placed(model, device):
        model.eval()
        try:
            losses = (loss(model, *_alone(pictures, index, device)) for index in chosen)
            if kind == "diagonal":
                return factors_on_cpu(_diagonal(model, losses))
            return factors_on_cpu(_kronecker(model, losses, len(chosen)))
        finally:
            model.train(training)


def _alone(pictures: Pictures, index: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return one picture as a batch: images (1, 3, H, W) and targets (m, 6)."""
    images, targets = plain(pictures, np.array([index]))
    return images.to(device).float() / 255, targets.to(device)


def _diagonal(model: nn.Module, losses: Iterator[Tensor]) -> dict[str, Factor]:
    """Sum squares of the gradients of weights.

    Of one picture at a time autograd forms them faster than products of unfolded inputs and
    output gradients do, which is how `testbed.learning.accumulators` gets those of a batch.
    """
    layers = blocks(model)
    names = [name for block in layers for name in block.parameters]
    weights = [model.get_parameter(name) for name in names]
    sums = [torch.zeros_like(weight) for weight in weights]
    for value in losses:
        gradients = torch.autograd.grad(value, weights, allow_unused=True, materialize_grads=True)
        torch._foreach_add_(sums, torch._foreach_mul(gradients, gradients))
    named = dict(zip(names, sums, strict=True))
    return {block.name: Diagonal(matrix(block, named)) for block in layers}


def _kronecker(model: nn.Module, losses: Iterator[Tensor], samples: int) -> dict[str, Factor]:
    """Sum what convolutions read and the gradients of what they give."""
    sums: dict[str, Accumulator] = {}
    with collecting(model, "kfac", sums) as outputs:
        for value in losses:
            starts = [output for output in outputs.values() if output.is_leaf]
            torch.autograd.grad(value, starts, allow_unused=True)
            outputs.clear()
    return collected(model, "kfac", sums, samples)
