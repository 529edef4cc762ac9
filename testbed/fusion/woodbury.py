"""An approximate inverse of F = sum_k G_k (x) A_k + tau I for conjugate gradients.

F is a sum over clients of a few large rank-one terms, each an eigenvector of some G_k (x)
A_k, and a remainder that is nearly diagonal in the eigenbases of sum_k G_k and sum_k A_k.
So F is close to M = D + W W^T, with D diagonal and in W the largest terms of all clients,
and by the Woodbury identity

    M^-1 = D^-1 - D^-1 W S^-1 W^T D^-1,    S = I + W^T D^-1 W.

A column of W is x (x) z, so W is never formed, and S is the product, entry by entry, of a
Gram matrix of the x and one of the z.  That asks for a D^-1 which is constant over runs of
rows; in the eigenbasis, where rows are sorted, neighbours are alike.  The difference cancels
in directions where F is large: all of it is float64.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from testbed.fusion.solver import Operator

_RUNS = 8
_FLOOR = 1e-10  # least of D as a share of F's largest diagonal entry: S must stay regular


def woodbury(g: Tensor, z: Sequence[Tensor], diagonal: Tensor, tau: float, size: int) -> Operator:
    """Return v -> M^-1 v.

    Parameters
    ----------
    g : Tensor of float64, shape (P, o, o)
        In the eigenbasis of the sum, eigenvalues ascending.
    z : sequence of P Tensors of float64, shapes (r_k, i)
        Orthogonal rows with A_k at least Z_k^T Z_k, in the eigenbasis of the sum.
    diagonal : Tensor, shape (o, i)
        Of F.
    tau : float
        Positive.
    size : int
        Number of columns of W.
    """
    values, vectors = torch.linalg.eigh(g)
    rows = torch.cat(list(z))
    client = torch.repeat_interleave(torch.tensor([len(each) for each in z]))
    products = rows.square().sum(dim=1, keepdim=True) * values[client].clamp_min(0.0)
    largest = products.flatten().topk(min(size, products.numel())).indices
    row, p = torch.unravel_index(largest, products.shape)
    # Columns of W share their z: keep each once, and who uses which.
    used, slot = torch.unique(row, return_inverse=True)
    z_used = rows[used]
    x = vectors[client[row], :, p] * values[client[row], p].clamp_min(0.0).sqrt().unsqueeze(1)

    left = diagonal - x.square().T @ z_used.square()[slot]
    left.clamp_min_(max(tau, _FLOOR * float(diagonal.max())))
    inverse_d = torch.empty_like(left)
    s = torch.eye(len(x), dtype=x.dtype)
    for run in torch.arange(len(left)).chunk(_RUNS):
        inverse_d[run] = weights = (-left[run].log().mean(dim=0)).exp()
        gram = (z_used * weights) @ z_used.T
        s.addcmul_(x[:, run] @ x[:, run].T, gram.index_select(1, slot).index_select(0, slot))
    inverse_s = torch.cholesky_inverse(torch.linalg.cholesky(s))

    def precondition(v: Tensor) -> Tensor:
        scaled = v.double() * inverse_d
        c = inverse_s @ (x * (z_used @ scaled.T)[slot]).sum(dim=1)
        back = x.new_zeros(len(z_used), x.shape[1]).index_add_(0, slot, x * c.unsqueeze(1))
        solved: Tensor = scaled - (back.T @ z_used) * inverse_d
        return solved.to(v.dtype)

    return precondition
