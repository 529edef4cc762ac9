"""FedLPA: layer-wise posterior aggregation with the empirical K-FAC Fisher.

Source: Liu, Wang, Wang, Chen, He et al., "FedLPA: One-shot Federated Learning with
Layer-Wise Posterior Aggregation", NeurIPS 2024 (arXiv 2310.00339), and the behaviour of the
authors' published code.

Notation, per layer of shape o x i
----------------------------------
W_k, p_k : a client's matrix, and its data weight n_k / sum of n
A_k, G_k : its factors with true labels, means over its samples; of a convolution with T
           locations A_k = E[sum_t a a^T] / T^2 and G_k = T E[sum_t g g^T]
c        : sqrt(1 - 0.999), added to the diagonal of either factor (paper: coordinator)
F        : sum_k p_k G_k (x) A_k with damped factors
Z        : sum_k p_k G_k W_k A_k

The layer should solve F W = Z.  Two answers are computed:

closed   : (sum_k p_k G_k)^-1 Z (sum_k p_k A_k)^-1, exact if all A_k or all G_k agree
descended: 10,000 steps of gradient descent with rate 1 on mean((F W - Z)^2) from there

The authors report the one with the better *test* accuracy; here the clients' held-out
pictures decide between the two models.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.fft import dct
from torch import Tensor, nn

from testbed.fusion.averaging import data_weights, weighted_mean
from testbed.fusion.fsosa import Fused
from testbed.fusion.heldout import HeldOut
from testbed.fusion.kronecker import KroneckerSum
from testbed.fusion.network import Network
from testbed.learning.blocks import Block, matrix, parameters
from testbed.learning.contribution import Contribution
from testbed.learning.factors import Kronecker
from testbed.learning.flops import forward_flops
from testbed.learning.inputs import inputs_like
from testbed.learning.patches import padded, patches
from testbed.learning.statistics import HELD_OUT

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Descent:
    """Parameters of FedLPA, the published ones.

    Attributes
    ----------
    damping : float
        c.
    steps : int
    lr : float
    """

    damping: float = sqrt(1 - 0.999)
    steps: int = 10_000
    lr: float = 1.0


PUBLISHED = Descent()
_TAIL = 1e-10  # Chebyshev coefficients from which on a series is cut off
_LONGEST = 4096
_POWER, _MARGIN = 100, 1.05  # steps of the power method, and what it may miss
_TYPICAL = 300  # products that a layer's descent is charged for


def fuse(
    contributions: Sequence[Contribution], network: Network, rng: np.random.Generator
) -> Fused:
    """Fuse contributions of statistic ``empirical+holdout``; nothing is random.

    Normalisation layers have no K-FAC factors and take the mean by data weight.

    Raises
    ------
    FusionError
        If there is no contribution, or no client sent a held-out picture.
    """
    closed = weighted_mean(contributions)
    held_out = HeldOut.of(contributions)
    descended, stable = dict(closed), True
    locations = _locations(network)
    for block in network.blocks:
        if block.norm:
            continue
        system, z = equations(contributions, block, locations.get(block.name, 1))
        start = torch.linalg.solve(
            system.g.sum(dim=0), z @ torch.linalg.inv(data_mean(contributions, system.a))
        )
        end = descend(system, z, start)
        stable = stable and end is not None
        dtype = closed[f"{block.name}.weight"].dtype
        closed |= parameters(block, start.to(dtype))
        descended |= parameters(block, (start if end is None else end).to(dtype))
    # Among equals the authors prefer the closed answer; a descent that diverged is none.
    candidates = [closed, descended] if stable else [closed]
    return Fused(model=held_out.best(network.model, candidates), solves={})


def data_mean(contributions: Sequence[Contribution], values: Tensor) -> Tensor:
    """Return sum_k p_k values_k."""
    mean: Tensor = torch.tensordot(data_weights(contributions), values, dims=1)
    return mean


def equations(
    contributions: Sequence[Contribution], block: Block, locations: int
) -> tuple[KroneckerSum, Tensor]:
    """Return F, with p_k in its G_k, and Z (o x i, float64) of a layer."""
    p = data_weights(contributions)[:, None, None]
    factors = [(each.fisher[block.name], each.samples) for each in contributions]
    pairs = [(f, n) for f, n in factors if isinstance(f, Kronecker)]
    a = torch.stack([f.a.double() for f, _ in pairs]) / locations**2
    g = torch.stack([f.g.double() / n for f, n in pairs]) * locations**2
    c = PUBLISHED.damping
    a = a + c * torch.eye(block.columns, dtype=torch.float64)
    g = p * (g + c * torch.eye(block.rows, dtype=torch.float64))
    w = torch.stack([matrix(block, each.model).double() for each in contributions])
    return KroneckerSum(g, a, tau=0.0), (g @ w @ a).sum(dim=0)


def descend(
    system: KroneckerSum, z: Tensor, start: Tensor, by: Descent = PUBLISHED
) -> Tensor | None:
    """Return where gradient descent on mean((F W - Z)^2) arrives; None if it diverges.

    With eta = 2 lr / (o i) the steps W <- W - eta F (F W - Z) lead after n of them to

        W_n = W_0 + h(F) (Z - F W_0),    h(x) = (1 - (1 - eta x^2)^n) / x.

    h is a smooth function on F's spectrum, so a Chebyshev series of a few hundred products
    with F replaces 2 n of them, to the last digits.
    """
    eta = 2 * by.lr / z.numel()
    stable = sqrt(2 / eta)  # the largest eigenvalue at which steps do not grow
    # The norm of a sum is at most the sum of the norms.
    top = float((_norms(system.g) * _norms(system.a)).sum())
    end = stable
    if top > stable:
        largest = _largest(system)
        if largest > stable:
            return None
        end = min(stable, _MARGIN * largest)  # no eigenvalue beyond, and h smooth up to `top`

    def h(x: Array) -> Array:
        q = eta * np.minimum(x, end) ** 2
        shrunk = -np.expm1(by.steps * np.log1p(-np.minimum(q, 0.5)))  # exact for small q
        value: Array = np.where(q < 0.5, shrunk, 1 - (1 - q) ** by.steps) / x
        return value

    coefficients = _chebyshev(h, top)
    product = system.operator()
    before = z - product(start)
    total = start + coefficients[0] * before

    def shifted(v: Tensor) -> Tensor:
        return (2 / top) * product(v) - v

    current = shifted(before)
    for coefficient in coefficients[1:]:
        total = total + coefficient * current
        before, current = current, 2 * shifted(current) - before
    return total


def _chebyshev(h: Callable[[Array], Array], top: float) -> list[float]:
    """Return as many Chebyshev coefficients of a function on [0, top] as it takes."""
    size = 16
    while True:
        angles = np.pi * (np.arange(size) + 0.5) / size
        coefficients = dct(h(top * (np.cos(angles) + 1) / 2)) / size
        coefficients[0] /= 2
        kept = np.flatnonzero(np.abs(coefficients) > _TAIL * np.abs(coefficients).max())
        if kept[-1] < size // 2 or size >= _LONGEST:
            return [float(each) for each in coefficients[: kept[-1] + 1]]
        size *= 2


def _norms(matrices: Tensor) -> Tensor:
    """Return the largest eigenvalue of each matrix."""
    values: Tensor = torch.linalg.eigvalsh(matrices)
    return values[:, -1]


def _largest(system: KroneckerSum) -> float:
    """Return F's largest eigenvalue by the power method, from below."""
    product = system.operator()
    v = torch.ones(system.g.shape[1], system.a.shape[1], dtype=torch.float64)
    for _ in range(_POWER):
        v = product(v)
        v = v / v.norm()
    return float((v * product(v)).sum())


def _locations(network: Network) -> dict[str, int]:
    """Return T of each convolution."""
    inputs = inputs_like(network.model, network.shape)
    found = {}
    for name, x in inputs.items():
        module = network.model.get_submodule(name)
        if isinstance(module, nn.Conv2d):
            found[name] = patches(module, padded(module, x)).shape[-1]
    return found


def flops(network: Network, members: int) -> int:
    """FLOPs of the closed answer, of some hundred products with F, and of choosing."""
    total = 2 * HELD_OUT * forward_flops(network.model, network.shape)
    for block in network.blocks:
        o, i = block.rows, block.columns
        if not block.norm:
            total += _TYPICAL * members * 2 * (o * o * i + o * i * i) + 2 * (o**3 + i**3)
    return total
