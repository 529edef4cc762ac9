"""The networks: published sizes, named seeds, helpful refusals."""

from pathlib import Path

import numpy as np
import pytest
import torch
from nets import samples
from torch import nn

from testbed.config.detection import DETECTORS
from testbed.errors import DataError
from testbed.learning.factors import Kind, Kronecker
from testbed.learning.fisher import fisher
from testbed.learning.models import MODELS, build


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# By hand, LeNet: 6 x 25 + 16 x 150 + 120 x 256 + 84 x 120 + 10 x 84 = 44,190.
# Small CNN: 32 x 10 + 64 x 289 + 128 x 257 + 10 x 129 = 53,002.
# LEAF's: 32 x 26 + 64 x 801 + 2048 x 3137 + 62 x 2049 = 6,603,710.
# ResNet18 has 4,800 channels to normalise, with a scale and a shift each: without them and
# the output layer's 10 biases, 11,173,962 - 9,600 - 10 = 11,164,352.
# Two layers: 512 x 784 + 10 x 512 = 406,528.
@pytest.mark.parametrize(
    ("name", "shape", "classes", "parameters"),
    [
        ("lenet", (1, 28, 28), 10, 44_190),
        ("lenet", (3, 32, 32), 10, 61_770),
        ("cnn", (3, 32, 32), 10, 939_616),
        ("small-cnn", (1, 8, 8), 10, 53_002),
        ("femnist-cnn", (1, 28, 28), 62, 6_603_710),
        ("resnet18", (3, 32, 32), 10, 11_173_962),
        ("resnet18-batchnorm", (3, 32, 32), 10, 11_173_962),
        ("resnet18-plain", (3, 32, 32), 10, 11_164_352),
        ("mlp", (1, 28, 28), 10, 406_528),
    ],
)
def test_parameter_counts(
    name: str, shape: tuple[int, int, int], classes: int, parameters: int
) -> None:
    model = build(name, shape, classes, seed=0)
    assert count(model) == parameters
    assert model(torch.zeros(2, *shape)).shape == (2, classes)


def test_the_page_of_the_models_has_their_counts() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "models.md").read_text(encoding="utf-8")
    for name in MODELS:
        assert f"| `{name}` |" in page
    for number in ("44,190", "61,770", "939,616", "6,603,710", "11,173,962", "11,164,352"):
        assert number in page


def test_the_width_of_the_two_layer_network_is_given() -> None:
    model = build("mlp", (3, 4, 4), 7, seed=0, width=20)
    assert [tuple(value.shape) for value in model.state_dict().values()] == [(20, 48), (7, 20)]
    assert count(build("lenet", (1, 28, 28), 10, seed=0, width=20)) == 44_190


def test_networks_for_matching_neurons_carry_no_bias() -> None:
    for name in ("lenet", "cnn", "mlp", "resnet18-plain"):
        assert not any("bias" in key for key in build(name, (1, 28, 28), 10, 0).state_dict())


@pytest.mark.parametrize("kind", ["kfac", "diagonal"])
@pytest.mark.parametrize(
    ("name", "side", "sizes"),
    [
        # Inputs and outputs of the factors; one input more where there is a bias.
        ("femnist-cnn", 4, [(26, 32), (801, 64), (65, 2048), (2049, 5)]),
        ("small-cnn", 4, [(10, 32), (289, 64), (65, 128), (129, 5)]),
        ("lenet", 16, [(25, 6), (150, 16), (16, 120), (120, 84), (84, 5)]),
        ("mlp", 2, [(4, 16), (16, 5)]),
    ],
)
def test_every_layer_has_a_fisher(
    name: str, side: int, sizes: list[tuple[int, int]], kind: Kind
) -> None:
    model = build(name, (1, side, side), 5, seed=0, width=16)
    x, y = samples(3, (1, side, side), 5)
    found = fisher(model, model.state_dict(), x, y, kind, "exact", np.random.default_rng(0))
    for factor, (inputs, outputs) in zip(found.values(), sizes, strict=True):
        if isinstance(factor, Kronecker):
            assert (len(factor.a), len(factor.g)) == (inputs, outputs)
            assert torch.isfinite(factor.a).all()
            assert torch.isfinite(factor.g).all()
        else:
            assert factor.f.shape == (outputs, inputs)
            assert torch.isfinite(factor.f).all()


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


@pytest.mark.parametrize(
    ("name", "side"),
    [("femnist-cnn", 3), ("small-cnn", 3), ("resnet18", 15), ("resnet18-batchnorm", 15)],
)
def test_the_smallest_pictures_of_the_others(name: str, side: int) -> None:
    with pytest.raises(DataError, match=f"pictures of {side}x32 are too small") as caught:
        build(name, (1, side, 32), 10, seed=0)
    assert "\n" not in str(caught.value)
    assert build(name, (1, side + 1, 32), 10, seed=0).train()(torch.ones(1, 1, side + 1, 32)).shape


def test_sixteen_pixels_are_just_enough_for_lenet() -> None:
    # (16 - 4) / 2 = 6, (6 - 4) / 2 = 1; from 15 pixels nothing is left.
    assert build("lenet", (1, 16, 16), 10, 0)(torch.zeros(1, 1, 16, 16)).shape == (1, 10)
    with pytest.raises(DataError):
        build("lenet", (1, 15, 15), 10, 0)


def test_every_model_has_its_name_in_the_configuration() -> None:
    from typing import get_args

    from testbed.config.schema import LearningConfig

    allowed = get_args(LearningConfig.model_fields["model"].annotation)
    assert set(allowed) == {"auto", *MODELS, *DETECTORS}
