"""What the coordinator knows of the network that clients train."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from testbed.learning.blocks import Block
from testbed.learning.models import Shape


@dataclass(frozen=True, eq=False)
class Network:
    """What the coordinator knows of the network that clients train.

    Attributes
    ----------
    model : Module
        Scratch network; its weights are meaningless between calls.
    blocks : sequence of Block
    shape : tuple of int
        Channels, height and width of a picture.
    classes : int
    """

    model: nn.Module
    blocks: Sequence[Block]
    shape: Shape
    classes: int
