"""Symmetric factors A_k as a diagonal plus few rows, A_k = diag(d_k) + Z_k^T Z_k.

The inputs of n_k samples give a factor of rank n_k at most, often less; shrinkage
(`testbed.learning.conditioning`) scales its off-diagonal entries by s, which makes it
s L_k + (1 - s) diag(L_k), regular but no more complex.  The coordinator is not told s: the
least eigenvalue of the factor, scaled to a unit diagonal, is 1 - s if L_k is singular, and
so is that of a principal submatrix larger than the rank of L_k.
"""

import torch
from torch import Tensor

_SAMPLE = 80  # size of the submatrix that tells 1 - s
_DEAD = 1e-6  # inputs with less than this share of the largest diagonal entry tell nothing
_LEAST = 0.01  # a smaller 1 - s is rounding


def diagonals(a: Tensor) -> Tensor:
    """Return d (P, i), the diagonals that the factors (P, i, i) exceed a simpler matrix by."""
    return torch.stack([_share(each) * each.diagonal() for each in a])


def _share(factor: Tensor) -> Tensor:
    """Return 1 - s."""
    diagonal = factor.diagonal()
    live = (diagonal > _DEAD * diagonal.max()).nonzero().flatten()
    if len(live) == 0:
        return diagonal.new_zeros(())
    chosen = live[torch.linspace(0, len(live) - 1, min(_SAMPLE, len(live))).round().long()]
    scale = diagonal[chosen].rsqrt()
    unit = factor[chosen.unsqueeze(1), chosen] * scale.outer(scale)
    least = torch.linalg.eigvalsh(unit)[0]
    return torch.where(least < _LEAST, 0.0, least)


def rows(a: Tensor, d: Tensor, tolerance: Tensor, most: int) -> list[Tensor] | None:
    """Return Z_k (r_k, i) with A_k close to diag(d_k) + Z_k^T Z_k, or None where that is long.

    Pivoted Cholesky, all clients in step; a client is done once the largest diagonal entry
    of what is left of it meets the tolerance.

    Parameters
    ----------
    a, d : Tensor of float64, shapes (P, i, i) and (P, i)
    tolerance : Tensor, shape (P,)
    most : int
        The rows that all Z_k together stay below.

    Returns
    -------
    list of P Tensors, shapes (r_k, i), or None
        Orthogonal rows.
    """
    clients, i = d.shape
    tiny = torch.finfo(a.dtype).tiny
    everyone = torch.arange(clients)
    left = a.diagonal(dim1=1, dim2=2) - d
    u = a.new_zeros(clients, i, i)
    ranks = torch.zeros(clients, dtype=torch.long)
    for rank in range(i):
        pivot, column = left.max(dim=1)
        open_ = pivot > tolerance
        if not bool(open_.any()):
            return [_orthogonal(each[:r]) for each, r in zip(u, ranks.tolist(), strict=True)]
        ranks += open_
        if int(ranks.sum()) >= most:
            return None
        known = u[everyone, :rank, column]
        row = a[everyone, column] - torch.bmm(known.unsqueeze(1), u[:, :rank]).squeeze(1)
        row[everyone, column] = pivot
        row *= torch.where(open_, pivot.clamp_min(tiny).rsqrt(), 0.0).unsqueeze(1)
        u[:, rank] = row
        left -= row.square()
        left[everyone, column] = 0.0
    return None


def _orthogonal(rows: Tensor) -> Tensor:
    """Return Z with orthogonal rows and Z^T Z = U^T U."""
    vectors: Tensor = torch.linalg.eigh(rows @ rows.T).eigenvectors
    return vectors.T @ rows
