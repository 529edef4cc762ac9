"""F-SOSA's fusion: project the subset's mean model onto {F W = b}.

Source: "One-Shot Federated Model Editing for Device Dynamics at the Edge"
(arXiv 2610.35212), section IV-A.

Notation, per layer of shape o x i
----------------------------------
W_k, W_bar : a client's matrix, and the mean over the subset
F_k        : a client's Fisher block, G_k (x) A_k or a diagonal
F = sum_k F_k,  b = sum_k F_k W_k
r          : b - F W_bar = sum_k F_k (W_k - W_bar)
tau        : damping, c tr(F) / (o i), with a c of its own for the output layer

The clients may have conditioned their F_k (`testbed.learning.conditioning`).

The projection of W_bar onto {F W = b} is W* = W_bar + F^+ r.  The same point comes from
F delta = r by conjugate gradients started at delta = 0; the dual system of the paper has
matrix F^2 and hence the squared condition number.  With damping, (F + tau I) delta = r
minimises sum_k ||W - W_k||^2_{F_k} + tau ||W - W_bar||^2.

Every quantity is a sum over the subset taken in the caller's (canonical) order, so equal
subsets give equal bits whatever the history of edits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.config.schema import FusionConfig
from testbed.errors import FusionError
from testbed.fusion.averaging import plain_mean
from testbed.fusion.kronecker import KroneckerSum
from testbed.fusion.solver import Solve
from testbed.learning.blocks import Block, matrix, parameters
from testbed.learning.contribution import Contribution
from testbed.learning.fisher import Diagonal, Kronecker


@dataclass(frozen=True)
class Projection:
    """Parameters of the fusion.

    Attributes
    ----------
    damping, output_damping : float
        c of the hidden layers and of the last block; zero asks for the plain projection.
    rtol : float
        Relative residual at which conjugate gradients stop.
    max_iterations : int
    """

    damping: float = 0.2
    output_damping: float = 1.0
    rtol: float = 1e-6
    max_iterations: int = 2000

    @classmethod
    def from_config(cls, config: FusionConfig) -> "Projection":
        """Take what the coordinator does; conditioning is the clients'."""
        return cls(config.damping, config.output_damping, config.rtol, config.max_iterations)


@dataclass(frozen=True, eq=False)
class Fused:
    """A fused model.

    Attributes
    ----------
    model : mapping of str to Tensor
        State dict in the dtypes of the contributions.
    solves : mapping of str to Solve
        Diagnostics by block.
    """

    model: Mapping[str, Tensor]
    solves: Mapping[str, Solve]


def fuse(
    contributions: Sequence[Contribution], blocks: Sequence[Block], projection: Projection
) -> Fused:
    """Fuse the contributions of a subset, given in canonical order.

    Parameters not covered by a block take the plain mean; buffers follow
    `testbed.fusion.buffers`.

    Raises
    ------
    FusionError
        If there is no contribution, or one holds numbers that are not finite.
    """
    if not contributions:
        raise FusionError("nothing to fuse: the subset is empty")
    for each in contributions:
        if not each.finite():
            raise FusionError(
                "a contribution holds NaN or infinite numbers: its training diverged; "
                "lower learning.lr"
            )
    model = plain_mean(contributions)
    solves = {}
    for block in blocks:
        c = projection.output_damping if block is blocks[-1] else projection.damping
        w, solves[block.name] = _project(contributions, block, c, projection)
        for name, value in parameters(block, w).items():
            model[name] = value.to(model[name].dtype)
    return Fused(model=model, solves=solves)


def _project(
    contributions: Sequence[Contribution], block: Block, c: float, projection: Projection
) -> tuple[Tensor, Solve]:
    """Return W* (o x i, float64) of one block."""
    w = torch.stack([matrix(block, each.model).double() for each in contributions])
    mean = w.mean(dim=0)
    factors = [each.fisher[block.name] for each in contributions]
    if isinstance(factors[0], Kronecker):
        delta, solve = _kronecker(w - mean, factors, c, projection)
    else:
        delta, solve = _diagonal(w - mean, factors, c)
    return mean + delta, solve


def _kronecker(
    offsets: Tensor, factors: Sequence[object], c: float, projection: Projection
) -> tuple[Tensor, Solve]:
    """Solve sum_k G_k delta A_k + tau delta = sum_k G_k (W_k - W_bar) A_k."""
    pairs = [factor for factor in factors if isinstance(factor, Kronecker)]
    a = torch.stack([pair.a.double() for pair in pairs])
    g = torch.stack([pair.g.double() for pair in pairs])
    tau = c * float((_traces(a) * _traces(g)).sum()) / offsets[0].numel()
    rhs = (g @ offsets @ a).sum(dim=0)
    return KroneckerSum(g, a, tau).solve(rhs, projection.rtol, projection.max_iterations)


def _diagonal(offsets: Tensor, factors: Sequence[object], c: float) -> tuple[Tensor, Solve]:
    """Solve the diagonal system in closed form; coordinates without Fisher keep the mean."""
    f = torch.stack([factor.f.double() for factor in factors if isinstance(factor, Diagonal)])
    total = f.sum(dim=0)
    damped = total + c * float(total.sum()) / total.numel()
    rhs = (f * offsets).sum(dim=0)
    delta = torch.where(damped > 0, rhs / torch.where(damped > 0, damped, 1.0), 0.0)
    return delta, Solve(iterations=0, residual=0.0, converged=True)


def _traces(matrices: Tensor) -> Tensor:
    return matrices.diagonal(dim1=1, dim2=2).sum(dim=1)
