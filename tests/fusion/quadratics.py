"""Quadratic clients: hand-made factors in float64, and the same as dense linear algebra.

Nothing but the projection is tested with them.  Dense means Kronecker products formed in full.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from testbed.fusion import fsosa
from testbed.fusion.fsosa import Fused
from testbed.learning.blocks import Block
from testbed.learning.conditioning import Conditioning, condition
from testbed.learning.contribution import Contribution
from testbed.learning.factors import Diagonal, Kronecker


@dataclass(frozen=True)
class Projection(fsosa.Projection):
    """A projection, and what clients with one sample each do to their blocks before it.

    The only layer is no output layer here: `damping` holds for every block.
    """

    normalise: float = 1.0


def fuse(contributions: Sequence[Contribution], blocks: Sequence[Block], by: Projection) -> Fused:
    conditioning = Conditioning(normalise=by.normalise)
    received = [
        replace(each, fisher=condition(each.fisher, 1, conditioning)) for each in contributions
    ]
    return fsosa.fuse(received, blocks, replace(by, output_damping=by.damping))


PLAIN = Projection(normalise=0.0, damping=0.0, rtol=1e-13, max_iterations=5000)
TRACE = replace(PLAIN, normalise=1.0)
LAYER = Block("fc", (3, 5), bias=False)


def psd(rng: np.random.Generator, size: int, rank: int) -> Tensor:
    half = rng.standard_normal((size, rank))
    return torch.from_numpy(half @ half.T / rank)


def client(w: Tensor, factor: Kronecker | Diagonal, **rest: Tensor) -> Contribution:
    return Contribution(1, {"fc.weight": w, **rest}, {"fc": factor})


def federation(
    clients: int, rank_a: int, rank_g: int, seed: int = 0, shape: tuple[int, int] = (3, 5)
) -> list[Contribution]:
    rng = np.random.default_rng(seed)
    rows, columns = shape
    return [
        client(
            torch.from_numpy(rng.standard_normal(shape)),
            Kronecker(a=psd(rng, columns, rank_a), g=psd(rng, rows, rank_g)),
        )
        for _ in range(clients)
    ]


def dense(contributions: Sequence[Contribution], weights: Sequence[float] | None = None):
    """Return F, W_bar and r = b - F W_bar, of row-major vec(W)."""
    blocks = [np.kron(c.fisher["fc"].g.numpy(), c.fisher["fc"].a.numpy()) for c in contributions]
    if weights is not None:
        blocks = [weight * block for weight, block in zip(weights, blocks, strict=True)]
    models = [c.model["fc.weight"].numpy().reshape(-1) for c in contributions]
    mean = np.mean(models, axis=0)
    r = sum(block @ (model - mean) for block, model in zip(blocks, models, strict=True))
    return sum(blocks), mean, r


def vector(fused: Fused) -> np.ndarray:
    return fused.model["fc.weight"].numpy().reshape(-1)


def traces(contributions: Sequence[Contribution]) -> list[float]:
    return [float(c.fisher["fc"].a.trace() * c.fisher["fc"].g.trace()) for c in contributions]


def steep(
    clients: int, shape: tuple[int, int], decades: float, rank: int, scale: float = 1.0
) -> list[Contribution]:
    """Clients whose factors' eigenvalues fall by `decades`, then to zero, in their own bases."""
    rng = np.random.default_rng(0)

    def factor(size: int, rank: int) -> Tensor:
        basis = np.linalg.qr(rng.standard_normal((size, size)))[0]
        values = 10.0 ** (-decades * np.arange(size) / (size - 1)) * scale
        values[rank:] = 0.0
        return torch.from_numpy(basis * values @ basis.T)

    common = rng.standard_normal(shape)
    return [
        client(
            torch.from_numpy(common + 0.3 * rng.standard_normal(shape)),
            Kronecker(a=factor(shape[1], rank), g=factor(shape[0], shape[0] - 1)),
        )
        for _ in range(clients)
    ]


def diagonals(seed: int = 0) -> list[Contribution]:
    rng = np.random.default_rng(seed)
    f = rng.random((4, 3, 5)) * 10.0 ** rng.uniform(-6, 0, (4, 3, 5))
    f[:, 1, 2] = 0.0  # nobody knows this one
    f[:2, 0, 4] = 0.0
    return [
        client(torch.from_numpy(rng.standard_normal((3, 5))), Diagonal(torch.from_numpy(each)))
        for each in f
    ]
