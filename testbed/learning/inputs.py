"""What the layers of a network read, for statistics that need no gradients."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from testbed.learning.blocks import Block, Fused, State, fused_modules
from testbed.learning.devices import placed
from testbed.learning.models import Shape

See = Callable[[Block, Fused, Tensor], None]


@contextmanager
def watched(model: nn.Module, see: See) -> Iterator[None]:
    """Call `see` with (block, module, input) whenever a layer with a block is called.

    The input is as the layer finds it: a later in-place activation may overwrite it.
    """

    def hook_for(block: Block) -> Any:
        return lambda module, args: see(block, module, args[0])

    hooks = [
        module.register_forward_pre_hook(hook_for(block)) for block, module in fused_modules(model)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def show(
    model: nn.Module, state: State, batches: Iterable[Tensor], see: See, device: torch.device
) -> None:
    """Let `see` follow the batches of pictures through `model` with weights `state`."""
    with placed(model, device), torch.no_grad(), watched(model, see):
        model.load_state_dict(dict(state))
        model.eval()
        for batch in batches:
            model(batch.to(device))


def inputs_like(model: nn.Module, shape: Shape) -> dict[str, Tensor]:
    """Return what each layer reads for one empty picture of `shape` (c, h, w), by block name."""
    seen: dict[str, Tensor] = {}
    model.eval()
    with torch.no_grad(), watched(model, lambda block, _, x: seen.update({block.name: x})):
        model(torch.zeros(1, *shape))
    return seen
