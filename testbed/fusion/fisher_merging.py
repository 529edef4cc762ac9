"""Fisher merging: a mean of each coordinate, weighted by what clients know about it.

Source: Matena, Raffel, "Merging Models with Fisher-Weighted Averaging", NeurIPS 2022
(arXiv 2111.09832), with the weights and the fallback of the comparison in FedFisher
(AISTATS 2024).

Notation
--------
W_k, n_k  : a client's model, and its number of samples
F_k       : its exact diagonal Fisher, mean over its samples
||F_k||   : its L2 norm over all layers, by which the paper divides it and FedFisher does not
lambda_k  : n_k / sum of n; the paper searches it on validation data, FedFisher does not
floor     : coordinates with sum_k lambda_k F_k below it take sum_k lambda_k W_k

W = sum_k lambda_k F_k W_k / sum_k lambda_k F_k, coordinate by coordinate.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from testbed.fusion.averaging import data_weights, weighted_mean
from testbed.fusion.fsosa import Fused
from testbed.fusion.network import Network
from testbed.learning.blocks import Block, matrix, parameters
from testbed.learning.contribution import Contribution
from testbed.learning.factors import Diagonal


@dataclass(frozen=True)
class Merging:
    """Parameters of the merge.

    Attributes
    ----------
    normalise : bool
        Divide a client's Fisher by its L2 norm: the paper does, FedFisher's code, whose
        figures are compared with, does not.
    floor : float
    """

    normalise: bool = False
    floor: float = 1e-6


PUBLISHED = Merging()


def fuse(
    contributions: Sequence[Contribution],
    network: Network,
    rng: np.random.Generator,
    merging: Merging = PUBLISHED,
) -> Fused:
    """Fuse contributions of statistic ``diagonal``; nothing is random.

    Raises
    ------
    FusionError
        If there is no contribution.
    """
    p = data_weights(contributions)
    model = weighted_mean(contributions)
    fisher = {block.name: _means(block, contributions) for block in network.blocks}
    if merging.normalise:
        squares = sum((f.square().sum(dim=(1, 2)) for f in fisher.values()), torch.zeros(len(p)))
        # A client without any information keeps its zeros.
        p = p / torch.where(squares > 0, squares, 1.0).sqrt()
    for block in network.blocks:
        weights = p[:, None, None] * fisher[block.name]
        total = weights.sum(dim=0)
        w = torch.stack([matrix(block, each.model).double() for each in contributions])
        known = total >= merging.floor
        merged = (weights * w).sum(dim=0) / torch.where(known, total, 1.0)
        mean = matrix(block, model)
        merged = torch.where(known, merged, mean.double())
        model |= parameters(block, merged.to(mean.dtype))
    return Fused(model=model, solves={})


def _means(block: Block, contributions: Sequence[Contribution]) -> Tensor:
    """Return every client's Fisher of a layer, mean over its samples (P, o, i), float64."""
    factors = [(each.fisher[block.name], each.samples) for each in contributions]
    return torch.stack([f.f.double() / n for f, n in factors if isinstance(f, Diagonal)])


def flops(network: Network, members: int) -> int:
    """FLOPs of the norms (2), the weights (1), the two sums (3): six an entry."""
    return 6 * members * sum(block.rows * block.columns for block in network.blocks)
