"""Fisher information of a client's model on the client's data.

Notation
--------
a : input of a layer, one row per sample (Linear) or per sample and location (Conv2d),
    with a constant 1 appended when the layer has a bias.
g : gradient of log p(y | x) with respect to the layer's output, same rows as `a`.
A, G : Kronecker factors; the layer's Fisher is F = G (x) A for row-major vec(W).
T : number of locations of a convolution (1 for Linear).

``A = (1/n) sum a a^T`` and ``G = (1/T) sum E_y[g g^T]``: F is a *sum* over the client's n
samples, so each client's statistic is self-contained and F = sum_i F_i needs no data
sizes.  For convolutions this is KFC, "expand" (Grosse and Martens 2016): A sums over
locations, G averages over them.  The diagonal Fisher is the sum over samples of squared
per-sample gradients, without the K-FAC approximation.  BatchNorm and GroupNorm have a
diagonal block in either case: with normalised inputs xhat the gradient is sum_t g xhat for
the scale and sum_t g for the shift.

Estimators of the expectation over labels y:

``exact``     over the model's own predictive distribution, in C - 1 backward passes for
              C classes;
``sampled``   one label a sample drawn from it;
``empirical`` the true label.

Gradients are taken of layer *outputs* only, never of weights: a backward pass costs half
of a training pass.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.errors import FusionError
from testbed.learning.accumulators import Accumulator, accumulator
from testbed.learning.blocks import Block, State, blocks, fused_modules
from testbed.learning.factors import Diagonal, Factor, Fisher, Kind, Kronecker, zero

Estimator = Literal["exact", "sampled", "empirical"]

__all__ = ["Diagonal", "Estimator", "Factor", "Fisher", "Kind", "Kronecker", "fisher"]

_BATCH = 200
_MOST = 2**27  # numbers in one layer's per-sample gradients, half a gigabyte


def fisher(
    model: nn.Module,
    state: State,
    pictures: Tensor,
    labels: Tensor,
    kind: Kind,
    estimator: Estimator,
    rng: np.random.Generator,
) -> dict[str, Factor]:
    """Compute the Fisher blocks of `state` on a client's samples.

    Parameters
    ----------
    model : Module
        Supplies the architecture; its weights are overwritten.  Run in eval mode.
    state : mapping of str to Tensor
    pictures : Tensor, shape (n, c, h, w)
    labels : Tensor of int64, shape (n,)
        Used by the ``empirical`` estimator only.
    kind : {"kfac", "diagonal"}
    estimator : {"exact", "sampled", "empirical"}
    rng : Generator
        Draws the labels of the ``sampled`` estimator.

    Returns
    -------
    dict of str to Kronecker or Diagonal
        One per block of the model, in the precision of its weights; normalisation layers
        have a diagonal block whatever `kind` is.

    Raises
    ------
    FusionError
        If a layer has no Fisher block of its own: called twice in a forward pass, sharing
        a parameter with another, or coupling the samples of a batch.
    """
    model.load_state_dict(dict(state))
    model.eval()
    sums: dict[str, Accumulator] = {}
    size = batch_size(model, kind)
    with collecting(model, kind, sums) as outputs:
        for x, y in zip(torch.split(pictures, size), torch.split(labels, size), strict=True):
            outputs.clear()
            logits = model(x)
            starts = [output for output in outputs.values() if output.is_leaf]
            for vector in _output_gradients(logits.detach(), y, estimator, rng):
                torch.autograd.grad(logits, starts, vector, retain_graph=True, allow_unused=True)
    return collected(model, kind, sums, len(labels))


def batch_size(model: nn.Module, kind: Kind) -> int:
    """Return how many samples are looked at together; few where their gradients are large.

    Examples
    --------
    >>> batch_size(nn.Linear(4096, 4096), "diagonal"), batch_size(nn.Linear(4096, 4096), "kfac")
    (8, 200)
    """
    if kind == "kfac":  # which never has the gradient of one sample in memory
        return _BATCH
    largest = max((each.numel() for each in model.parameters()), default=1)
    return max(1, min(_BATCH, _MOST // largest))


def _output_gradients(
    logits: Tensor, labels: Tensor, estimator: Estimator, rng: np.random.Generator
) -> Iterator[Tensor]:
    """Yield vectors v (n, C) with sum over vectors of v v^T = E_y[(e_y - p)(e_y - p)^T].

    ``e_y - p`` is the gradient of log p(y | x) with respect to the logits.  Its covariance
    over the model's own labels is diag(p) - p p^T, of rank C - 1.  The exact estimator
    yields the C - 1 columns of the Cholesky factor of that matrix: column c is e_c minus
    the distribution of labels beyond c, times the root of p_c q / (p_c + q), where q is the
    probability of those labels (Tanabe and Sagae 1992).
    """
    p = functional.softmax(logits, dim=1)
    classes = p.shape[1]
    if estimator == "exact":
        tiny = torch.finfo(p.dtype).tiny
        for c in range(classes - 1):
            here, beyond = p[:, c : c + 1], p[:, c + 1 :]
            q = beyond.sum(dim=1, keepdim=True)
            scale = (here * q / (here + q).clamp_min(tiny)).sqrt()
            column = torch.cat([scale, -scale * (beyond / q.clamp_min(tiny))], dim=1)
            yield functional.pad(column, (c, 0))
        return
    if estimator == "sampled":
        draws = torch.from_numpy(rng.random((len(p), 1))).to(p.device)
        labels = (p.double().cumsum(dim=1) < draws).sum(dim=1).clamp(max=classes - 1)
    yield functional.one_hot(labels, classes) - p


@contextmanager
def collecting(
    model: nn.Module, kind: Kind, sums: dict[str, Accumulator]
) -> Iterator[dict[str, Tensor]]:
    """Feed `sums` with what the model's blocks see; yield their outputs of the last batch.

    To be cleared before each forward pass.  The weights are frozen meanwhile, so that no
    pass computes their gradients: a backward pass goes to those outputs that are leaves.
    """
    outputs: dict[str, Tensor] = {}

    def hook_for(block: Block) -> Any:
        def hook(module: Any, args: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
            if block.name in outputs:
                raise FusionError(
                    f"layer '{block.name}' is called more than once in a forward pass, so it "
                    "has no single Fisher block; give each call a layer of its own"
                )
            x = args[0].detach()
            if block.name not in sums:
                sums[block.name] = accumulator(block, module, kind, x)
            sums[block.name].see_input(x)
            # With frozen weights the graph starts here.  The clone lets an in-place
            # activation follow; a hook on the original still sees the right gradient.
            starts = not output.requires_grad
            if starts:
                output = output.detach().requires_grad_()
            outputs[block.name] = output
            output.register_hook(sums[block.name].see_gradient)  # type: ignore[no-untyped-call]
            return output.clone() if starts else None

        return hook

    _refuse_coupled_samples(model)
    hooks = [
        module.register_forward_hook(hook_for(block)) for block, module in fused_modules(model)
    ]
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        yield outputs
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)
        for hook in hooks:
            hook.remove()


def collected(
    model: nn.Module, kind: Kind, sums: Mapping[str, Accumulator], samples: int
) -> dict[str, Factor]:
    """Return the blocks' factors after `samples` samples; zero where a layer took no part."""
    return {
        block.name: sums[block.name].factor(samples) if block.name in sums else zero(block, kind)
        for block in blocks(model)
    }


def _refuse_coupled_samples(model: nn.Module) -> None:
    """Refuse layers whose output for one picture depends on the others even in eval mode."""
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None:
            raise FusionError(
                f"layer '{name}' keeps no running statistics, so pictures of a batch depend on "
                "each other; set track_running_stats"
            )
