"""A small federation that really learned, and hand-made clients of one linear layer."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from testbed.data.dataset import Dataset
from testbed.fusion.network import Network
from testbed.learning.blocks import Block, blocks
from testbed.learning.classification import Classification
from testbed.learning.contribution import Contribution
from testbed.learning.statistics import contribute
from testbed.learning.task import Task
from testbed.learning.training import Recipe
from testbed.streams import Streams

CLASSES = 3
RNG = np.random.default_rng(0)


def layer(rows: int, columns: int) -> tuple[Block, ...]:
    return (Block("fc", (rows, columns), bias=False),)


def only(rows: int, columns: int) -> Network:
    """A network of one linear layer without bias, on pictures of 1 x 1 x columns."""
    model = nn.Sequential()
    model.add_module("flat", nn.Flatten())
    model.add_module("fc", nn.Linear(columns, rows, bias=False))
    return Network(model, blocks(model), (1, 1, columns), rows)


def has(w: Sequence[Sequence[float]], samples: int = 1, fisher=None, **extra) -> Contribution:
    model = {"fc.weight": torch.tensor(w, dtype=torch.float64)}
    named = {name.replace("__", "/"): torch.as_tensor(value) for name, value in extra.items()}
    return Contribution(samples, model, {} if fisher is None else {"fc": fisher}, named)


NOBODY = {"holdout__x": torch.zeros(0, 1, 1, 2).byte(), "holdout__y": torch.zeros(0).byte()}


def weights(state) -> Tensor:
    return state["fc.weight"]


def plain(bias: bool) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=bias),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(36, 8, bias=bias),
        nn.ReLU(),
        nn.Linear(8, CLASSES, bias=bias),
    )


def normalised() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, stride=2),
        nn.GroupNorm(2, 4),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(16, CLASSES),
    )


def perceptron() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, CLASSES))


NETS = {
    "without bias": lambda: plain(False),
    "with bias": lambda: plain(True),
    "normalised": normalised,
    "perceptron": perceptron,
}


def task(net: str, sizes: Sequence[int] = (70, 40, 25), held_out: int = 6) -> Task:
    """Pictures of 1x6x6 with a bar in the rows of their class; every client lacks one class."""
    rng = np.random.default_rng(5)
    total = sum(sizes) + held_out * len(sizes)
    client = np.repeat(np.arange(len(sizes)), [size + held_out for size in sizes])
    y = (client + rng.integers(1, CLASSES, total)) % CLASSES
    x = (0.4 * rng.random((total, 1, 6, 6))).astype(np.float32)
    for picture, label in zip(x, y, strict=True):
        picture[0, 2 * label : 2 * label + 2] += np.float32(0.5)
    owned = [np.flatnonzero(client == each) for each in range(len(sizes))]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = NETS[net]()
    return Classification(
        dataset=Dataset("bars", x, y, x[:30], y[:30], tuple("abc"), ""),
        parts=[each[held_out:] for each in owned],
        holdouts=[each[:held_out] for each in owned],
        model=model,
        initial={name: value.detach().clone() for name, value in model.state_dict().items()},
        recipe=Recipe(epochs=12, lr=0.05, batch=8, momentum=0.9),
        kind="kfac",
        estimator="exact",
        streams=Streams(3),
    )


def federation(learning: Task, statistic: str) -> list[Contribution]:
    return [
        contribute(learning, part, learning.train(part, learning.initial), statistic)
        for part in range(len(learning.parts))
    ]
