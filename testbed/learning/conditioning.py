"""Conditioning of a client's Fisher blocks, done by the client before it uploads them.

Local training drives the Fisher information of well-fitted samples towards zero, at rates
that differ by orders of magnitude between clients, layers and directions, so the plain sum
is ruled by whoever fitted least.  Three steps tame that, and all use what the client knows
alone, so that the coordinator's statistics stay sums over clients.

Notation: F_k = G (x) A or a diagonal f, sums over the client's n_k samples.

*Temper.*  G / n_k becomes (G / n_k)^p, or f / n_k becomes (f / n_k)^p, and A becomes A^a,
with p and a in (0, 1]: over-fitting spreads the eigenvalues over decades, those of the
gradients most.

*Shrink.*  Off-diagonal entries of A are multiplied by s, as RegMean does with its Gram
matrices (Jin et al., ICLR 2023): correlations of inputs are what differs most between
clients that see different classes.

*Normalise.*  The block, now F, is divided by (tr(F) / dim F)^q with q in [0, 1]; q = 1
makes clients count by their data alone, but lets a client weigh in that has learned nothing.

At last the block is multiplied by n_k.  With p = a = s = 1 and q = 0 it is the paper's own.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.config.schema import FusionConfig
from testbed.learning.factors import Diagonal, Factor, Fisher, Kronecker


@dataclass(frozen=True)
class Conditioning:
    """How Fisher blocks are conditioned.

    Attributes
    ----------
    temper : float
        p, the power of the gradients' factor.
    temper_inputs : float
        a, the power of the inputs' factor.
    normalise : float
        q, the power of the mean diagonal entry by which the block is divided.
    shrink : float
        s, the factor of the off-diagonal entries of A.
    """

    temper: float = 1.0
    temper_inputs: float = 1.0
    normalise: float = 0.0
    shrink: float = 1.0

    @classmethod
    def from_config(cls, config: FusionConfig) -> "Conditioning":
        """Take what the clients do; damping is the coordinator's."""
        return cls(config.temper, config.temper_inputs, config.normalise, config.shrink)


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
    if by == AS_COMPUTED:
        return dict(blocks)
    return {name: _block(block, samples, by) for name, block in blocks.items()}


def _block(block: Factor, n: int, by: Conditioning) -> Factor:
    # Float64: squares of float32 sums would lose the small eigenvalues.
    match block:
        case Kronecker(a, g):
            a64 = _shrunk(_power(a.double(), by.temper_inputs), by.shrink)
            g64 = _power(g.double() / n, by.temper)
            mean = a64.diagonal().mean() * g64.diagonal().mean()
            return Kronecker(a64.to(a.dtype), (g64 * _weight(mean, n, by)).to(g.dtype))
        case Diagonal(f):
            f64 = (f.double() / n) ** by.temper
            return Diagonal((f64 * _weight(f64.mean(), n, by)).to(f.dtype))


def _weight(mean: Tensor, n: int, by: Conditioning) -> Tensor:
    """Return n / mean^q for a block whose mean diagonal entry is `mean`."""
    return n / mean**by.normalise if mean > 0 else torch.zeros_like(mean)


def _shrunk(factor: Tensor, s: float) -> Tensor:
    return s * factor + (1 - s) * torch.diag(factor.diagonal())


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
