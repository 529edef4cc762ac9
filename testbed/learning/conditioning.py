"""Conditioning of a client's Fisher blocks, done by the client before it uploads them.

Local training drives the Fisher information of well-fitted samples towards zero, at rates
that differ by orders of magnitude between clients, layers and directions, so the plain sum
is ruled by whoever fitted least.  Two steps tame that, and both use what the client knows
alone, so that the coordinator's statistics stay sums over clients:

*Temper.*  F_k becomes F_k^p with p in (0, 1], which draws the eigenvalues together.  The
power of a Kronecker product is the product of the powers: (G (x) A)^p = G^p (x) A^p.

*Normalise.*  F_k becomes n_k F_k / tr(F_k): every client weighs what its data weigh, in
every layer.

With p = 1 and no normalisation the blocks are the paper's own.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from testbed.learning.factors import Diagonal, Factor, Fisher, Kronecker

Normalise = Literal["trace", "none"]


@dataclass(frozen=True)
class Conditioning:
    """How Fisher blocks are conditioned.

    Attributes
    ----------
    temper : float
        p, the power of the block.
    normalise : {"trace", "none"}
    """

    temper: float = 1.0
    normalise: Normalise = "none"


AS_COMPUTED = Conditioning()
"""Blocks are sent as they were computed."""


def condition(blocks: Fisher, samples: int, by: Conditioning) -> dict[str, Factor]:
    """Condition the blocks of a client with `samples` samples.

    Parameters
    ----------
    blocks : mapping of str to Kronecker or Diagonal
    samples : int
        n_k.
    by : Conditioning

    Returns
    -------
    dict of str to Kronecker or Diagonal
        In the dtypes given.  A block that is zero stays zero.
    """
    return {name: _block(block, samples, by) for name, block in blocks.items()}


def _block(block: Factor, samples: int, by: Conditioning) -> Factor:
    match block:
        case Kronecker(a, g):
            # Float64: squares of float32 sums would lose the small eigenvalues.
            a64, g64 = _power(a.double(), by.temper), _power(g.double(), by.temper)
            if by.normalise == "trace":
                a64, g64 = _unit_trace(a64), _unit_trace(g64) * samples
            return Kronecker(a64.to(a.dtype), g64.to(g.dtype))
        case Diagonal(f):
            f64 = f.double() ** by.temper
            if by.normalise == "trace":
                total = f64.sum()
                f64 = f64 * (samples / total) if total > 0 else f64
            return Diagonal(f64.to(f.dtype))


def _power(factor: Tensor, p: float) -> Tensor:
    """Return factor^p of a symmetric positive semi-definite matrix."""
    if p == 1.0 or not bool(factor.isfinite().all()):  # the coordinator refuses the latter
        return factor
    values, vectors = torch.linalg.eigh(factor)
    # Rounding leaves tiny eigenvalues of either sign where the true ones are zero, and a
    # power below one would blow them up.
    floor = values[-1].clamp_min(0.0) * len(values) * torch.finfo(torch.float32).eps
    kept = torch.where(values > floor, values.clamp_min(0.0), 0.0) ** p
    powered: Tensor = (vectors * kept) @ vectors.T
    return (powered + powered.T) / 2


def _unit_trace(factor: Tensor) -> Tensor:
    trace = factor.trace()
    return factor / trace if trace > 0 else factor
