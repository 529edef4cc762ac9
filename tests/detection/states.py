"""Small trainings of a detector, and how their states differ."""

import numpy as np
import torch
from torch import Tensor, nn

from testbed.learning.detection.training import DetectionRecipe

SIX = np.arange(6)
FIRST = "model.0.conv.weight"
RECIPE = DetectionRecipe(epochs=1, lr=0.001, batch=6, momentum=0.9)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def apart(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name].double() - other[name]).abs().max()) for name in one)


def learnt(state: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Leave the buffers out."""
    return {name: state[name] for name, _ in model.named_parameters()}


def steps_of(state: dict[str, Tensor]) -> int:
    return int(state["model.0.bn.num_batches_tracked"])
