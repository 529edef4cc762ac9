"""Statistic ``projector``: what directions a layer's inputs leave free (MA-Echo).

Source: Su, Li, Xue, "One-shot Federated Learning without Server-side Training", Neural
Networks 2023 (arXiv 2204.12493), and the behaviour of the authors' published code.

Notation, per layer
-------------------
x     : mean over a batch of the layer's input; of a convolution's input one patch at every
        second location; a constant 1 last where the layer has a bias
P     : projector (i x i), close to the identity on directions that no x has
C     : step of the recursion
alpha : regulariser of a linear layer, of a convolution

P starts at the identity and takes one step for every x, which shrinks its action on x by up
to the factor 1 - C:

    k = P x,   P <- P - C k k^T / (alpha + x^T k)

Sent as ``projector/<layer>``.  Normalisation layers have none.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from testbed.learning.blocks import Block, Fused, State, blocks, fused_modules
from testbed.learning.classification import classified
from testbed.learning.flops import forward_flops
from testbed.learning.inputs import inputs_like, show
from testbed.learning.patches import padded
from testbed.learning.task import Task


@dataclass(frozen=True)
class Recursion:
    """Parameters of the recursion, the published ones.

    Attributes
    ----------
    step : float
        C.
    alpha_linear, alpha_convolution : float
    batch : int
        Samples of which the mean input is taken.
    stride : int
        Every so many-th location of a convolution, in either direction.
    """

    step: float = 0.5
    alpha_linear: float = 0.01**0.8
    alpha_convolution: float = 0.00001**0.8
    batch: int = 64
    stride: int = 2


PUBLISHED = Recursion()


def projector(task: Task, part: int, state: State) -> dict[str, Tensor]:
    """Return the projectors of a client's trained model on its data, by name."""
    found = {name: torch.eye(len(p), dtype=torch.float64) for name, p in like(task, part).items()}

    def see(block: Block, module: Fused, x: Tensor) -> None:
        if block.norm:
            return
        alpha = (
            PUBLISHED.alpha_convolution
            if isinstance(module, nn.Conv2d)
            else PUBLISHED.alpha_linear
        )
        for row in mean_inputs(block, module, x).cpu().double():
            shrink(found[f"projector/{block.name}"], row, alpha)

    show(task.model, state, _batches(task, part), see, task.device)
    return {name: ((p + p.T) / 2).float() for name, p in found.items()}


def shrink(p: Tensor, x: Tensor, alpha: float) -> None:
    """Take one step of the recursion for an input `x` (i,), in place."""
    k = p @ x
    p.addr_(k, k, alpha=-PUBLISHED.step / (alpha + float(x @ k)))


def mean_inputs(block: Block, module: Fused, x: Tensor) -> Tensor:
    """Return the batch-mean inputs (one row per location) of a linear layer or convolution."""
    mean = x.mean(dim=0, keepdim=True)
    if isinstance(module, nn.Conv2d):
        stride = tuple(PUBLISHED.stride * each for each in module.stride)
        rows = nn.functional.unfold(
            padded(module, mean), module.kernel_size, dilation=module.dilation, stride=stride
        )[0].T
    else:
        rows = mean.reshape(-1, mean.shape[-1])
    return torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1) if block.bias else rows


def _batches(task: Task, part: int) -> Iterator[Tensor]:
    """Yield the client's pictures once, in an order of its own."""
    pictures, _ = classified(task).samples(part)
    order = task.streams.rng("client", part, "projector").permutation(len(pictures))
    for chosen in torch.split(torch.from_numpy(order), PUBLISHED.batch):
        yield pictures[chosen]


def like(task: Task, part: int) -> dict[str, Tensor]:
    """Return zeros of the names and shapes of `projector`."""
    return {
        f"projector/{block.name}": torch.zeros(block.columns, block.columns)
        for block in blocks(task.model)
        if not block.norm
    }


def projector_flops(task: Task) -> int:
    """FLOPs per sample: a forward pass, and its share of the batch's steps."""
    inputs = inputs_like(task.model, task.shape)
    steps = sum(
        4 * block.columns**2 * len(mean_inputs(block, module, inputs[block.name]))
        for block, module in fused_modules(task.model)
        if not block.norm and block.name in inputs
    )
    return forward_flops(task.model, task.shape) + steps // PUBLISHED.batch
