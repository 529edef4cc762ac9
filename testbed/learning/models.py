"""The networks, by name.

Layers carry no bias where FedFisher's published networks carry none, so parameter counts
agree with theirs (LeNet 44,190; CNN 939,616 for 3x32x32 and 10 classes).  The networks with
residual blocks are in `testbed.learning.resnet`.
"""

import math
from collections.abc import Callable, Mapping

import torch
from torch import nn

from testbed.errors import DataError
from testbed.learning.pooling import MaxPool2x2
from testbed.learning.resnet import resnet18, resnet18_batchnorm, resnet18_plain

Shape = tuple[int, int, int]


def lenet(shape: Shape, classes: int) -> nn.Sequential:
    """LeNet: conv 6@5x5, conv 16@5x5, fc 120, fc 84 (FedFisher, Fashion-MNIST)."""
    return _two_convolutions(shape, classes, kernel=5, channels=(6, 16), widths=(120, 84))


def cnn(shape: Shape, classes: int) -> nn.Sequential:
    """Two-layer CNN: conv 32@5x5, conv 64@5x5, fc 512, fc 128 (FedFisher, SVHN and CIFAR)."""
    return _two_convolutions(shape, classes, kernel=5, channels=(32, 64), widths=(512, 128))


def small_cnn(shape: Shape, classes: int) -> nn.Sequential:
    """Wide CNN for 8x8 pictures: conv 32@3x3, conv 64@3x3 (both padded), fc 128."""
    return nn.Sequential(
        nn.Conv2d(shape[0], 32, 3, padding=1),
        nn.ReLU(),
        MaxPool2x2(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        MaxPool2x2(),
        nn.Flatten(),
        nn.Linear(64 * _quarters(shape), 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )


def femnist_cnn(shape: Shape, classes: int) -> nn.Sequential:
    """LEAF's CNN for FEMNIST: conv 32@5x5, conv 64@5x5 (both padded), fc 2048."""
    return nn.Sequential(
        nn.Conv2d(shape[0], 32, 5, padding=2),
        nn.ReLU(),
        MaxPool2x2(),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        MaxPool2x2(),
        nn.Flatten(),
        nn.Linear(64 * _quarters(shape), 2048),
        nn.ReLU(),
        nn.Linear(2048, classes),
    )


def mlp(shape: Shape, classes: int, width: int) -> nn.Sequential:
    """Two-layer ReLU network, the one of FedFisher's theory: `width` hidden units, no bias."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(shape), width, bias=False),
        nn.ReLU(),
        nn.Linear(width, classes, bias=False),
    )


def _quarters(shape: Shape) -> int:
    """Pixels that two halvings of both sides leave."""
    _, height, width = shape
    if min(height, width) < 4:
        raise DataError(f"pictures of {height}x{width} are too small; use learning.model=mlp")
    return (height // 4) * (width // 4)


def _two_convolutions(
    shape: Shape,
    classes: int,
    kernel: int,
    channels: tuple[int, int],
    widths: tuple[int, int],
) -> nn.Sequential:
    colours, height, width = shape

    def shrink(size: int) -> int:
        return ((size - kernel + 1) // 2 - kernel + 1) // 2

    flat = channels[1] * shrink(height) * shrink(width)
    if min(shrink(height), shrink(width)) < 1:
        raise DataError(
            f"pictures of {height}x{width} are too small for this model; "
            "use learning.model=small-cnn"
        )
    return nn.Sequential(
        nn.Conv2d(colours, channels[0], kernel, bias=False),
        nn.ReLU(),
        MaxPool2x2(),
        nn.Conv2d(channels[0], channels[1], kernel, bias=False),
        nn.ReLU(),
        MaxPool2x2(),
        nn.Flatten(),
        nn.Linear(flat, widths[0], bias=False),
        nn.ReLU(),
        nn.Linear(widths[0], widths[1], bias=False),
        nn.ReLU(),
        nn.Linear(widths[1], classes, bias=False),
    )


MODELS: Mapping[str, Callable[..., nn.Module]] = {
    "lenet": lenet,
    "cnn": cnn,
    "small-cnn": small_cnn,
    "femnist-cnn": femnist_cnn,
    "resnet18": resnet18,
    "resnet18-batchnorm": resnet18_batchnorm,
    "resnet18-plain": resnet18_plain,
    "mlp": mlp,
}

_LENET_SIDE = 20


def build(name: str, shape: Shape, classes: int, seed: int, width: int = 512) -> nn.Module:
    """Build a network with its initial weights W0.

    Parameters
    ----------
    name : str
        One of `MODELS`, or ``"auto"``: LeNet from 20 pixels a side, else the small CNN.
    shape : tuple of int
        Channels, height and width of a picture.
    classes : int
        Number of labels.
    seed : int
        Determines the initial weights; the caller's random state is left alone.
    width : int
        Hidden units of ``"mlp"``.

    Raises
    ------
    DataError
        If the pictures are too small for the network.
    """
    if name == "auto":
        name = "lenet" if min(shape[1:]) >= _LENET_SIDE else "small-cnn"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MODELS[name](shape, classes, **({"width": width} if name == "mlp" else {}))
