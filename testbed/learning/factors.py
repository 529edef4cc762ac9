"""Fisher information of one layer, in the two forms it is stored in."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from testbed.learning.blocks import Block

Kind = Literal["kfac", "diagonal"]


@dataclass(frozen=True, eq=False)
class Kronecker:
    """K-FAC factors of one block, F = G (x) A for row-major vec(W).

    Attributes
    ----------
    a : Tensor, shape (i, i)
        Input covariance, symmetric positive semi-definite.
    g : Tensor, shape (o, o)
        Output-gradient covariance, symmetric positive semi-definite.
    """

    a: Tensor
    g: Tensor


@dataclass(frozen=True, eq=False)
class Diagonal:
    """Diagonal Fisher of one block, ``f`` of the shape of W, non-negative."""

    f: Tensor


Factor = Kronecker | Diagonal
Fisher = Mapping[str, Factor]


def zero(block: Block, kind: Kind) -> Factor:
    """Return the factor of a block without information; normalisation is always diagonal."""
    if kind == "diagonal" or block.norm:
        return Diagonal(torch.zeros(block.rows, block.columns))
    return Kronecker(
        torch.zeros(block.columns, block.columns), torch.zeros(block.rows, block.rows)
    )
