"""One-shot FedAvg: the mean of the clients' models by data weight.

Source: McMahan, Moore, Ramage, Hampson, Agueera y Arcas, "Communication-Efficient Learning
of Deep Networks from Decentralized Data", AISTATS 2017, with a single round.

Notation
--------
n_k, W_k : a client's number of samples, and its model
W        : sum_k p_k W_k with p_k = n_k / sum of n
"""

from collections.abc import Sequence

import numpy as np

from testbed.fusion.averaging import weighted_mean
from testbed.fusion.fsosa import Fused
from testbed.fusion.network import Network
from testbed.learning.contribution import Contribution


def fuse(
    contributions: Sequence[Contribution], network: Network, rng: np.random.Generator
) -> Fused:
    """Fuse contributions of statistic ``model``; nothing is random.

    Raises
    ------
    FusionError
        If there is no contribution.
    """
    return Fused(model=weighted_mean(contributions), solves={})


def flops(network: Network, members: int) -> int:
    """FLOPs of the mean: a multiply-add for every parameter of every client."""
    return 2 * members * sum(each.numel() for each in network.model.parameters())
