"""Cost of K-FAC factors in training epochs of the same client, in one run.

LeNet, 2,000 pictures of 28x28, 10 classes, one thread; an epoch is SGD with batches of 64.
All collectors see the same pictures; their error is the largest relative distance of any
layer's G (x) A from the naive collector's in float64.  Times are processor seconds, the
least of several rounds in which everything runs once, so that a busy machine weighs on all
alike.  Usage: python benchmarks/fisher.py
"""

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.learning.blocks import blocks
from testbed.learning.fisher import Estimator, Kronecker, fisher
from testbed.learning.models import build
from testbed.learning.training import Recipe, train

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its dependencies use deprecated parts of torch
    from curvlinops import KFACLinearOperator

SAMPLES, SHAPE, CLASSES, ROUNDS = 2000, (1, 28, 28), 10, 7
BATCH = 500  # of the collectors compared with
Pairs = Mapping[str, tuple[Tensor, Tensor]]


def naive(model: nn.Module, x: Tensor, labels: Tensor | None) -> Pairs:
    """K-FAC by the book: backward hooks, unfolded patches, a mean loss per label.

    `labels` are the sampled ones; without them there is one backward pass per class.
    """
    a: dict[str, Tensor] = {}
    g: dict[str, Tensor] = {}

    def forward_hook(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
            rows = args[0].detach()
            if isinstance(module, nn.Conv2d):
                rows = functional.unfold(rows, module.kernel_size).transpose(1, 2).flatten(0, 1)
            a[name] = a.get(name, 0) + rows.T @ rows / len(x)

        return hook

    def backward_hook(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, unused: object, outputs: tuple[Tensor, ...]) -> None:
            gradient = outputs[0] * len(outputs[0])  # undo the mean of the loss
            locations = gradient[0, 0].numel()
            if gradient.dim() == 4:
                gradient = gradient.permute(0, 2, 3, 1).flatten(0, 2)
            g[name] = g.get(name, 0) + gradient.T @ gradient / locations

        return hook

    handles = []
    for block in blocks(model):
        module = model.get_submodule(block.name)
        handles.append(module.register_forward_hook(forward_hook(block.name)))
        handles.append(module.register_full_backward_hook(backward_hook(block.name)))
    for start in range(0, len(x), BATCH):
        chosen = slice(start, start + BATCH)
        logits = model(x[chosen])
        if labels is not None:
            functional.cross_entropy(logits, labels[chosen]).backward()
        else:
            roots = functional.softmax(logits.detach(), dim=1).sqrt()
            logp = functional.log_softmax(logits, dim=1)
            for c in range(CLASSES):
                (roots[:, c] * logp[:, c]).mean().backward(retain_graph=c < CLASSES - 1)
        model.zero_grad(set_to_none=True)
    for handle in handles:
        handle.remove()
    return {name: (a[name], g[name]) for name in a}


def by_curvlinops(model: nn.Module, x: Tensor, y: Tensor, fisher_type: str) -> Pairs:
    """K-FAC by curvlinops, as sums over samples."""
    operator = KFACLinearOperator(
        model,
        nn.CrossEntropyLoss(),
        list(model.parameters()),
        list(zip(x.split(BATCH), y.split(BATCH), strict=True)),
        fisher_type=fisher_type,
        check_deterministic=False,
    )
    operator.compute_kronecker_factors()
    factors = operator.state_dict()
    a, g = factors["input_covariances"], factors["gradient_covariances"]
    return {name: (a[name], g[name] * len(x)) for name in a}


def labels_drawn(model: nn.Module, x: Tensor) -> Tensor:
    """Return the labels that the ``sampled`` estimator draws."""
    with torch.no_grad():
        p = functional.softmax(model(x), dim=1).double().cumsum(dim=1)
    draws = torch.from_numpy(np.random.default_rng(0).random((len(x), 1)))
    return (p < draws).sum(dim=1).clamp(max=CLASSES - 1)


def distance(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> float:
    """Relative Frobenius distance of G (x) A, whatever the scale of its factors."""

    def inner(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> Tensor:
        return (left[0] * right[0]).sum() * (left[1] * right[1]).sum()

    one, other = ((a.double(), g.double()) for a, g in (one, other))
    square = inner(one, one) - 2 * inner(one, other) + inner(other, other)
    return float((square.clamp_min(0) / inner(other, other)).sqrt())


def main() -> None:
    """Print seconds, epochs and error, one line per collector."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(SAMPLES, *SHAPE, generator=generator)
    y = torch.randint(CLASSES, (SAMPLES,), generator=generator)
    model = build("lenet", SHAPE, CLASSES, 0)
    recipe = Recipe(epochs=1, lr=0.01, batch=64, momentum=0.9)
    initial = {name: value.clone() for name, value in model.state_dict().items()}
    state = train(model, initial, x, y, recipe, np.random.default_rng(0))
    drawn = labels_drawn(model, x)

    def ours(estimator: Estimator) -> Pairs:
        factors = fisher(model, state, x, y, "kfac", estimator, np.random.default_rng(0))
        return {
            name: (each.a, each.g) for name, each in factors.items() if isinstance(each, Kronecker)
        }

    runs: dict[str, Callable[[], object]] = {
        "training epoch": lambda: train(model, state, x, y, recipe, np.random.default_rng(0)),
        "sampled, testbed": lambda: ours("sampled"),
        "sampled, naive": lambda: naive(model, x, drawn),
        "sampled, curvlinops": lambda: by_curvlinops(model, x, y, "mc"),
        "exact, testbed": lambda: ours("exact"),
        "exact, naive": lambda: naive(model, x, None),
        "exact, curvlinops": lambda: by_curvlinops(model, x, y, "type-2"),
    }
    seconds = dict.fromkeys(runs, float("inf"))
    results: dict[str, Any] = {}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            model.load_state_dict(state)
            begin = time.process_time()
            results[name] = run()
            seconds[name] = min(seconds[name], time.process_time() - begin)
    model.load_state_dict(state)
    model.double()
    truth = {
        "sampled": naive(model, x.double(), drawn),
        "exact": naive(model, x.double(), None),
    }
    print(f"{'':>20} {'seconds':>8} {'epochs':>7} {'error':>8}")
    for name, spent in seconds.items():
        # An epoch has no factors; curvlinops draws labels of its own.
        error = ""
        if name not in ("training epoch", "sampled, curvlinops"):
            true = truth[name.partition(",")[0]]
            error = f"{max(distance(results[name][layer], true[layer]) for layer in true):.1e}"
        print(f"{name:>20} {spent:8.3f} {spent / seconds['training epoch']:7.2f} {error:>8}")


if __name__ == "__main__":
    main()
