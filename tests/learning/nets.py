"""Networks whose Fisher is tested, and brute force: one sample and one class at a time.

Brute force takes gradients of weights by autograd; the code under test takes gradients of
layer outputs only, in large batches.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.learning.blocks import blocks, matrix
from testbed.learning.fisher import Factor, Kronecker
from testbed.learning.models import build

ESTIMATORS = ("exact", "sampled", "empirical")
KINDS = ("kfac", "diagonal")


class Residual(nn.Module):
    """A residual block with a strided shortcut, in-place activations and no BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 5, 3, stride=2, padding=1)
        self.second = nn.Conv2d(5, 5, 3, padding=1)
        self.shortcut = nn.Conv2d(2, 5, 1, stride=2, bias=False)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        out = self.second(self.relu(self.first(x))) + self.shortcut(x)
        return self.head(self.relu(out).mean(dim=(2, 3)))


class Normalised(nn.Module):
    """A residual block with BatchNorm and GroupNorm, in eval mode with statistics of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, stride=2, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, padding="same")
        self.norm2 = nn.GroupNorm(2, 4)
        self.shortcut = nn.Conv2d(2, 4, 1, stride=2, bias=False)
        self.relu = nn.ReLU(inplace=True)
        self.norm3 = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm2(self.second(self.relu(self.norm1(self.first(x))))) + self.shortcut(x)
        return self.head(self.norm3(self.relu(out).mean(dim=(2, 3))))


class Rows(nn.Module):
    """A linear layer on every row of a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Linear(5, 4)
        self.head = nn.Linear(40, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.rows(x)).flatten(1))


NETS = {
    "lenet": (lambda: build("lenet", (1, 28, 28), 10, 0), (1, 28, 28), 10),
    "residual": (Residual, (2, 8, 8), 4),
    "normalised": (Normalised, (2, 8, 8), 3),
    "rows": (Rows, (2, 5, 5), 3),
}


def tiny(inplace: bool = False) -> nn.Sequential:
    """Convolution and linear layer, with biases: 3 classes, pictures of 2x5x5."""
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1, stride=2),
        nn.ReLU(inplace=inplace),
        nn.Flatten(),
        nn.Linear(27, 6),
        nn.ReLU(inplace=inplace),
        nn.Linear(6, 3, bias=False),
    )


def seeded(model: nn.Module, seed: int = 0) -> tuple[nn.Module, dict[str, Tensor]]:
    """Give `model` weights that are not too small, and return them."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            fan = parameter[0].numel()
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * fan**-0.5)
        for name, buffer in model.named_buffers():
            if "running" in name:
                buffer.copy_(torch.rand(buffer.shape, generator=generator) + 0.5)
    return model, {name: value.clone() for name, value in model.state_dict().items()}


def samples(n: int, shape: tuple[int, ...], classes: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return (
        torch.randn(n, *shape, generator=generator),
        torch.randint(classes, (n,), generator=generator),
    )


def stream() -> np.random.Generator:
    return np.random.default_rng(11)


def gradients(model: nn.Module, x: Tensor, label: int) -> dict[str, Tensor]:
    """Gradient of log p(label | x) for one picture, as one matrix per block."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    logp = functional.log_softmax(model(x[None]), dim=1)[0, label]
    gradient = dict(zip(names, torch.autograd.grad(logp, parameters), strict=True))
    return {block.name: matrix(block, gradient) for block in blocks(model)}


def expectation(
    model: nn.Module, pictures: Tensor, labels: Tensor, exact: bool
) -> Iterator[tuple[float, dict[str, Tensor]]]:
    """Yield (weight, gradients) over samples and, if exact, over all classes."""
    for x, y in zip(pictures, labels, strict=True):
        if exact:
            p = functional.softmax(model(x[None]), dim=1)[0].tolist()
            for label, weight in enumerate(p):
                yield weight, gradients(model, x, label)
        else:
            yield 1.0, gradients(model, x, int(y))


def drawn(model: nn.Module, pictures: Tensor) -> Tensor:
    """Labels the sampled estimator draws: inverse distribution function, in float64."""
    p = functional.softmax(model(pictures), dim=1).detach().double().numpy()
    u = stream().random(len(p))
    return torch.tensor(
        [int(np.searchsorted(row.cumsum(), v)) for row, v in zip(p, u, strict=True)]
    )


def distance(ours: Kronecker, a: Tensor, g: Tensor) -> float:
    """Relative Frobenius distance of Kronecker products, without forming them."""
    a1, g1, a2, g2 = (each.double() for each in (ours.a, ours.g, a, g))
    square = (
        (g1 * g1).sum() * (a1 * a1).sum()
        - 2 * (g1 * g2).sum() * (a1 * a2).sum()
        + (g2 * g2).sum() * (a2 * a2).sum()
    )
    return float((square.clamp_min(0) / ((g2 * g2).sum() * (a2 * a2).sum())).sqrt())


def relative(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm())


def tensors(factor: Factor) -> tuple[Tensor, ...]:
    return (factor.a, factor.g) if isinstance(factor, Kronecker) else (factor.f,)
