"""Buffers of a fused model: the part of its state that training counts instead of learns.

Rule, by kind of buffer
-----------------------
running_mean, running_var
    Statistics of the pooled data by the law of total variance, from the moments n_k,
    n_k mu_k and n_k (sigma_k^2 + mu_k^2) that add up over clients.  They describe the local
    models' activations, not the fused one's.
num_batches_tracked, any other integer or boolean buffer
    The maximum over clients, element by element: where clients agree, what they agree on.
    Counts are never averaged.
any other floating buffer
    The plain mean, like a parameter without a Fisher; not treated here.

Sums are taken in float64 over values sorted by size, so not even the order of the clients
changes a bit.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from testbed.learning.contribution import Contribution

_MEAN, _VARIANCE = "running_mean", "running_var"


def pooled(contributions: Sequence[Contribution]) -> dict[str, Tensor]:
    """Return the buffers whose fused value is not the plain mean, in their own dtypes.

    Parameters
    ----------
    contributions : sequence of Contribution
        At least one; all of the same architecture.
    """
    first = contributions[0].model
    fused: dict[str, Tensor] = {}
    for name, value in first.items():
        layer, _, last = name.rpartition(".")
        prefix = f"{layer}." if layer else ""
        if last == _MEAN and prefix + _VARIANCE in first:
            mean, variance = _total_variance(
                [each.samples for each in contributions],
                [each.model[name] for each in contributions],
                [each.model[prefix + _VARIANCE] for each in contributions],
            )
            fused[name] = mean.to(value.dtype)
            fused[prefix + _VARIANCE] = variance.to(first[prefix + _VARIANCE].dtype)
        elif not value.is_floating_point():
            fused[name] = torch.stack([each.model[name] for each in contributions]).amax(dim=0)
    return fused


def _total_variance(
    samples: Sequence[int], means: Sequence[Tensor], variances: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Return mean and variance (C,) of the pooled samples, in float64."""
    n = torch.tensor(samples, dtype=torch.float64)[:, None]
    mu = torch.stack(list(means)).double()
    sigma2 = torch.stack(list(variances)).double()
    mean = _sum(n * mu) / n.sum()
    square = _sum(n * (sigma2 + mu.square())) / n.sum()
    return mean, (square - mean.square()).clamp_min(0)


def _sum(terms: Tensor) -> Tensor:
    """Sum over clients, in an order that depends on the values alone."""
    return terms.sort(dim=0).values.sum(dim=0)
