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
) -> tuple[Tensor, int]:
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
        It drifts from the true one, which is the caller's to compute.
    max_iterations : int
    precondition : callable, optional
        v -> M^-1 v, symmetric positive definite.  Only for a regular F: on a singular one
        the limit would be another solution.

    Returns
    -------
    Tensor
        x, of the shape of `rhs`.
    int
        Products with the operator.
    """
    x = torch.zeros_like(rhs)
    limit = rtol * float(rhs.norm())
    residual = rhs.clone()
    z = precondition(residual) if precondition else residual
    direction = z.clone()
    product = _inner(residual, z)
    iterations = 0
    while iterations < max_iterations and float(residual.norm()) > limit:
        image = operator(direction)
        curvature = _inner(direction, image)
        if curvature <= 0.0:
            break
        step = product / curvature
        x.add_(direction, alpha=step)
        residual.sub_(image, alpha=step)
        z = precondition(residual) if precondition else residual
        previous, product = product, _inner(residual, z)
        direction.mul_(product / previous).add_(z)
        iterations += 1
    return x, iterations


def _inner(v: Tensor, w: Tensor) -> float:
    return float((v * w).sum())
