"""The networks: published sizes, named seeds, helpful refusals."""

import pytest
import torch
from torch import nn

from testbed.errors import DataError
from testbed.learning.models import MODELS, build


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# FedFisher's networks; by hand for LeNet:
# 6 x 25 + 16 x 150 + 120 x 256 + 84 x 120 + 10 x 84 = 44,190.
# Small CNN: 32 x 10 + 64 x 289 + 128 x 257 + 10 x 129 = 53,002.
@pytest.mark.parametrize(
    ("name", "shape", "parameters"),
    [
        ("lenet", (1, 28, 28), 44_190),
        ("lenet", (3, 32, 32), 61_770),
        ("cnn", (3, 32, 32), 939_616),
        ("small-cnn", (1, 8, 8), 53_002),
    ],
)
def test_parameter_counts(name: str, shape: tuple[int, int, int], parameters: int) -> None:
    model = build(name, shape, 10, seed=0)
    assert count(model) == parameters
    assert model(torch.zeros(2, *shape)).shape == (2, 10)


def test_lenet_and_cnn_carry_no_bias() -> None:
    for name in ("lenet", "cnn"):
        assert not any("bias" in key for key in build(name, (1, 28, 28), 10, 0).state_dict())


def test_the_seed_alone_determines_the_weights() -> None:
    first = build("lenet", (1, 28, 28), 10, seed=3).state_dict()
    torch.manual_seed(99)
    second = build("lenet", (1, 28, 28), 10, seed=3).state_dict()
    other = build("lenet", (1, 28, 28), 10, seed=4).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)


def test_seeds_of_63_bits_are_accepted() -> None:
    assert count(build("small-cnn", (1, 8, 8), 10, seed=2**63 - 1)) == 53_002


def test_the_callers_random_state_is_left_alone() -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    build("small-cnn", (1, 8, 8), 10, seed=3)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("side", "name"), [(8, "small-cnn"), (19, "small-cnn"), (20, "lenet"), (28, "lenet")]
)
def test_auto_chooses_by_the_size_of_the_pictures(side: int, name: str) -> None:
    chosen, named = (build(each, (1, side, side), 10, seed=0) for each in ("auto", name))
    assert str(chosen) == str(named)


@pytest.mark.parametrize("name", ["lenet", "cnn"])
def test_pictures_too_small_are_refused_in_one_line(name: str) -> None:
    with pytest.raises(DataError, match=r"8x28.*small-cnn") as caught:
        build(name, (1, 8, 28), 10, seed=0)
    assert "\n" not in str(caught.value)


def test_sixteen_pixels_are_just_enough_for_lenet() -> None:
    # (16 - 4) / 2 = 6, (6 - 4) / 2 = 1; from 15 pixels nothing is left.
    assert build("lenet", (1, 16, 16), 10, 0)(torch.zeros(1, 1, 16, 16)).shape == (1, 10)
    with pytest.raises(DataError):
        build("lenet", (1, 15, 15), 10, 0)


def test_every_model_has_its_name_in_the_configuration() -> None:
    from typing import get_args

    from testbed.config.schema import LearningConfig

    allowed = get_args(LearningConfig.model_fields["model"].annotation)
    assert set(allowed) == {"auto", *MODELS}
