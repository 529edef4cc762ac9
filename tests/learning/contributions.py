"""Real contributions of small networks, and the size of what is sent of them."""

import struct

import numpy as np
import torch

from testbed.learning.contribution import Contribution
from testbed.learning.fisher import fisher
from testbed.learning.models import build


def contribution(
    kind: str = "kfac", samples: int = 20, seed: int = 0, name: str = "lenet"
) -> Contribution:
    side = 28 if name == "lenet" else 8
    model = build(name, (1, side, side), 10, seed)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    generator = torch.Generator().manual_seed(seed)
    pictures = torch.rand(samples, 1, side, side, generator=generator)
    labels = torch.randint(10, (samples,), generator=generator)
    factors = fisher(model, state, pictures, labels, kind, "exact", np.random.default_rng(0))
    return Contribution(samples, state, factors)


def payload(message: bytes) -> int:
    """Bytes of tensor data in a safetensors message."""
    (header,) = struct.unpack("<Q", message[:8])
    return len(message) - 8 - header
