"""Small networks, clients that are permutations of each other, and clients that learned."""

from collections.abc import Sequence

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

from testbed.fusion.network import Network
from testbed.learning.blocks import State, blocks
from testbed.learning.contribution import Contribution
from testbed.learning.training import Recipe, train


def known(model: nn.Module, shape: tuple[int, int, int], classes: int) -> Network:
    return Network(model, blocks(model), shape, classes)


def seeded(make, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make()


def tiny(bias: bool = True) -> nn.Sequential:
    """Two convolutions, flattened into two linear layers; pictures of 2x6x6, 3 classes."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=bias),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 5, 3, padding=1, bias=bias),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(45, 7, bias=bias),
        nn.ReLU(),
        nn.Linear(7, 3, bias=bias),
    )


def permuted(state: State, orders: Sequence[Sequence[int]], spatial: int = 9) -> dict[str, Tensor]:
    """The same function as `tiny` with hidden units in another order."""
    first, second, third = (torch.as_tensor(order) for order in orders)
    moved = dict(state)
    for name, order in (("0", first), ("3", second), ("6", third)):
        for key in (f"{name}.weight", f"{name}.bias"):
            if key in moved:
                moved[key] = moved[key][order]
    moved["3.weight"] = moved["3.weight"][:, first]
    columns = (second[:, None] * spatial + torch.arange(spatial)).flatten()
    moved["6.weight"] = moved["6.weight"][:, columns]
    moved["8.weight"] = moved["8.weight"][:, third]
    return moved


ORDERS = ([2, 0, 3, 1], [4, 2, 0, 1, 3], [6, 0, 5, 1, 4, 2, 3])


class Residual(nn.Module):
    """A residual network: an identity path, then one through a convolution."""

    def __init__(self, norm: type[nn.Module] | None = None) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.same = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norm = norm(4) if norm else nn.Identity()
        self.wide = nn.Conv2d(4, 6, 3, stride=2, padding=1, bias=False)
        self.short = nn.Conv2d(4, 6, 1, stride=2, bias=False)
        self.answer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.stem(x))
        x = functional.relu(self.norm(self.same(x)) + x)
        x = functional.relu(self.wide(x) + self.short(x))
        x = functional.avg_pool2d(x, 4)
        return self.answer(x.view(x.size(0), -1))


def bars(count: int, classes: Sequence[int], seed: int) -> tuple[Tensor, Tensor]:
    """Noisy 8x8 pictures; class c has a bright bar in rows 2c and 2c + 1."""
    rng = np.random.default_rng(seed)
    labels = torch.from_numpy(rng.choice(np.asarray(classes), count))
    pictures = torch.from_numpy(rng.random((count, 1, 8, 8), dtype=np.float32)) * 0.3
    for picture, label in zip(pictures, labels, strict=True):
        picture[0, 2 * label : 2 * label + 2] += 0.7
    return pictures, labels


def learner() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 16),
        nn.ReLU(),
        nn.Linear(16, 4),
    )


def learned(
    model: nn.Module, groups: Sequence[Sequence[int]], samples: int = 300, epochs: int = 8
) -> list[Contribution]:
    """Clients that know only the classes of their group, from one initial model."""
    start = {name: value.clone() for name, value in model.state_dict().items()}
    found = []
    for seed, group in enumerate(groups):
        pictures, labels = bars(samples, group, seed)
        state = train(
            model,
            start,
            pictures,
            labels,
            Recipe(epochs, 0.05, 32, 0.9),
            np.random.default_rng(seed),
        )
        held_x, held_y = bars(25, group, 100 + seed)
        extra = {
            "holdout/x": held_x.mul(255).round().byte(),
            "holdout/y": held_y.to(torch.uint8),
            "classes": torch.bincount(labels, minlength=4),
        }
        found.append(Contribution(samples, state, {}, extra))
    return found


def halves(seed: int = 1) -> tuple[nn.Module, list[Contribution], Tensor, Tensor]:
    """Two clients, digits below five and from five on, their network, and 500 test pictures."""
    digits = load_digits()
    pictures = torch.from_numpy(digits.images).float()[:, None] / 16
    labels = torch.from_numpy(digits.target)
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(labels)))
    test, rest = order[:500], order[500:]
    model = seeded(
        lambda: nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=False),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(128, 32, bias=False),
            nn.ReLU(),
            nn.Linear(32, 10, bias=False),
        ),
        seed,
    )
    start = {name: value.clone() for name, value in model.state_dict().items()}
    clients = []
    for half in (0, 1):
        own = rest[labels[rest] // 5 == half]
        recipe, rng = Recipe(20, 0.02, 32, 0.9), np.random.default_rng(half)
        state = train(model, start, pictures[own], labels[own], recipe, rng)
        clients.append(Contribution(len(own), state, {}))
    return model, clients, pictures[test], labels[test]
