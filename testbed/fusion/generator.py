"""The network that draws DENSE's pictures, and how they are turned and shifted."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.learning.models import Shape

_PADDING = 4


class Generator(nn.Module):
    """DENSE's generator: noise (n, nz, 1, 1) to pictures (n, c, h, w) in [0, 1].

    A linear layer makes 2 ngf maps of a quarter of the picture's size (rounded up, what is
    too much is cut off), two convolutions after doubled sizes and one more make the picture.

    Parameters
    ----------
    nz, ngf : int
        Length of the noise, and half the number of maps.
    shape : tuple of int
        Channels, height and width of a picture.
    """

    def __init__(self, nz: int, ngf: int, shape: Shape) -> None:
        super().__init__()
        channels, *self._size = shape
        self._start = [math.ceil(side / 4) for side in self._size]
        self.linear = nn.Linear(nz, 2 * ngf * math.prod(self._start))
        self.convolutions = nn.Sequential(
            nn.BatchNorm2d(2 * ngf),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(2 * ngf, 2 * ngf, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * ngf),
            nn.LeakyReLU(0.2),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(2 * ngf, ngf, 3, padding=1, bias=False),
            nn.BatchNorm2d(ngf),
            nn.LeakyReLU(0.2),
            nn.Conv2d(ngf, channels, 3, padding=1),
            nn.Sigmoid(),
        )

    def forward(self, noise: Tensor) -> Tensor:
        """Draw one picture for each noise vector."""
        maps = self.linear(noise.flatten(1)).unflatten(1, (-1, *self._start))
        # One and a half times as fast on a CPU as the default order.
        maps = maps.contiguous(memory_format=torch.channels_last)
        height, width = self._size
        drawn: Tensor = self.convolutions(maps)
        return drawn[:, :, :height, :width]

    def reset(self, source: torch.Generator) -> None:
        """Draw all weights anew: normal with standard deviation 0.02, scales around one."""
        with torch.no_grad():
            for module in self.modules():
                if isinstance(module, nn.Linear | nn.Conv2d | nn.BatchNorm2d):
                    mean = 1.0 if isinstance(module, nn.BatchNorm2d) else 0.0
                    module.weight.normal_(mean, 0.02, generator=source)
                    if module.bias is not None:
                        module.bias.zero_()


def flipped(pictures: Tensor, source: torch.Generator) -> Tensor:
    """Mirror about every other picture (n, c, h, w) left to right."""
    chosen = torch.rand(len(pictures), 1, 1, 1, generator=source) < 0.5
    return torch.where(chosen, pictures.flip(3), pictures)


def cropped(pictures: Tensor, source: torch.Generator) -> Tensor:
    """Shift each picture (n, c, h, w) by up to four pixels, black where nothing is left.

    Small pictures are shifted by a quarter of a side at most.
    """
    count, channels, height, width = pictures.shape
    by = min(_PADDING, height // 4, width // 4)
    padded = functional.pad(pictures, (by, by, by, by))
    top, left = torch.randint(2 * by + 1, (2, count, 1), generator=source)
    rows = (top + torch.arange(height))[:, None, :, None]
    columns = (left + torch.arange(width))[:, None, None, :]
    which = torch.arange(count)[:, None, None, None]
    return padded[which, torch.arange(channels)[:, None, None], rows, columns]
