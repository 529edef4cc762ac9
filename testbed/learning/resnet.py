"""ResNet18 for small pictures (He et al. 2016, the CIFAR form): a 3x3 stem and no pooling.

Three variants of the same network:

``resnet18``            GroupNorm of 32 groups (Wu and He 2018): nothing couples the pictures of
                        a batch and there are no statistics to merge.  The default.
``resnet18-batchnorm``  BatchNorm; its running statistics are pooled when models are fused.
``resnet18-plain``      no normalisation and no bias anywhere, as FedFisher's.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.errors import DataError

Norm = Callable[[int], nn.Module]

_STAGES = 4
_BLOCKS = 2  # a stage
_SMALLEST = 16  # three halvings leave 2x2, so that BatchNorm never sees a single value
_GROUPS = 32


class Residual(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is a 1x1 convolution if shapes differ."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = norm(outputs)
        self.shortcut = nn.Sequential()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        inner = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(inner)) + self.shortcut(x))


class ResNet(nn.Module):
    """ResNet18.

    Parameters
    ----------
    shape : tuple of int
        Channels, height and width of a picture, at least 16x16.
    classes : int
    norm : callable
        Makes the layer that follows a convolution of so many channels.
    bias : bool
        Whether the output layer has one.
    channels : int
        Of the first stage; each further one has twice as many.

    Raises
    ------
    DataError
        If the pictures are too small.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        classes: int,
        norm: Norm,
        bias: bool = True,
        channels: int = 64,
    ) -> None:
        super().__init__()
        colours, height, width = shape
        if min(height, width) < _SMALLEST:
            raise DataError(
                f"pictures of {height}x{width} are too small for this model; "
                "use learning.model=small-cnn"
            )
        self.stem = nn.Conv2d(colours, channels, 3, padding=1, bias=False)
        self.norm = norm(channels)
        layers: list[nn.Module] = []
        before = channels
        for stage in range(_STAGES):
            after = channels << stage
            for block in range(_BLOCKS):
                layers.append(Residual(before, after, 1 + (stage > 0 and block == 0), norm))
                before = after
        self.blocks = nn.Sequential(*layers)
        self.head = nn.Linear(before, classes, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (n, classes) of pictures (n, c, h, w)."""
        x = self.blocks(functional.relu(self.norm(self.stem(x))))
        logits: Tensor = self.head(x.mean(dim=(2, 3)))
        return logits


def resnet18(shape: tuple[int, int, int], classes: int) -> ResNet:
    """ResNet18 with GroupNorm."""
    return ResNet(shape, classes, lambda channels: nn.GroupNorm(_GROUPS, channels))


def resnet18_batchnorm(shape: tuple[int, int, int], classes: int) -> ResNet:
    """ResNet18 with BatchNorm, 11,173,962 parameters for 3x32x32 and 10 classes."""
    return ResNet(shape, classes, nn.BatchNorm2d)


def resnet18_plain(shape: tuple[int, int, int], classes: int) -> ResNet:
    """ResNet18 without normalisation and without a bias, started so that it can be trained."""
    model = ResNet(shape, classes, lambda channels: nn.Identity(), bias=False)
    start_plain(model)
    return model


@torch.no_grad()
def start_plain(model: ResNet) -> None:
    """Give a network without normalisation weights with which signals keep their size.

    Convolutions start with He's variance, which a rectifier preserves, and the last one of
    each of the L residual branches is divided by the square root of L, so that the sum over
    the branches stays bounded (Hayou et al. 2021, "Stable ResNet").
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    branches = [module for module in model.modules() if isinstance(module, Residual)]
    for branch in branches:
        branch.conv2.weight /= len(branches) ** 0.5
