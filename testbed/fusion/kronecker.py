"""Sums of Kronecker products, F = sum_k G_k (x) A_k + tau I, and the solution of F x = r.

F is never formed: a product with v (o x i) is sum_k G_k v A_k + tau v.  The sum is not
itself a Kronecker product, so it has no cheap inverse; what makes it fast is

1. *A preconditioner* of the largest terms of all clients (`testbed.fusion.woodbury`).  It
   is used with damping only: without, F may be singular and preconditioned iterations would
   end in another solution than the projection.
2. *Splitting.*  Where a client has few samples, A_k is a diagonal and a few rows
   (`testbed.fusion.splitting`), and G_k v A_k costs less through them.
3. *Precision.*  Inner iterations run in float32; the outer loop computes the residual with
   the full factors in float64 and corrects until that reaches the tolerance, so neither
   the splitting nor the precision touches the answer.

Plain conjugate gradients in float64 do the rest: systems without damping, small ones, which
they often solve before the above is set up, and those where float32 cannot follow.

Memory is O(P (o^2 + i^2)).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from testbed.fusion import splitting
from testbed.fusion.solver import Operator, Solve, conjugate_gradients
from testbed.fusion.woodbury import woodbury

_SMALL, _TRIED = 1500, 50  # unknowns of a system on which plain iterations are tried, so many
_INNER_RTOL = 1e-3
_SLACK = 0.8  # inner tolerances are a little stricter than what is asked of the outside
_NEGLECTED = 0.01  # share of tau by which a split factor may be off
_FEWER = 0.9  # share of the full product's arithmetic below which a split one is faster
_SPANNED = 64  # leading coordinates of the eigenbasis in which large terms are sought
_TERMS, _MOST_TERMS = 4.0, 2000  # of the preconditioner: 4 sqrt(unknowns), at most 2000


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

    def operator(self) -> Operator:
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
        if not bool(rhs.any()):
            return torch.zeros_like(rhs), Solve(iterations=0, residual=0.0, converged=True)
        if self.tau == 0.0:
            operator = self.operator()
            x, iterations = conjugate_gradients(operator, rhs, rtol, max_iterations)
            reached = float((rhs - operator(x)).norm() / rhs.norm())
            # It drifts from the residual that the iterations carry along.
            return x, Solve(iterations, reached, converged=reached <= 2 * rtol)
        # Float32 has a narrow range: bring the mean of F's diagonal to 1.
        traces = _diagonals(self.g).sum(dim=1) * _diagonals(self.a).sum(dim=1)
        scale = float(traces.sum()) / rhs.numel() + self.tau
        scaled = KroneckerSum(self.g / scale, self.a, self.tau / scale)
        return _refine(scaled, rhs / scale, rtol, max_iterations)


def _refine(
    system: KroneckerSum, rhs: Tensor, rtol: float, max_iterations: int
) -> tuple[Tensor, Solve]:
    """Solve a damped system by corrections until the true residual is small."""
    state = _Iterate(system.operator(), rhs, rtol, max_iterations)
    plain = partial(conjugate_gradients, state.operator)
    if rhs.numel() <= _SMALL:
        state.correct(plain, _TRIED)
    if state.unfinished:
        inner = _inner(system)
        while state.unfinished and state.correct(inner, (state.left + 1) // 2):
            pass
    if state.unfinished:  # float32 cannot follow, or the preconditioner misleads
        state.correct(plain, state.left)
    return state.x, Solve(state.iterations, state.reached, converged=state.reached <= rtol)


Inner = Callable[[Tensor, float, int], tuple[Tensor, int]]
"""(r, tolerance, most iterations) -> (x with F x about r, iterations)."""


class _Iterate:
    """x with its true residual."""

    def __init__(self, operator: Operator, rhs: Tensor, rtol: float, most: int) -> None:
        self.operator, self._rhs, self._norm = operator, rhs, float(rhs.norm())
        self._rtol, self._most = rtol, most
        self.x, self.residual = torch.zeros_like(rhs), rhs
        self.reached, self.iterations = 1.0, 0

    @property
    def left(self) -> int:
        return self._most - self.iterations

    @property
    def unfinished(self) -> bool:
        return self.reached > self._rtol and self.left > 0

    def correct(self, solve: Inner, most: int) -> bool:
        """Solve for the residual, step if that helps, and tell whether it halves the residual."""
        rtol = _SLACK * self._rtol / self.reached
        step, iterations = solve(self.residual, rtol, min(most, self.left))
        self.iterations += iterations
        x, before = self.x + step, self.reached
        residual = self._rhs - self.operator(x)
        reached = float(residual.norm()) / self._norm
        if reached < before:
            self.x, self.residual, self.reached = x, residual, reached
        return reached < before / 2


def _inner(system: KroneckerSum) -> Inner:
    """Return preconditioned iterations in float32, in the eigenbases of the summed factors."""
    g, a, tau = system.g, system.a, system.tau
    o, i = g.shape[1], a.shape[1]
    u_g, u_a = (torch.linalg.eigh(each.sum(dim=0)).eigenvectors for each in (g, a))
    g = u_g.T @ g @ u_g
    d, z = _parts(g, a, tau)
    if z is None:
        a = u_a.T @ a @ u_a
        operator = _product(g.float(), a.float(), tau)
        z, diagonals = _leading(a), _diagonals(a)
    else:
        turned = [each @ u_a for each in z]
        if bool(d.any()):
            operator = _split_product(g.float(), d.float(), _padded(z), u_a.float(), tau)
        else:
            operator = _low_rank_product(g.float(), _padded(turned), tau)
        z = turned
        diagonals = torch.stack([each.square().sum(dim=0) for each in z]) + d @ u_a.square()
    terms = min(round(_TERMS * (o * i) ** 0.5), _MOST_TERMS)
    precondition = woodbury(g, z, _diagonals(g).T @ diagonals + tau, tau, terms)

    def solve(residual: Tensor, rtol: float, most: int) -> tuple[Tensor, int]:
        scale = float(residual.norm())
        rhs = (u_g.T @ (residual / scale) @ u_a).float()
        step, iterations = conjugate_gradients(
            operator, rhs, max(_INNER_RTOL, rtol), most, precondition
        )
        return scale * (u_g @ step.double() @ u_a.T), iterations

    return solve


def _parts(g: Tensor, a: Tensor, tau: float) -> tuple[Tensor, list[Tensor] | None]:
    """Return d (P, i) and Z_k (r_k, i) of every A_k; None for Z where it costs more than A_k."""
    clients, o, i = len(g), g.shape[1], a.shape[1]
    d = splitting.diagonals(a)
    tolerance = _NEGLECTED * tau / _diagonals(g).sum(dim=1).clamp_min(torch.finfo(g.dtype).tiny)
    # Multiplications per row of v: with the full factors, with the diagonals, and with a row.
    full = clients * i * (i + o)
    diagonal, each = (clients * o * i + 2 * i * i, 2 * i) if bool(d.any()) else (0, 2 * i + o)
    return d, splitting.rows(a, d, tolerance, int(_FEWER * full - diagonal) // each)


def _padded(z: Sequence[Tensor]) -> Tensor:
    """Return (P, r, i) in float32, short ones filled up with zeros."""
    return pad_sequence([each.float() for each in z], batch_first=True)


def _leading(a: Tensor) -> list[Tensor]:
    """Return rows Z_k with Z_k^T Z_k about A_k, from the last coordinates alone."""
    size = min(a.shape[1], _SPANNED)
    values, vectors = torch.linalg.eigh(a[:, -size:, -size:])
    z = a.new_zeros(len(a), size, a.shape[1])
    z[:, :, -size:] = (vectors * values.clamp_min(0.0).sqrt().unsqueeze(1)).transpose(1, 2)
    return list(z)


def _product(g: Tensor, a: Tensor, tau: float) -> Operator:
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


def _low_rank_product(g: Tensor, z: Tensor, tau: float) -> Operator:
    """Return v -> sum_k G_k v Z_k^T Z_k + tau v, with Z of shape (P, r, i)."""
    clients, o, r = len(g), g.shape[1], z.shape[1]
    tall = z.flatten(0, 1)
    wide = tall.T.contiguous()

    def product(v: Tensor) -> Tensor:
        right = (v @ wide).view(o, clients, r).transpose(0, 1)
        left = (g @ right).transpose(0, 1).reshape(o, clients * r)
        return torch.addmm(v, left, tall, beta=tau)

    return product


def _split_product(g: Tensor, d: Tensor, z: Tensor, u: Tensor, tau: float) -> Operator:
    """Return v -> sum_k G_k v U^T (diag(d_k) + Z_k^T Z_k) U + tau v, U of shape (i, i)."""
    clients, o, r, i = len(g), g.shape[1], z.shape[1], len(u)
    wide, back = z.flatten(0, 1).T.contiguous(), u.T.contiguous()
    rows = g.transpose(0, 1).reshape(o, clients * o)

    def product(v: Tensor) -> Tensor:
        w = v @ back
        right = (w @ wide).view(o, clients, r).transpose(0, 1)
        stacked = torch.baddbmm(d.unsqueeze(1) * w, right, z).view(clients * o, i)
        return torch.addmm(v, rows @ stacked, u, beta=tau)

    return product


def _diagonals(matrices: Tensor) -> Tensor:
    return matrices.diagonal(dim1=1, dim2=2)
