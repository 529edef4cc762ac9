"""FedFisher's server optimiser, the iterative ancestor of F-SOSA's projection.

Source: Jhunjhunwala, Wang, Joshi, "FedFisher: Leveraging Fisher Information for One-Shot
Federated Learning", AISTATS 2024 (arXiv 2403.12329), and the behaviour of the authors'
published code where the paper leaves a choice.

Notation, per layer
-------------------
p_k : n_k / n, data weight of client k
F_k : Fisher block, here a sum over the client's samples, so p_k (F_k / n_k) = F_k / n
v   : (1/n) sum_k F_k (W - W_k), the gradient of the fusion objective over two
m, s: momentum of v, and discounted sum of v^2 (neither is bias-corrected)

From W = sum_k p_k W_k the server takes 2,000 steps W <- W - eta m / sqrt(s + eps) for
K-FAC and W <- W - eta m / (sqrt(s) + eps) for a diagonal Fisher.  Every 100 steps it looks
at held-out pictures, and it returns the best iterate: unlike F-SOSA it needs such pictures.
The authors' server holds 500 of its own; here clients send them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from testbed.fusion.averaging import weighted_mean
from testbed.fusion.fsosa import Fused
from testbed.fusion.heldout import HeldOut
from testbed.fusion.kronecker import KroneckerSum
from testbed.fusion.network import Network
from testbed.learning.blocks import Block, matrix, parameters
from testbed.learning.contribution import Contribution
from testbed.learning.factors import Diagonal, Kind, Kronecker
from testbed.learning.flops import forward_flops
from testbed.learning.statistics import HELD_OUT

Validate = Callable[[Mapping[str, Tensor]], float]


@dataclass(frozen=True)
class Optimiser:
    """Parameters of the server optimiser, FedFisher's own values.

    Attributes
    ----------
    steps, every : int
        Steps in all, and between two validations.
    lr, momentum, decay, eps : float
        eta, and the factors of m, of s, and inside the denominator.
    """

    steps: int = 2000
    every: int = 100
    lr: float = 0.01
    momentum: float = 0.9
    decay: float = 0.99
    eps: float = 0.01


@dataclass(frozen=True)
class Best:
    """The iterate that validated best.

    Attributes
    ----------
    model : mapping of str to Tensor
    step : int
    value : float
        What `validate` said of it.
    """

    model: Mapping[str, Tensor]
    step: int
    value: float


PUBLISHED = Optimiser()


def fuse(
    contributions: Sequence[Contribution], network: Network, rng: np.random.Generator
) -> Fused:
    """Fuse contributions of statistic ``kfac+holdout`` or ``diagonal+holdout``.

    Nothing is random.

    Raises
    ------
    FusionError
        If there is no contribution, or no client sent a held-out picture.
    """
    start = weighted_mean(contributions)
    held_out = HeldOut.of(contributions)
    best = descend(
        contributions, network.blocks, start, lambda state: held_out.accuracy(network.model, state)
    )
    return Fused(model=best.model, solves={})


def descend(
    contributions: Sequence[Contribution],
    blocks: Sequence[Block],
    start: Mapping[str, Tensor],
    validate: Validate,
    optimiser: Optimiser = PUBLISHED,
) -> Best:
    """Descend from `start` and return the iterate that `validate` likes best.

    Parameters
    ----------
    contributions : sequence of Contribution
    blocks : sequence of Block
        Parameters outside every block stay as they start.
    start : mapping of str to Tensor
        The mean by data weight, in FedFisher.
    validate : callable
        Model -> score on held-out data, higher is better.
    optimiser : Optimiser
    """
    total = sum(each.samples for each in contributions)
    layers = [
        _Layer(block, contributions, total, matrix(block, start), optimiser) for block in blocks
    ]
    best = Best(start, 0, validate(start))
    for step in range(1, optimiser.steps + 1):
        for layer in layers:
            layer.step()
        if step % optimiser.every == 0:
            model = dict(start)
            for layer in layers:
                model.update(parameters(layer.block, layer.w.clone()))
            value = validate(model)
            if value > best.value:
                best = Best(model, step, value)
    return best


def flops(network: Network, members: int, kind: Kind = "kfac") -> int:
    """FLOPs of all steps and validations: a product F W, and ten an entry for the step."""
    step = 0
    for block in network.blocks:
        o, i = block.rows, block.columns
        dense = kind == "kfac" and not block.norm
        step += 10 * o * i + (members * 2 * (o * o * i + o * i * i) if dense else 2 * o * i)
    validation = HELD_OUT * forward_flops(network.model, network.shape)
    checks = 1 + PUBLISHED.steps // PUBLISHED.every
    return PUBLISHED.steps * step + checks * validation


def diagonal_flops(network: Network, members: int) -> int:
    """FLOPs with a diagonal Fisher."""
    return flops(network, members, "diagonal")


class _Layer:
    """One layer's descent."""

    def __init__(
        self,
        block: Block,
        contributions: Sequence[Contribution],
        total: int,
        start: Tensor,
        optimiser: Optimiser,
    ) -> None:
        self.block, self.w, self._optimiser = block, start.clone(), optimiser
        factors = [each.fisher[block.name] for each in contributions]
        local = [matrix(block, each.model) for each in contributions]
        self._operator, self._b = _system(factors, local, total)
        self._kfac = isinstance(factors[0], Kronecker)
        self._m, self._s = torch.zeros_like(start), torch.zeros_like(start)

    def step(self) -> None:
        """Take one step."""
        by = self._optimiser
        v = self._operator(self.w) - self._b
        self._m.mul_(by.momentum).add_(v)
        self._s.mul_(by.decay).addcmul_(v, v)
        scale = (self._s + by.eps).sqrt() if self._kfac else self._s.sqrt() + by.eps
        self.w.addcdiv_(self._m, scale, value=-by.lr)


def _system(
    factors: Sequence[object], local: Sequence[Tensor], total: int
) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """Return W -> (1/n) sum F_k W, and b = (1/n) sum F_k W_k."""
    pairs = [factor for factor in factors if isinstance(factor, Kronecker)]
    w = torch.stack(list(local))
    if pairs:
        a = torch.stack([pair.a for pair in pairs])
        g = torch.stack([pair.g for pair in pairs]) / total
        return KroneckerSum(g, a, tau=0.0).operator(), (g @ w @ a).sum(dim=0)
    f = torch.stack([factor.f for factor in factors if isinstance(factor, Diagonal)]) / total
    summed = f.sum(dim=0)
    return lambda v: summed * v, (f * w).sum(dim=0)
