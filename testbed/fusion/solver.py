"""Conjugate gradients for the symmetric positive semi-definite systems of fusion."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Operator = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Solve:
    """How a linear solve went.

    Attributes
    ----------
    iterations : int
        Products with the operator.
    residual : float
        True relative residual ||r - F x|| / ||r||, recomputed at the end.
    converged : bool
        The residual reached the tolerance.
    """

    iterations: int
    residual: float
    converged: bool


def conjugate_gradients(
    operator: Operator,
    rhs: Tensor,
    rtol: float,
    max_iterations: int,
    precondition: Operator | None = None,
) -> tuple[Tensor, Solve]:
    """Solve F x = r by conjugate gradients from x = 0.

    For a singular F and r in its range every iterate stays in that range, so the limit is
    F^+ r (Hestenes and Stiefel 1952).  Starting from zero also keeps history out of the
    result: it depends on F and r only.

    Parameters
    ----------
    operator : callable
        v -> F v for tensors of the shape of `rhs`.
    rhs : Tensor
        r; any shape, inner products run over all entries.
    rtol : float
        The iterations stop when the residual they carry along falls below this share of r.
    max_iterations : int
    precondition : callable, optional
        v -> M^-1 v, symmetric positive definite.  Only for a regular F: on a singular one
        the limit would be another solution.

    Returns
    -------
    Tensor
        x, of the shape of `rhs`.
    Solve
    """
    x = torch.zeros_like(rhs)
    norm = float(rhs.norm())
    if norm == 0.0:
        return x, Solve(iterations=0, residual=0.0, converged=True)
    residual = rhs.clone()
    z = precondition(residual) if precondition else residual
    direction = z.clone()
    product = (residual * z).sum()
    iterations = 0
    while iterations < max_iterations and float(residual.norm()) > rtol * norm:
        image = operator(direction)
        curvature = (direction * image).sum()
        if float(curvature) <= 0.0:
            break
        step = product / curvature
        x += step * direction
        residual -= step * image
        z = precondition(residual) if precondition else residual
        previous, product = product, (residual * z).sum()
        direction = z + (product / previous) * direction
        iterations += 1
    # The residual carried along drifts from the true one; report what was really reached.
    reached = float((rhs - operator(x)).norm()) / norm
    return x, Solve(iterations, reached, converged=reached <= 2 * rtol)
