"""Where clients compute: on the processor, or on CUDA where there is one.

What is sent, kept, fused and billed lives on the CPU; a device is used within a client's
work only.  On either device a result is a function of its arguments: no algorithm is chosen
by a race, and no product is rounded to TF32.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from testbed.errors import ConfigError
from testbed.learning.factors import Diagonal, Factor, Kronecker

DeviceName = Literal["auto", "cpu", "cuda"]

CPU = torch.device("cpu")


def choose(name: DeviceName) -> torch.device:
    """Return the device that `learning.device` names.

    Raises
    ------
    ConfigError
        If CUDA is asked for and there is none.
    """
    if name == "cpu":
        return CPU
    if torch.cuda.is_available():
        return torch.device("cuda")
    if name == "auto":
        return CPU
    raise ConfigError(
        f"learning.device: 'cuda' cannot be used by torch {torch.__version__} on this "
        "machine; set it to auto or cpu"
    )


@contextmanager
def placed(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Have `model` on `device` within the block, and on the CPU after it."""
    model.to(device)
    try:
        with torch.backends.cudnn.flags(
            enabled=True, benchmark=False, deterministic=True, allow_tf32=False
        ):
            yield
    finally:
        model.to(CPU)


def on_cpu(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return contiguous copies on the CPU of a state's tensors."""
    return {
        name: value.detach().to(CPU, copy=True, memory_format=torch.contiguous_format)
        for name, value in state.items()
    }


def factors_on_cpu(fisher: Mapping[str, Factor]) -> dict[str, Factor]:
    """Return a Fisher whose factors are on the CPU; there they are taken as they are."""
    return {
        name: Kronecker(each.a.to(CPU), each.g.to(CPU))
        if isinstance(each, Kronecker)
        else Diagonal(each.f.to(CPU))
        for name, each in fisher.items()
    }
