"""RegMean: the linear layer that answers most like the clients' layers on their own inputs.

Source: Jin, Ren, Preotiuc-Pietro, Cheng, "Dataless Knowledge Fusion by Merging Weights of
Language Models", ICLR 2023 (arXiv 2212.09849), with the data weights and the choice of the
comparison in FedFisher (AISTATS 2024).

Notation, per linear layer of shape o x i
-----------------------------------------
W_k     : a client's matrix
Gamma_k : mean Gram matrix (i x i) of its inputs
p_k     : n_k / sum of n, data weight of client k
a       : factor of the off-diagonal entries of Gamma_k

W = (sum_k p_k W_k Gamma_k) (sum_k p_k Gamma_k)^+ minimises sum_k p_k E ||(W - W_k) x||^2 for
a = 1.  It is F-SOSA's fusion with F_k = I (x) p_k Gamma_k, where the sum is regular.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from testbed.fusion.averaging import data_weights, plain_mean
from testbed.fusion.fsosa import Fused
from testbed.fusion.heldout import HeldOut
from testbed.fusion.network import Network
from testbed.learning.blocks import Block, matrix, parameters
from testbed.learning.contribution import Contribution
from testbed.learning.flops import forward_flops
from testbed.learning.gram import linear
from testbed.learning.statistics import HELD_OUT


@dataclass(frozen=True)
class Choice:
    """What is tried on held-out pictures.

    Attributes
    ----------
    off_diagonal : tuple of float
        Values of a, in order of preference among equals.
    """

    off_diagonal: tuple[float, ...] = (0.1, 0.9)


PUBLISHED = Choice()


def fuse(
    contributions: Sequence[Contribution], network: Network, rng: np.random.Generator
) -> Fused:
    """Fuse contributions of statistic ``gram+holdout``; nothing is random.

    Raises
    ------
    FusionError
        If there is no contribution, or no client sent a held-out picture.
    """
    data_weights(contributions)
    held_out = HeldOut.of(contributions)
    candidates = (merge(contributions, network.blocks, a) for a in PUBLISHED.off_diagonal)
    return Fused(model=held_out.best(network.model, candidates), solves={})


def merge(
    contributions: Sequence[Contribution], blocks: Sequence[Block], a: float
) -> dict[str, Tensor]:
    """Return the merged model for one a; all but linear layers take their plain mean."""
    p = data_weights(contributions)[:, None, None]
    model = plain_mean(contributions)
    for block in filter(linear, blocks):
        gram = torch.stack([each.extra[f"gram/{block.name}"].double() for each in contributions])
        gram = p * torch.where(torch.eye(block.columns, dtype=torch.bool), gram, a * gram)
        w = torch.stack([matrix(block, each.model).double() for each in contributions])
        merged = (w @ gram).sum(dim=0) @ torch.linalg.pinv(gram.sum(dim=0), hermitian=True)
        model |= parameters(block, merged.to(model[f"{block.name}.weight"].dtype))
    return model


def flops(network: Network, members: int) -> int:
    """FLOPs of the products W_k Gamma_k, an eigendecomposition (9 i^3), and choosing."""
    merging = sum(
        members * 2 * block.rows * block.columns**2
        + 9 * block.columns**3
        + 2 * block.rows * block.columns**2
        for block in filter(linear, network.blocks)
    )
    choosing = HELD_OUT * forward_flops(network.model, network.shape)
    return len(PUBLISHED.off_diagonal) * (merging + choosing)
