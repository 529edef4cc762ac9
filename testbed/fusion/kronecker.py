"""Sums of Kronecker products, F = sum_k G_k (x) A_k + tau I, and the solution of F x = r.

F is never formed: a product with v (o x i) is sum_k G_k v A_k + tau v.  The sum is not
itself a Kronecker product, so it has no cheap inverse; what makes it fast is

1. *A basis.*  In the eigenbases of sum_k G_k and sum_k A_k, F is far from diagonal only
   where its diagonal is large.  The preconditioner inverts the principal submatrix of F on
   the `_COARSE` largest diagonal entries exactly and the rest by its diagonal.  It is used
   with damping only: without, F may be singular and preconditioned iterations would end in
   another solution than the projection.
2. *Rank.*  A client with few samples has a low-rank A_k = U_k^T U_k (pivoted Cholesky), and
   G_k v A_k costs less through U_k.
3. *Precision.*  Inner iterations run in float32; the outer loop computes the residual with
   the full factors in float64 and corrects until that reaches the tolerance, so neither
   rank nor precision touches the answer.  Where float32 cannot follow, plain conjugate
   gradients in float64 take over.

Without damping plain conjugate gradients run in float64.  Memory is O(P (o^2 + i^2)).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from testbed.fusion.solver import Solve, conjugate_gradients

_COARSE, _COARSE_MOST = 3.0, 2000  # rows of the coarse block: 3 sqrt(unknowns), at most 2000
_COARSE_LEAST = 4  # and at most a quarter of the unknowns
_INNER_RTOL = 1e-3
_NEGLECTED = 0.01  # share of tau by which a low-rank factor may be off


@dataclass(frozen=True, eq=False)
class KroneckerSum:
    """F = sum_k G_k (x) A_k + tau I on matrices of shape (o, i).

    Attributes
    ----------
    g : Tensor of float64, shape (P, o, o)
    a : Tensor of float64, shape (P, i, i)
    tau : float
    """

    g: Tensor
    a: Tensor
    tau: float

    def operator(self) -> Callable[[Tensor], Tensor]:
        """Return v -> F v."""
        return _product(self.g, self.a, self.tau)

    def solve(self, rhs: Tensor, rtol: float, max_iterations: int) -> tuple[Tensor, Solve]:
        """Solve F x = r for a float64 `rhs` (o, i); with tau = 0 return F^+ r.

        Returns
        -------
        Tensor
            x, shape (o, i).
        Solve
        """
        if self.tau == 0.0:
            return conjugate_gradients(self.operator(), rhs, rtol, max_iterations)
        # Float32 has a narrow range: bring the mean of F's diagonal to 1.
        traces = _diagonals(self.g).sum(dim=1) * _diagonals(self.a).sum(dim=1)
        scale = float(traces.sum()) / rhs.numel() + self.tau
        scaled = KroneckerSum(self.g / scale, self.a, self.tau / scale)
        return _refine(scaled, rhs / scale, rtol, max_iterations)


def _product(g: Tensor, a: Tensor, tau: float) -> Callable[[Tensor], Tensor]:
    """Return v -> sum_k G_k v A_k + tau v.

    Two large products replace 2 P small ones: first v [A_1 ... A_P], then [G_1 ... G_P]
    applied to the stacked results.
    """
    clients, o, i = len(g), g.shape[1], a.shape[1]
    wide = a.transpose(0, 1).reshape(i, clients * i)
    rows = g.transpose(0, 1).reshape(o, clients * o)

    def product(v: Tensor) -> Tensor:
        stacked = (v @ wide).view(o, clients, i).transpose(0, 1).reshape(clients * o, i)
        return torch.addmm(v, rows, stacked, beta=tau)

    return product


def _low_rank_product(g: Tensor, u: Sequence[Tensor], tau: float) -> Callable[[Tensor], Tensor]:
    """Return v -> sum_k G_k v U_k^T U_k + tau v, with U_k of shape (r_k, i)."""
    tall = torch.cat(list(u))
    wide = tall.T.contiguous()
    bounds = [0, *accumulate(len(each) for each in u)]
    spans = [slice(a, b) for a, b in pairwise(bounds)]

    def product(v: Tensor) -> Tensor:
        right = v @ wide
        left = torch.empty_like(right)
        for each, span in zip(g, spans, strict=True):
            left[:, span] = each @ right[:, span]
        return torch.addmm(v, left, tall, beta=tau)

    return product


def _refine(
    system: KroneckerSum, rhs: Tensor, rtol: float, max_iterations: int
) -> tuple[Tensor, Solve]:
    """Correct x by preconditioned low-precision solves until the true residual is small."""
    true = system.operator()
    norm = float(rhs.norm())
    x = torch.zeros_like(rhs)
    if norm == 0.0:
        return x, Solve(iterations=0, residual=0.0, converged=True)
    basis = _Basis.of(system)
    operator, precondition = basis.operator(), basis.preconditioner()
    iterations, reached, residual = 0, 1.0, rhs
    while reached > rtol and iterations < max_iterations:
        scale = float(residual.norm())
        step, solve = conjugate_gradients(
            operator,
            basis.rotate(residual / scale).float(),
            max(_INNER_RTOL, 0.8 * rtol / reached),
            (max_iterations - iterations + 1) // 2,
            precondition,
        )
        corrected = x + scale * basis.back(step.double())
        remainder = rhs - true(corrected)
        iterations += solve.iterations
        improved = float(remainder.norm()) / norm
        if not improved < reached / 2:
            break
        x, residual, reached = corrected, remainder, improved
    if reached > rtol and iterations < max_iterations:
        # Float32 cannot follow, or the preconditioner misleads: go on the plain way.
        step, solve = conjugate_gradients(
            true, residual, 0.8 * rtol / reached, max_iterations - iterations
        )
        x, iterations = x + step, iterations + solve.iterations
        reached = float((rhs - true(x)).norm()) / norm
    return x, Solve(iterations, reached, converged=reached <= rtol)


@dataclass(frozen=True, eq=False)
class _Basis:
    """The system in the eigenbases of the summed factors.

    Attributes
    ----------
    u_g, u_a : Tensor, shapes (o, o) and (i, i)
        Orthogonal.
    g : Tensor, shape (P, o, o)
        Rotated G_k.
    a : Tensor, shape (P, i, i), or None
        Rotated A_k, unless `u` stands for them.
    u : sequence of P Tensors, shapes (r_k, i), or None
        Rotated low-rank factors, A_k = U_k^T U_k.
    tau : float
    """

    u_g: Tensor
    u_a: Tensor
    g: Tensor
    a: Tensor | None
    u: Sequence[Tensor] | None
    tau: float

    @classmethod
    def of(cls, system: KroneckerSum) -> "_Basis":
        u_g = torch.linalg.eigh(system.g.sum(dim=0)).eigenvectors
        u_a = torch.linalg.eigh(system.a.sum(dim=0)).eigenvectors
        g = u_g.T @ system.g @ u_g
        u = _low_rank(system)
        if u is None:
            return cls(u_g, u_a, g, u_a.T @ system.a @ u_a, None, system.tau)
        return cls(u_g, u_a, g, None, [each @ u_a for each in u], system.tau)

    def rotate(self, v: Tensor) -> Tensor:
        return self.u_g.T @ v @ self.u_a

    def back(self, v: Tensor) -> Tensor:
        return self.u_g @ v @ self.u_a.T

    def operator(self) -> Callable[[Tensor], Tensor]:
        """Return v -> F v in float32, up to what the low-rank factors neglect."""
        g = self.g.float()
        if self.u is None:
            return _product(g, self._full_a().float(), self.tau)
        return _low_rank_product(g, [each.float() for each in self.u], self.tau)

    def preconditioner(self) -> Callable[[Tensor], Tensor]:
        """Exact inverse on the largest diagonal entries, diagonal elsewhere."""
        if self.u is None:
            a_diagonals = _diagonals(self._full_a())
        else:
            a_diagonals = torch.stack([each.square().sum(dim=0) for each in self.u])
        diagonal = _diagonals(self.g).T @ a_diagonals + self.tau
        unknowns, i = diagonal.numel(), diagonal.shape[1]
        size = min(round(_COARSE * unknowns**0.5), _COARSE_MOST, unknowns // _COARSE_LEAST)
        chosen = diagonal.flatten().topk(size).indices
        rows, columns = chosen // i, chosen % i
        block = torch.zeros(size, size, dtype=torch.float64)
        for client in range(len(self.g)):
            g = self.g[client][rows][:, rows]
            if self.u is None:
                block.addcmul_(g, self._full_a()[client][columns][:, columns])
            else:
                u = self.u[client][:, columns]
                block.addcmul_(g, u.T @ u)
        block.diagonal().add_(self.tau)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(block)).float()
        reciprocal = (1 / diagonal).float()

        def precondition(v: Tensor) -> Tensor:
            z = v * reciprocal
            z.view(-1)[chosen] = inverse @ v.reshape(-1)[chosen]
            return z

        return precondition

    def _full_a(self) -> Tensor:
        if self.a is None:
            raise RuntimeError("the rotated A_k were replaced by their low-rank factors")
        return self.a


def _low_rank(system: KroneckerSum) -> list[Tensor] | None:
    """Return U_k (r_k, i) with A_k close to U_k^T U_k, or None where that does not pay.

    Pivoted Cholesky, all clients in step; a client is done once what is left of it is a
    small share of tau in F.
    """
    clients, o, i = len(system.a), system.g.shape[1], system.a.shape[1]
    most = clients * i * (i + o) // (2 * i + o)  # ranks at which the U_k cost what the A_k do
    tiny = torch.finfo(system.a.dtype).tiny
    tolerance = _NEGLECTED * system.tau / _diagonals(system.g).sum(dim=1).clamp_min(tiny)
    everyone = torch.arange(clients)
    left = _diagonals(system.a).clone()
    u = system.a.new_zeros(clients, i, i)
    ranks = torch.zeros(clients, dtype=torch.long)
    for rank in range(i):
        pivot, column = left.max(dim=1)
        open_ = pivot > tolerance
        if not bool(open_.any()):
            return [each[:r] for each, r in zip(u, ranks.tolist(), strict=True)]
        ranks += open_
        if int(ranks.sum()) >= most:
            return None
        known = u[everyone, :rank, column]
        row = system.a[everyone, column] - torch.bmm(known.unsqueeze(1), u[:, :rank]).squeeze(1)
        row *= torch.where(open_, pivot.clamp_min(tiny).rsqrt(), 0.0).unsqueeze(1)
        u[:, rank] = row
        left -= row.square()
        left[everyone, column] = 0.0
    return None


def _diagonals(matrices: Tensor) -> Tensor:
    return matrices.diagonal(dim1=1, dim2=2)
