"""Cost of a detector's Fisher in training steps of the same pictures, in one run.

Random pictures of 320x320 with 18 boxes each, as BDD100K has on average; one thread.  A
training step is one of `testbed.learning.detection.training` on all of them.  Compared are
the diagonal as it is (gradients of weights, one picture at a time), the same from products
of unfolded inputs and output gradients, and K-FAC.  Processor seconds a picture, the least
of several rounds in which everything runs once; the difference is the largest relative
distance of a block from the diagonal as it is.  With K-FAC: how much memory the factors of
all layers take, in MB.

Usage: python benchmarks/detection_fisher.py [yolov8n yolov8s]
"""

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from testbed.learning.accumulators import Accumulator
from testbed.learning.blocks import State, blocks
from testbed.learning.detection.augment import plain
from testbed.learning.detection.fisher import fisher
from testbed.learning.detection.network import build, loss
from testbed.learning.detection.pictures import Pictures
from testbed.learning.detection.training import DetectionRecipe, train
from testbed.learning.factors import Diagonal, Factor
from testbed.learning.fisher import collected, collecting

PICTURES, SIDE, BOXES, ROUNDS = 8, 320, 18, 5
ALL = np.arange(PICTURES)
RECIPE = DetectionRecipe(epochs=1, lr=0.001, batch=PICTURES, momentum=0.9)


def drawn() -> Pictures:
    """Return random pictures with random boxes."""
    rng = np.random.default_rng(0)
    sides = rng.uniform(0.02, 0.3, (PICTURES, BOXES, 2))
    centres = rng.uniform(0.15, 0.85, (PICTURES, BOXES, 2))
    classes = rng.integers(10, size=(PICTURES, BOXES, 1))
    return Pictures(
        frames=(),
        folder=Path(),
        pixels=rng.integers(256, size=(PICTURES, 3, SIDE, SIDE), dtype=np.uint8),
        targets=tuple(np.concatenate([classes, centres, sides], 2).astype(np.float32)),
        scale=np.ones(PICTURES),
        pad=np.zeros((PICTURES, 2)),
    )


def by_products(model: nn.Module, state: State, pictures: Pictures) -> dict[str, Factor]:
    """Return the diagonal from layers' inputs and the gradients of their outputs."""
    model.load_state_dict(dict(state))
    model.eval()
    sums: dict[str, Accumulator] = {}
    with collecting(model, "diagonal", sums) as outputs:
        for index in ALL:
            images, targets = plain(pictures, np.array([index]))
            value = loss(model, images.float() / 255, targets)
            starts = [output for output in outputs.values() if output.is_leaf]
            torch.autograd.grad(value, starts, allow_unused=True)
            outputs.clear()
    return collected(model, "diagonal", sums, PICTURES)


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Return the largest relative distance of two diagonals' blocks."""
    return max(
        float((one[name].f - other[name].f).norm() / one[name].f.norm().clamp_min(1e-30))
        for name in one
        if isinstance(one[name], Diagonal) and isinstance(other[name], Diagonal)
    )


def measure(name: str, pictures: Pictures) -> None:
    """Print one line per computation for one network."""
    model = build(name, 10, seed=0)
    initial = {key: value.clone() for key, value in model.state_dict().items()}
    state = train(model, initial, pictures, ALL, RECIPE, np.random.default_rng(0))
    runs: dict[str, Callable[[], Any]] = {
        "training step": lambda: train(
            model, state, pictures, ALL, RECIPE, np.random.default_rng(0)
        ),
        "diagonal": lambda: fisher(model, state, pictures, ALL, "diagonal"),
        "diagonal, by products": lambda: by_products(model, state, pictures),
        "kfac": lambda: fisher(model, state, pictures, ALL, "kfac"),
    }
    seconds = dict.fromkeys(runs, float("inf"))
    made: dict[str, Any] = {}
    for _ in range(ROUNDS):
        for what, run in runs.items():
            begin = time.process_time()
            made[what] = run()
            seconds[what] = min(seconds[what], (time.process_time() - begin) / PICTURES)
    sides = [(block.columns, block.rows) for block in blocks(model) if not block.norm]
    print(
        f"{name}: A and G {4e-6 * sum(i * i + o * o for i, o in sides):.0f} MB, largest A "
        f"{4e-6 * max(sides)[0] ** 2:.0f} MB"
    )
    for what, spent in seconds.items():
        steps = spent / seconds["training step"]
        apart = f"{difference(made['diagonal'], made[what]):.0e}" if "diag" in what else ""
        print(f"{what:>24} {spent:8.4f} s {steps:6.2f} steps {apart}")


def main() -> None:
    """Measure the networks named on the command line."""
    torch.set_num_threads(1)
    pictures = drawn()
    for name in sys.argv[1:] or ["yolov8n", "yolov8s"]:
        measure(name, pictures)


if __name__ == "__main__":
    main()
