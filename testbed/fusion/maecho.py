"""MA-Echo: models move where their own inputs do not notice, until they meet.

Source: Su, Li, Xue, "One-shot Federated Learning without Server-side Training", Neural
Networks 2023 (arXiv 2204.12493), and the behaviour of the authors' published code.

Notation, per layer of shape o x i
----------------------------------
W_k, W  : a client's matrix, which moves, and the global one; W starts at the plain mean
P_k     : the client's projector (i x i), see `testbed.learning.projector`
N       : number of clients
lambda  : step

    W   <- W + (lambda / N) sum_k (W - W_k) (P_k - I)
    W_k <- W_k + lambda (W - W_k) P_k            with rows brought to length 1 by CNNs

The fused layer is the mean of the moved W_k.  The last layer does not move: row c is the mean
over the clients that own class c, that is, have at least two samples of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from testbed.errors import FusionError
from testbed.fusion.averaging import data_weights, plain_mean
from testbed.fusion.fsosa import Fused
from testbed.fusion.network import Network
from testbed.learning.blocks import Block, matrix, parameters
from testbed.learning.contribution import Contribution


@dataclass(frozen=True)
class Iteration:
    """Parameters of the server's iteration.

    Attributes
    ----------
    iterations : int
    step : float
        lambda.
    normalise : bool
        Bring every row of a client's move to length lambda.
    owned : int
        Samples of a class from which on a client owns it.
    """

    iterations: int
    step: float
    normalise: bool
    owned: int = 2


LINEAR = Iteration(iterations=60, step=1.6, normalise=False)  # MLP on MNIST
CONVOLUTIONAL = Iteration(iterations=300, step=0.05, normalise=True)  # CNN on CIFAR-10


def constants(network: Network) -> Iteration:
    """Return the published parameters for networks with or without convolutions."""
    return CONVOLUTIONAL if any(len(each.shape) == 4 for each in network.blocks) else LINEAR


def fuse(
    contributions: Sequence[Contribution], network: Network, rng: np.random.Generator
) -> Fused:
    """Fuse contributions of statistic ``projector+classes``; nothing is random.

    Normalisation layers have no projector and take the plain mean.

    Raises
    ------
    FusionError
        If there is no contribution, or the network's last layer has no row for each class.
    """
    data_weights(contributions)
    by, last = constants(network), _last(network)
    model = plain_mean(contributions)
    for block in network.blocks:
        w = torch.stack([matrix(block, each.model) for each in contributions])
        if block is last:
            fused = _by_owner(w, contributions, by)
        elif not block.norm:
            p = torch.stack([each.extra[f"projector/{block.name}"] for each in contributions])
            fused = meet(w, p.to(w.dtype), by)
        else:
            continue
        model |= parameters(block, fused)
    return Fused(model=model, solves={})


def meet(local: Tensor, projectors: Tensor, by: Iteration) -> Tensor:
    """Return the mean (o, i) of the clients' matrices (N, o, i) once they have moved."""
    w = local.mean(dim=0)
    for _ in range(by.iterations):
        offsets = w - local
        w = w + by.step * (offsets @ projectors - offsets).mean(dim=0)
        moves = (w - local) @ projectors
        if by.normalise:
            moves = functional.normalize(moves, dim=2)
        local = local + by.step * moves
    return local.mean(dim=0)


def _by_owner(w: Tensor, contributions: Sequence[Contribution], by: Iteration) -> Tensor:
    """Return the mean of each row over the clients that own its class; over all if none does."""
    owns = torch.stack([each.extra["classes"] for each in contributions]) >= by.owned
    owns = owns | ~owns.any(dim=0)
    shares = owns.to(w.dtype) / owns.sum(dim=0)
    return (shares[:, :, None] * w).sum(dim=0)


def _last(network: Network) -> Block:
    last = network.blocks[-1]
    if len(last.shape) != 2 or last.rows != network.classes:
        raise FusionError(
            f"MA-Echo takes the last layer class by class, but '{last.name}' is no linear layer "
            f"with {network.classes} outputs; use a network that ends in one"
        )
    return last


def flops(network: Network, members: int) -> int:
    """FLOPs of two products with a projector per client, layer and iteration."""
    moving = (each for each in network.blocks[:-1] if not each.norm)
    products = sum(2 * 2 * block.rows * block.columns**2 for block in moving)
    return constants(network).iterations * members * products
