"""Cost of F-SOSA's projection against plain float64 conjugate gradients, in one run.

Both solve the same damped systems of real contributions to the same relative residual of
1e-6.  Usage: python benchmarks/projection.py
"""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from testbed.config import load
from testbed.fusion.kronecker import KroneckerSum
from testbed.fusion.solver import Solve, conjugate_gradients
from testbed.learning.blocks import blocks, matrix
from testbed.learning.client import inform, prepare, train_client
from testbed.learning.fisher import Kronecker

RTOL, LIMIT = 1e-6, 20_000
QUICKSTART = [
    "data.name=digits",
    "clients.pool=24",
    "learning.model=small-cnn",
    "learning.epochs=40",
    "learning.lr=0.05",
    "learning.batch=16",
]


def systems(damping: float, members: int) -> list[tuple[str, KroneckerSum, Tensor]]:
    """Train clients and set up one trace-normalised system per layer."""
    task = prepare(load(None, QUICKSTART), seed=0)
    contributions = [
        inform(task, part, train_client(task, part, task.initial)) for part in range(members)
    ]
    found = []
    for block in blocks(task.model):
        factors = [each.fisher[block.name] for each in contributions]
        a = torch.stack([f.a.double() for f in factors if isinstance(f, Kronecker)])
        g = torch.stack([f.g.double() for f in factors if isinstance(f, Kronecker)])
        traces = a.diagonal(dim1=1, dim2=2).sum(1) * g.diagonal(dim1=1, dim2=2).sum(1)
        g = g / traces[:, None, None]
        w = torch.stack([matrix(block, each.model).double() for each in contributions])
        rhs = (g @ (w - w.mean(0)) @ a).sum(0)
        tau = damping * members / (block.rows * block.columns)
        found.append((f"{block.rows}x{block.columns}", KroneckerSum(g, a, tau), rhs))
    return found


def timed(solve: Callable[[], tuple[Tensor, Solve]]) -> tuple[float, Solve]:
    """Best of three runs."""
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        _, result = solve()
        best = min(best, time.perf_counter() - begin)
    return best, result


def main() -> None:
    """Print one line per layer and damping, and the ratio over all layers."""
    torch.set_num_threads(1)
    members = 9
    for damping in (0.1, 0.01):
        plain_s = ours_s = 0.0
        print(f"digits, small-cnn, P = {members}, damping c = {damping}")
        print(f"{'layer':>10} {'plain CG':>20} {'projection':>20} {'ratio':>7}")
        for name, system, rhs in systems(damping, members):
            plain, slow = timed(
                lambda s=system, r=rhs: conjugate_gradients(s.operator(), r, RTOL, LIMIT)
            )
            ours, fast = timed(lambda s=system, r=rhs: s.solve(r, RTOL, LIMIT))
            assert slow.converged
            assert fast.converged
            plain_s, ours_s = plain_s + plain, ours_s + ours
            print(
                f"{name:>10} {slow.iterations:>8} it {plain:7.3f} s "
                f"{fast.iterations:>8} it {ours:7.3f} s {plain / ours:7.1f}"
            )
        print(f"all layers: {plain_s:.3f} s / {ours_s:.3f} s = {plain_s / ours_s:.1f} x faster\n")


if __name__ == "__main__":
    main()
