"""ResNet18 in its three variants: they learn, they have a Fisher, they can be fused."""

import numpy as np
import pytest
import torch
from nets import samples
from torch import Tensor, nn
from torch.nn import functional

from testbed.fusion.fsosa import Projection, fuse
from testbed.learning.blocks import blocks
from testbed.learning.contribution import Contribution
from testbed.learning.factors import Diagonal, Kronecker
from testbed.learning.fisher import fisher
from testbed.learning.models import build
from testbed.learning.resnet import ResNet, start_plain
from testbed.learning.training import Recipe, train

SHAPE = (3, 32, 32)
VARIANTS = ("resnet18", "resnet18-batchnorm", "resnet18-plain")


def narrow(name: str) -> ResNet:
    """The same network with an eighth of the channels."""
    torch.manual_seed(0)
    if name == "resnet18":
        return ResNet(SHAPE, 10, lambda channels: nn.GroupNorm(4, channels), channels=8)
    if name == "resnet18-batchnorm":
        return ResNet(SHAPE, 10, nn.BatchNorm2d, channels=8)
    model = ResNet(SHAPE, 10, lambda channels: nn.Identity(), bias=False, channels=8)
    start_plain(model)
    return model


def state_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def striped(count: int) -> tuple[Tensor, Tensor]:
    """Noisy pictures whose class is the place of a bright stripe."""
    generator = torch.Generator().manual_seed(2)
    x = 0.3 * torch.rand(count, *SHAPE, generator=generator)
    y = torch.arange(count) % 10
    for picture, label in zip(x, y.tolist(), strict=True):
        picture[:, 3 * label : 3 * label + 3] += 0.7
    return x, y


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_learns_from_its_initial_weights(name: str) -> None:
    model = narrow(name)
    x, y = striped(80)
    recipe = Recipe(epochs=12, lr=0.01, batch=16, momentum=0.9)
    state = train(model, state_of(model), x, y, recipe, np.random.default_rng(0))
    model.load_state_dict(state)
    model.train()
    with torch.no_grad():
        loss = float(functional.cross_entropy(model(x), y))
    assert loss < 0.5 * np.log(10)


def test_signals_keep_their_size_in_the_plain_network() -> None:
    """With torch's own initial weights they fade, and with them the gradients."""
    model = build("resnet18-plain", SHAPE, 10, seed=0)
    assert isinstance(model, ResNet)
    x = torch.randn(4, *SHAPE, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        stem = functional.relu(model.stem(x))
        ours = float(model.blocks(stem).pow(2).mean() / stem.pow(2).mean())
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                module.reset_parameters()
        stem = functional.relu(model.stem(x))
        theirs = float(model.blocks(stem).pow(2).mean() / stem.pow(2).mean())
    assert 0.2 < ours < 5
    assert theirs < 0.05


@pytest.mark.parametrize("name", VARIANTS)
def test_every_layer_has_a_fisher(name: str) -> None:
    model = narrow(name)
    x, y = samples(3, SHAPE, 10)
    found = fisher(model, state_of(model), x, y, "kfac", "empirical", np.random.default_rng(0))
    assert set(found) == {block.name for block in blocks(model)}
    convolutions = [each for each in found.values() if isinstance(each, Kronecker)]
    norms = [each for each in found.values() if isinstance(each, Diagonal)]
    assert (len(convolutions), len(norms)) == (21, 0 if name.endswith("plain") else 20)
    for factor in found.values():
        for tensor in (factor.a, factor.g) if isinstance(factor, Kronecker) else (factor.f,):
            assert torch.isfinite(tensor).all()
            assert tensor.any()


@pytest.mark.parametrize("name", VARIANTS)
def test_the_diagonal_is_the_sum_of_squared_gradients(name: str) -> None:
    model = narrow(name).eval()
    state = state_of(model)
    x, y = samples(3, SHAPE, 10)
    found = fisher(model, state, x, y, "diagonal", "empirical", np.random.default_rng(0))
    expected = torch.zeros_like(model.stem.weight)
    for picture, label in zip(x, y, strict=True):
        loss = functional.cross_entropy(model(picture[None]), label[None])
        expected += torch.autograd.grad(loss, model.stem.weight)[0].square()
    torch.testing.assert_close(
        found["stem"].f.reshape(expected.shape), expected, rtol=1e-3, atol=1e-9
    )


def test_running_statistics_are_pooled_when_models_are_fused() -> None:
    """Of clients with 10 and 30 samples: 10/40 and 30/40 of the moments."""
    model = narrow("resnet18-batchnorm")
    x, y = striped(40)
    contributions = []
    for part in (slice(0, 10), slice(10, 40)):
        recipe = Recipe(epochs=2, lr=0.01, batch=10, momentum=0.9)
        rng = np.random.default_rng(0)
        state = train(model, state_of(narrow("resnet18-batchnorm")), x[part], y[part], recipe, rng)
        factors = fisher(model, state, x[part], y[part], "diagonal", "empirical", rng)
        contributions.append(Contribution(len(y[part]), state, factors))
    fused = fuse(contributions, blocks(model), Projection(damping=0.2)).model
    means = [each.model["norm.running_mean"] for each in contributions]
    torch.testing.assert_close(fused["norm.running_mean"], 0.25 * means[0] + 0.75 * means[1])
    assert int(fused["norm.num_batches_tracked"]) == 6
    model.load_state_dict(fused)
    assert torch.isfinite(model.eval()(x)).all()
