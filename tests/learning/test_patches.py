"""Second moments of patches against patches formed one by one."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.learning import patches
from testbed.learning.blocks import blocks, matrix
from testbed.learning.patches import PatchMoments, padded

# Torch says once that it copies the input for an even kernel.
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")

CONVOLUTIONS = {
    "plain": {"kernel_size": 3},
    "one by one": {"kernel_size": 1},
    "strided": {"kernel_size": 3, "stride": 2, "padding": 1},
    "oblong": {"kernel_size": (3, 2), "stride": (1, 2), "padding": (0, 1)},
    "dilated": {"kernel_size": (2, 3), "dilation": (3, 2), "stride": (2, 1), "padding": 2},
    "same": {"kernel_size": (4, 3), "padding": "same"},
    "valid": {"kernel_size": 5, "padding": "valid"},
    "reflected": {"kernel_size": 3, "padding": 2, "padding_mode": "reflect"},
    "circular": {"kernel_size": 3, "padding": "same", "padding_mode": "circular"},
}


def by_definition(module: nn.Conv2d, x: Tensor) -> Tensor:
    """A from patches, each read off as the gradient of an output in the weight."""
    weight = module.weight.detach().clone().requires_grad_()
    bias = None if module.bias is None else module.bias.detach().clone().requires_grad_()
    total = 0.0
    for picture in x:
        out = module._conv_forward(picture[None], weight, bias)[0, 0]
        for value in out.flatten():
            leaves = [weight] if bias is None else [weight, bias]
            gradients = torch.autograd.grad(value, leaves, retain_graph=True)
            a = torch.cat([gradient[0].flatten() for gradient in gradients])
            total = total + torch.outer(a, a)
    return total


def inputs(n: int, channels: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, channels, 7, 8, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("way", ["_ByRows", "_ByPatches", "cheaper"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_moments_by_definition(name: str, way: str, bias: bool, monkeypatch) -> None:
    module = nn.Conv2d(2, 3, bias=bias, **CONVOLUTIONS[name]).double()
    x = inputs(5)
    if way == "_ByRows":
        monkeypatch.setattr(patches, "_ByPatches", lambda m: patches._ByRows(m, *shape))
        shape = padded(module, x).shape[1:]
    elif way == "_ByPatches":
        monkeypatch.setattr(patches, "_ByRows", lambda m, *shape: patches._ByPatches(m))
    moments = PatchMoments(module, x[0])
    for part in (x[:2], x[2:]):
        moments.add(part)
    torch.testing.assert_close(moments.total(), by_definition(module, x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_patches_times_weights_is_the_convolution(name: str) -> None:
    module = nn.Conv2d(2, 3, bias=False, **CONVOLUTIONS[name]).double()
    (block,) = blocks(module)
    x = inputs(3)
    columns = patches.patches(module, padded(module, x))
    out = matrix(block, {".weight": module.weight.detach()}) @ columns
    torch.testing.assert_close(out, module(x).detach().flatten(2))


def test_each_way_is_taken_where_it_is_cheaper() -> None:
    """5x5 on 28x28: 5 28 28^2 = 109,760 by rows against 24^2 25^2; 1x1 on 7x8, 2 channels:
    7 16^2 = 1,792 against 56 2^2 = 224."""
    large, small = nn.Conv2d(1, 6, 5), nn.Conv2d(2, 3, 1)
    by_rows = PatchMoments(large, torch.zeros(1, 28, 28))
    assert isinstance(by_rows._products, patches._ByRows)
    assert isinstance(PatchMoments(small, torch.zeros(2, 7, 8))._products, patches._ByPatches)


def test_moments_of_rows_are_kept_only_where_they_are_few() -> None:
    """256 channels on 12x12: 3 12 3072^2 = 340 million by rows against 100 2304^2 = 531, but
    they would fill 1.4 GB where A has 21 MB; 64 channels: 3 12 768^2 = 21 against 33 million."""
    wide, narrow = nn.Conv2d(256, 1, 3), nn.Conv2d(64, 1, 3)
    formed = PatchMoments(wide, torch.zeros(256, 12, 12))._products
    assert isinstance(formed, patches._ByPatches)
    assert isinstance(PatchMoments(narrow, torch.zeros(64, 12, 12))._products, patches._ByRows)


def test_a_batch_leaves_its_input_alone() -> None:
    module, x = nn.Conv2d(2, 3, 3, padding=1), inputs(2).float()
    before = x.clone()
    PatchMoments(module, x[0]).add(x)
    assert torch.equal(x, before)
    assert torch.equal(padded(module, x), functional.pad(x, (1, 1, 1, 1)))
