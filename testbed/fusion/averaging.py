"""Mean models, which methods start from or end in: by data weight (FedAvg), and plain."""

from collections.abc import Sequence

import torch
from torch import Tensor

from testbed.errors import FusionError
from testbed.fusion.buffers import pooled
from testbed.learning.contribution import Contribution


def data_weights(contributions: Sequence[Contribution]) -> Tensor:
    """Return p_k = n_k / sum of n (float64).

    Raises
    ------
    FusionError
        If there is no contribution.
    """
    if not contributions:
        raise FusionError("nothing to fuse: no client contributed")
    samples = torch.tensor([each.samples for each in contributions], dtype=torch.float64)
    return samples / samples.sum()


def weighted_mean(contributions: Sequence[Contribution]) -> dict[str, Tensor]:
    """Return sum_k p_k W_k in the dtypes of the models; buffers are pooled."""
    p = data_weights(contributions)
    mean = {
        name: torch.tensordot(
            p, torch.stack([each.model[name].double() for each in contributions]), dims=1
        ).to(value.dtype)
        for name, value in contributions[0].model.items()
    }
    return mean | pooled(contributions)


def plain_mean(contributions: Sequence[Contribution]) -> dict[str, Tensor]:
    """Return the mean in which every client counts for one; buffers are pooled."""
    first = contributions[0].model
    mean = {
        name: torch.stack([each.model[name].double() for each in contributions])
        .mean(dim=0)
        .to(value.dtype)
        for name, value in first.items()
    }
    return mean | pooled(contributions)
