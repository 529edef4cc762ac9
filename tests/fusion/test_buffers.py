"""Buffers of the fused model against statistics of the pooled samples themselves."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from testbed.fusion.buffers import pooled
from testbed.fusion.fsosa import Projection, fuse
from testbed.learning.blocks import Block
from testbed.learning.contribution import Contribution
from testbed.learning.factors import Diagonal


def client(samples: int, **model: Tensor) -> Contribution:
    return Contribution(samples, {name.replace("__", "."): v for name, v in model.items()}, {})


def normed(samples: int, mean: list[float], variance: list[float], batches: int) -> Contribution:
    return client(
        samples,
        bn__weight=torch.ones(len(mean)),
        bn__running_mean=torch.tensor(mean),
        bn__running_var=torch.tensor(variance),
        bn__num_batches_tracked=torch.tensor(batches),
    )


def test_two_clients_by_hand() -> None:
    """n 1 and 3, means 0 and 4: mean 3, variance (1 + 3 (2 + 16)) / 4 - 9 = 4.75."""
    got = pooled([normed(1, [0.0], [1.0], 7), normed(3, [4.0], [2.0], 5)])
    assert got["bn.running_mean"].tolist() == [3.0]
    assert got["bn.running_var"].tolist() == [4.75]
    assert got["bn.num_batches_tracked"].item() == 7
    assert "bn.weight" not in got  # a parameter


def test_they_are_the_statistics_of_the_pooled_samples() -> None:
    rng = np.random.default_rng(0)
    data = [rng.normal(rng.normal(0, 3, 5), 2, (n, 5)) for n in (4, 50, 11)]
    contributions = [normed(len(x), x.mean(0).tolist(), x.var(0).tolist(), 1) for x in data]
    got = pooled(contributions)
    together = np.concatenate(data)
    np.testing.assert_allclose(got["bn.running_mean"], together.mean(0), rtol=1e-6)
    np.testing.assert_allclose(got["bn.running_var"], together.var(0), rtol=1e-6)


def test_types_stay_and_counts_are_never_averaged() -> None:
    big = 2**53 + 1  # not a float64
    got = pooled([normed(2, [1.0, 2.0], [1.0, 1.0], big), normed(2, [1.0, 2.0], [1.0, 1.0], 1)])
    assert got["bn.running_mean"].dtype == got["bn.running_var"].dtype == torch.float32
    assert got["bn.num_batches_tracked"].dtype == torch.int64
    assert got["bn.num_batches_tracked"].item() == big
    assert got["bn.num_batches_tracked"].shape == ()


def test_a_variance_is_not_negative_when_means_are_large() -> None:
    got = pooled([normed(n, [1e6 + n], [0.0], 1) for n in (1, 1, 1)])
    assert got["bn.running_var"].item() == 0.0


def test_one_client_keeps_its_buffers() -> None:
    alone = normed(3, [0.1, -7.3], [0.3, 1e-3], 11)
    for name, value in pooled([alone]).items():
        torch.testing.assert_close(value, alone.model[name], rtol=1e-6, atol=0)


def test_other_buffers() -> None:
    one = client(
        1, index=torch.tensor([1, 5]), mask=torch.tensor([True, False]), scale=torch.ones(2)
    )
    two = client(
        9, index=torch.tensor([4, 2]), mask=torch.tensor([True, True]), scale=torch.ones(2)
    )
    got = pooled([one, two])
    assert got["index"].tolist() == [4, 5]
    assert got["mask"].tolist() == [True, True]
    assert got["mask"].dtype == torch.bool
    assert "scale" not in got  # left to the plain mean


def test_the_state_of_real_layers_is_covered() -> None:
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.BatchNorm1d(12))
    net(torch.randn(8, 1, 4, 4))
    state = {name: value.clone() for name, value in net.state_dict().items()}
    got = pooled([Contribution(8, state, {}), Contribution(8, state, {})])
    assert got.keys() == {name for name, _ in net.named_buffers()}
    net.load_state_dict(state | got)


def test_a_normalisation_layer_may_be_the_whole_model() -> None:
    state = dict(nn.BatchNorm1d(2).state_dict())
    assert pooled([Contribution(1, state, {})]).keys() == {
        "running_mean",
        "running_var",
        "num_batches_tracked",
    }


def test_no_normalisation_no_buffers() -> None:
    assert pooled([client(1, fc__weight=torch.ones(2, 2))]) == {}


def test_scales_and_shifts_are_fused_coordinate_by_coordinate() -> None:
    """Without damping a normalisation layer is the mean weighted by its diagonal Fisher."""
    block = Block("bn", (2,), bias=True, norm=True)
    f = [torch.tensor([[1.0, 0.0], [2.0, 5.0]]), torch.tensor([[3.0, 0.0], [2.0, 0.0]])]
    w = [torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[5.0, 6.0], [7.0, 8.0]])]
    contributions = [
        Contribution(1, {"bn.weight": own[0], "bn.bias": own[1]}, {"bn": Diagonal(fisher)})
        for own, fisher in zip(w, f, strict=True)
    ]
    fused = fuse(contributions, [block], Projection(output_damping=0.0)).model
    assert fused["bn.weight"].tolist() == [4.0, 4.0]  # (1 + 15) / 4; nobody knows the second
    assert fused["bn.bias"].tolist() == [5.0, 4.0]


numbers = st.floats(-1e3, 1e3, width=32)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 10_000), numbers, st.floats(0, 1e3, width=32)),
        min_size=2,
        max_size=8,
    ),
    st.randoms(use_true_random=False),
)
def test_the_order_of_clients_changes_no_bit(moments, random) -> None:
    contributions = [normed(n, [mean], [variance], n) for n, mean, variance in moments]
    expected = pooled(contributions)
    random.shuffle(contributions)
    got = pooled(contributions)
    assert all(torch.equal(got[name], value) for name, value in expected.items())


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_a_shift_moves_the_mean_only(scale: float) -> None:
    means = [0.25, -0.5, 1.0]
    plain, shifted = (
        pooled([normed(n, [m + shift], [scale], 1) for n, m in zip((2, 4, 8), means, strict=True)])
        for shift in (0.0, 64.0)
    )
    assert shifted["bn.running_mean"] == plain["bn.running_mean"] + 64
    torch.testing.assert_close(shifted["bn.running_var"], plain["bn.running_var"])
