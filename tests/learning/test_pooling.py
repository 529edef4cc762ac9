"""The fast pooling is torch's, bit by bit, in what it gives and in what it sends back."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, fx, nn
from torch.nn import functional

from testbed.learning.pooling import MaxPool2x2


def both(x: Tensor, gradient: Tensor) -> list[tuple[Tensor, Tensor]]:
    results = []
    for pool in (MaxPool2x2(), nn.MaxPool2d(2)):
        leaf = x.clone().requires_grad_()
        y = pool(leaf)
        results.append((y.detach(), torch.autograd.grad(y, leaf, gradient)[0]))
    return results


@settings(deadline=None)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(2, 9), st.integers(2, 9)),
    st.integers(0, 3),
    st.integers(0, 9),
)
def test_the_same_bits_as_torch(shape: tuple[int, int, int, int], levels: int, seed: int) -> None:
    """With few levels of grey almost every window has its maximum twice."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator)
    if levels:
        x = (x * levels).round().relu()
    gradient = torch.randn(*shape[:2], shape[2] // 2, shape[3] // 2, generator=generator)
    (ours, ours_back), (theirs, theirs_back) = both(x, gradient)
    assert torch.equal(ours, theirs)
    assert torch.equal(ours_back, theirs_back)
    assert ours.is_contiguous()


def test_a_window_by_hand() -> None:
    x = torch.tensor([[[[1.0, 5.0, 2.0, 2.0], [5.0, 0.0, 2.0, 2.0]]]])
    ((y, back), _) = both(x, torch.tensor([[[[3.0, 7.0]]]]))
    assert y.tolist() == [[[[5, 2]]]]
    assert back.tolist() == [[[[0, 3, 7, 0], [0, 0, 0, 0]]]]  # the first of equals


def test_not_a_number_comes_through() -> None:
    x = torch.tensor([[[[1.0, torch.nan], [5.0, 0.0]]]])
    assert MaxPool2x2()(x).isnan().all()


def test_one_picture_and_other_layouts() -> None:
    x = torch.randn(3, 8, 6, generator=torch.Generator().manual_seed(0))
    assert torch.equal(MaxPool2x2()(x), functional.max_pool2d(x, 2))
    last = torch.randn(2, 3, 8, 6).contiguous(memory_format=torch.channels_last)
    (ours, ours_back), (theirs, theirs_back) = both(last, torch.randn(2, 3, 4, 3))
    assert torch.equal(ours, theirs)
    assert torch.equal(ours_back, theirs_back)


def test_second_derivatives_agree() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 1, 8, 8, generator=generator, dtype=torch.float64)
    weight = torch.randn(1, 1, 3, 3, generator=generator, dtype=torch.float64)
    products = []
    for pool in (MaxPool2x2(), nn.MaxPool2d(2)):
        w = weight.clone().requires_grad_()
        loss = pool(functional.conv2d(x, w, padding=1)).tanh().square().sum()
        (first,) = torch.autograd.grad(loss, w, create_graph=True)
        products.append(torch.autograd.grad(first, w, torch.ones_like(first))[0])
    assert torch.equal(*products)


def test_it_can_be_traced() -> None:
    traced = fx.symbolic_trace(nn.Sequential(MaxPool2x2(), nn.Flatten()))
    assert functional.max_pool2d in [node.target for node in traced.graph.nodes]
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    assert traced(x).tolist() == [[5, 7, 13, 15]]


def test_it_passes_for_torchs_own() -> None:
    pool = MaxPool2x2()
    assert isinstance(pool, nn.MaxPool2d)
    assert (pool.kernel_size, pool.stride, pool.padding) == (2, 2, 0)
