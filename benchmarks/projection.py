"""Cost of F-SOSA's projection against plain float64 conjugate gradients, in one run.

Both solve the same damped systems of real contributions to the same relative residual of
1e-6, as its true residual says.  The pictures are scikit-learn's digits, enlarged to the
networks' input; the times are processor time of one thread.  Where plain iterations take
minutes, a few are timed and multiplied by the number needed, which is counted with a cheaper
operator, equal but for what is small beside the damping: such lines are marked with ~.  The
count ends at 3,000, and is a lower bound then: such lines are marked with >.

Usage: python benchmarks/projection.py [small-cnn] [lenet] [cnn]
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from testbed.config.schema import PRESETS, DataConfig, FusionConfig
from testbed.data import Dataset, load_dataset, partition
from testbed.fusion.kronecker import KroneckerSum
from testbed.fusion.solver import Operator, conjugate_gradients
from testbed.learning.blocks import blocks, matrix
from testbed.learning.conditioning import Conditioning, condition
from testbed.learning.factors import Kronecker
from testbed.learning.fisher import fisher
from testbed.learning.models import build
from testbed.learning.training import Recipe, train
from testbed.streams import Streams

RTOL, LIMIT = 1e-6, 50_000
MANY, COUNTED = 5e8, 3_000  # multiplications of a slow product, iterations counted for such

Result = TypeVar("Result")


@dataclass(frozen=True)
class Case:
    """A network, its input shape, the subset size and the local recipe."""

    model: str
    shape: tuple[int, int, int]
    members: int
    recipe: Recipe


CASES = {
    "small-cnn": Case("small-cnn", (1, 8, 8), 9, Recipe(40, 0.05, 16, 0.9)),
    "lenet": Case("lenet", (1, 28, 28), 25, Recipe(30, 0.01, 16, 0.9)),
    "cnn": Case("cnn", (3, 32, 32), 10, Recipe(10, 0.01, 16, 0.9)),
}


def enlarged(data: Dataset, shape: tuple[int, int, int]) -> Tensor:
    """Return the training pictures at another size and number of channels."""
    pictures = torch.from_numpy(data.x_train)
    if shape != tuple(pictures.shape[1:]):
        pictures = functional.interpolate(pictures, shape[1:], mode="bilinear")
    return pictures.expand(-1, *shape).contiguous()


def definite(factor: Tensor) -> Tensor:
    """Cut off what rounding made negative: plain iterations would break down on it."""
    values, vectors = torch.linalg.eigh(factor.double())
    cut: Tensor = (vectors * values.clamp_min(0.0)) @ vectors.T
    return cut


def systems(case: Case, preset: str) -> list[tuple[str, KroneckerSum, Tensor]]:
    """Train the members and set up one system per layer."""
    data, streams = load_dataset(DataConfig()), Streams(0)
    pictures, labels = enlarged(data, case.shape), torch.from_numpy(data.y_train)
    parts = partition(data.y_train, case.members, DataConfig(), streams)
    model = build(case.model, case.shape, 10, streams.integer("model"))
    start = {name: value.clone() for name, value in model.state_dict().items()}
    config = FusionConfig.model_validate({"preset": preset})
    conditioning = Conditioning.from_config(config)
    states, factors = [], []
    for part in parts:
        x, y = pictures[part], labels[part]
        state = train(model, start, x, y, case.recipe, np.random.default_rng(0))
        raw = fisher(model, state, x, y, "kfac", "exact", np.random.default_rng(0))
        states.append(state)
        factors.append(condition(raw, len(part), conditioning))
    found = []
    layers = blocks(model)
    for block in layers:
        pairs = [each[block.name] for each in factors]
        a = torch.stack([definite(pair.a) for pair in pairs if isinstance(pair, Kronecker)])
        g = torch.stack([definite(pair.g) for pair in pairs if isinstance(pair, Kronecker)])
        w = torch.stack([matrix(block, state).double() for state in states])
        traces = a.diagonal(dim1=1, dim2=2).sum(1) * g.diagonal(dim1=1, dim2=2).sum(1)
        c = config.output_damping if block is layers[-1] else config.damping
        tau = c * float(traces.sum()) / (block.rows * block.columns)
        rhs = (g @ (w - w.mean(0)) @ a).sum(0)
        found.append((f"{block.rows}x{block.columns}", KroneckerSum(g, a, tau), rhs))
    return found


def timed(work: Callable[[], Result]) -> tuple[float, Result]:
    """Least processor time of three rounds, or of fewer that take ten seconds."""
    spent: list[float] = []
    while len(spent) < 3 and sum(spent) < 10:
        begin = time.process_time()
        result = work()
        spent.append(time.process_time() - begin)
    return min(spent), result


def plain(system: KroneckerSum, rhs: Tensor, shrink: float) -> tuple[float, int, str]:
    """Seconds and iterations of plain conjugate gradients, and the mark of an estimate."""
    clients, o, i = len(system.a), *rhs.shape
    operator = system.operator()
    if clients * (o * o * i + o * i * i) < MANY:
        seconds, (x, iterations) = timed(lambda: conjugate_gradients(operator, rhs, RTOL, LIMIT))
        assert (rhs - operator(x)).norm() <= 1.2 * RTOL * rhs.norm()  # it drifts
        return seconds, iterations, " "
    each = timed(lambda: conjugate_gradients(operator, rhs, 0.0, 4))[0] / 4
    _, iterations = conjugate_gradients(_factored(system, shrink), rhs, RTOL, COUNTED)
    return each * iterations, iterations, ">" if iterations == COUNTED else "~"


def _factored(system: KroneckerSum, shrink: float) -> Operator:
    """F v in float64 through A_k = s L_k + (1 - s) diag(A_k), with L_k of low rank."""
    diagonal = (1 - shrink) * system.a.diagonal(dim1=1, dim2=2)
    values, vectors = torch.linalg.eigh(system.a - torch.diag_embed(diagonal))
    traces = system.g.diagonal(dim1=1, dim2=2).sum(dim=1, keepdim=True)
    rank = int((values * traces > 0.01 * system.tau).sum(dim=1).max())
    u = vectors[:, :, -rank:] * values[:, None, -rank:].clamp_min(0).sqrt()

    def operator(v: Tensor) -> Tensor:
        inner = torch.bmm(system.g, torch.matmul(v, u))
        rest = torch.bmm(system.g, v * diagonal[:, None]) if shrink < 1 else 0.0
        return (torch.bmm(inner, u.transpose(1, 2)) + rest).sum(dim=0) + system.tau * v

    return operator


def main() -> None:
    """Print one line per layer, and the ratio over all layers."""
    torch.set_num_threads(1)
    for name in sys.argv[1:] or CASES:
        case = CASES[name]
        for preset in PRESETS:
            by = FusionConfig.model_validate({"preset": preset})
            plain_s = ours_s = 0.0
            print(f"{name}, P = {case.members}, preset {preset}")
            print(f"{'layer':>10} {'plain CG':>22} {'projection':>20} {'ratio':>7}", flush=True)
            for layer, system, rhs in systems(case, preset):
                slow, steps, mark = plain(system, rhs, by.shrink)
                ours, (_, fast) = timed(partial(system.solve, rhs, RTOL, LIMIT))
                assert fast.converged
                plain_s, ours_s = plain_s + slow, ours_s + ours
                print(
                    f"{layer:>10} {steps:>8} it {mark}{slow:8.3f} s "
                    f"{fast.iterations:>8} it {ours:7.3f} s {slow / ours:7.1f}",
                    flush=True,
                )
            print(f"all layers: {plain_s:.3f} s / {ours_s:.3f} s = {plain_s / ours_s:.1f} x\n")


if __name__ == "__main__":
    main()
