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

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.fusion.solver import Solve, conjugate_gradients

_COARSE = 600
_COARSE_SHARE = 4  # the coarse block covers at most a quarter of the unknowns
_INNER_RTOL = 1e-4
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


def _product(
    g: Tensor, right: Tensor, tau: float, left: Tensor | None = None
) -> Callable[[Tensor], Tensor]:
    """Return v -> sum_k G_k v R_k L_k + tau v, with R_k (P, i, r) and L_k (P, r, i).

    Without `left`, R_k is A_k itself.  Large products replace 2 P small ones: first
    v [R_1 ... R_P], then [G_1 ... G_P] applied to the stacked results.
    """
    clients, i, r = right.shape
    o = g.shape[1]
    wide = right.transpose(0, 1).reshape(i, clients * r)
    if left is None:
        rows = g.transpose(0, 1).reshape(o, clients * o)

        def full(v: Tensor) -> Tensor:
            stacked = (v @ wide).view(o, clients, r).transpose(0, 1).reshape(clients * o, r)
            return torch.addmm(v, rows, stacked, beta=tau)

        return full
    tall = left.reshape(clients * r, i)

    def factored(v: Tensor) -> Tensor:
        stacked = (v @ wide).view(o, clients, r).transpose(0, 1)
        middle = torch.bmm(g, stacked).transpose(0, 1).reshape(o, clients * r)
        return torch.addmm(v, middle, tall, beta=tau)

    return factored


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
            max(_INNER_RTOL, 0.5 * rtol / reached),
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
            true, residual, 0.5 * rtol / reached, max_iterations - iterations
        )
        x, iterations = x + step, iterations + solve.iterations
        reached = float((rhs - true(x)).norm()) / norm
    return x, Solve(iterations, reached, converged=reached <= rtol)


@dataclass(frozen=True, eq=False)
class _Basis:
    """The system in the eigenbases of the summed factors."""

    u_g: Tensor
    u_a: Tensor
    g: Tensor
    a: Tensor
    low_rank: Tensor | None
    tau: float

    @classmethod
    def of(cls, system: KroneckerSum) -> "_Basis":
        u_g = torch.linalg.eigh(system.g.sum(dim=0)).eigenvectors
        u_a = torch.linalg.eigh(system.a.sum(dim=0)).eigenvectors
        g = u_g.T @ system.g @ u_g
        u = _low_rank(system)
        a = u_a.T @ system.a @ u_a
        return cls(u_g, u_a, g, a, None if u is None else u @ u_a, system.tau)

    def rotate(self, v: Tensor) -> Tensor:
        return self.u_g.T @ v @ self.u_a

    def back(self, v: Tensor) -> Tensor:
        return self.u_g @ v @ self.u_a.T

    def operator(self) -> Callable[[Tensor], Tensor]:
        """Return v -> F v in float32, up to what the low-rank factors neglect."""
        g = self.g.float()
        if self.low_rank is None:
            return _product(g, self.a.float(), self.tau)
        u = self.low_rank.float()
        return _product(g, u.transpose(1, 2), self.tau, left=u)

    def preconditioner(self) -> Callable[[Tensor], Tensor]:
        """Exact inverse on the largest diagonal entries, diagonal elsewhere."""
        diagonal = _diagonals(self.g).T @ _diagonals(self.a) + self.tau
        coarse = min(_COARSE, diagonal.numel() // _COARSE_SHARE)
        chosen = diagonal.flatten().topk(coarse).indices
        rows, columns = chosen // diagonal.shape[1], chosen % diagonal.shape[1]
        block = torch.zeros(coarse, coarse, dtype=torch.float64)
        for g, a in zip(self.g, self.a, strict=True):
            block.addcmul_(g[rows][:, rows], a[columns][:, columns])
        block.diagonal().add_(self.tau)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(block)).float()
        reciprocal = (1 / diagonal).float()

        def precondition(v: Tensor) -> Tensor:
            z = v * reciprocal
            z.view(-1)[chosen] = inverse @ v.reshape(-1)[chosen]
            return z

        return precondition


def _low_rank(system: KroneckerSum) -> Tensor | None:
    """Return U (P, r, i) with A_k close to U_k^T U_k, or None where that does not pay.

    Pivoted Cholesky, all clients in step; a client is done once what is left of it is a
    small share of tau in F.
    """
    clients, o, i = len(system.a), system.g.shape[1], system.a.shape[1]
    limit = i * (i + o) // (2 * i + o)  # where U_k stops being cheaper than A_k
    tiny = torch.finfo(system.a.dtype).tiny
    tolerance = _NEGLECTED * system.tau / _diagonals(system.g).sum(dim=1).clamp_min(tiny)
    everyone = torch.arange(clients)
    left = _diagonals(system.a).clone()
    u = system.a.new_zeros(clients, limit, i)
    for rank in range(limit):
        pivot, column = left.max(dim=1)
        open_ = pivot > tolerance
        if not bool(open_.any()):
            return u[:, :rank]
        known = u[everyone, :rank, column]
        row = system.a[everyone, column] - torch.bmm(known.unsqueeze(1), u[:, :rank]).squeeze(1)
        row *= torch.where(open_, pivot.clamp_min(tiny).rsqrt(), 0.0).unsqueeze(1)
        u[:, rank] = row
        left -= row.square()
        left[everyone, column] = 0.0
    return None


def _diagonals(matrices: Tensor) -> Tensor:
    return matrices.diagonal(dim1=1, dim2=2)
