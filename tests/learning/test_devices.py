"""The device is chosen by name, used within a client's work, and leaves no trace."""

import numpy as np
import pytest
import torch
from nets import distance, samples, stream
from torch import nn

from testbed.errors import ConfigError
from testbed.learning.devices import CPU, choose, factors_on_cpu, on_cpu, placed
from testbed.learning.factors import Diagonal, Kronecker
from testbed.learning.fisher import fisher
from testbed.learning.models import build
from testbed.learning.training import Recipe, train

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
RECIPE = Recipe(epochs=2, lr=0.01, batch=16, momentum=0.9)
SHAPE = (1, 28, 28)


def test_the_processor_is_always_there() -> None:
    assert choose("cpu") == CPU


def test_auto_takes_cuda_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, kind in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert choose("auto").type == kind


def test_cuda_that_is_not_there_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"learning\.device: 'cuda' .* auto or cpu") as caught:
        choose("cuda")
    assert "\n" not in str(caught.value)


def test_results_are_contiguous_copies() -> None:
    weight = torch.arange(6.0).reshape(2, 3).T.requires_grad_()
    copies = on_cpu({"weight": weight, "count": torch.tensor(3)})
    assert copies["weight"].is_contiguous()
    assert not copies["weight"].requires_grad
    with torch.no_grad():
        weight.zero_()
    assert copies["weight"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert copies["count"].dtype == torch.int64


def test_factors_keep_their_form() -> None:
    a, g, f = torch.eye(2), torch.eye(3), torch.ones(3, 2)
    moved = factors_on_cpu({"one": Kronecker(a, g), "two": Diagonal(f)})
    assert [type(each) for each in moved.values()] == [Kronecker, Diagonal]
    assert torch.equal(moved["one"].a, a)
    assert torch.equal(moved["one"].g, g)
    assert torch.equal(moved["two"].f, f)


def test_settings_of_the_device_hold_within_the_block_only() -> None:
    before = torch.backends.cudnn.allow_tf32
    with placed(nn.Linear(2, 2), CPU):
        assert torch.backends.cudnn.deterministic
        assert not torch.backends.cudnn.allow_tf32
    assert torch.backends.cudnn.allow_tf32 == before


@cuda
@pytest.mark.parametrize("name", ["lenet", "resnet18-batchnorm"])
def test_training_on_cuda_agrees_with_the_processor(name: str) -> None:
    shape = (3, 32, 32) if name.startswith("resnet") else SHAPE
    model = build(name, shape, 10, seed=0)
    start = on_cpu(model.state_dict())
    x, y = samples(40, shape, 10)
    here = train(model, start, x, y, RECIPE, np.random.default_rng(0))
    there, again = (
        train(model, start, x, y, RECIPE, np.random.default_rng(0), torch.device("cuda"))
        for _ in range(2)
    )
    for key, value in there.items():
        assert (value.device, value.dtype) == (CPU, here[key].dtype)
        assert value.is_contiguous()
        torch.testing.assert_close(value, here[key], rtol=1e-3, atol=1e-4)
        assert torch.equal(value, again[key])
    assert next(model.parameters()).device == CPU


@cuda
@pytest.mark.parametrize("estimator", ["exact", "sampled", "empirical"])
def test_the_fisher_on_cuda_agrees_with_the_processor(estimator) -> None:
    model = build("lenet", SHAPE, 10, seed=0)
    state = on_cpu(model.state_dict())
    x, y = samples(30, SHAPE, 10)
    here = fisher(model, state, x, y, "kfac", estimator, stream())
    with placed(model, torch.device("cuda")):
        there = factors_on_cpu(
            fisher(model, state, x.cuda(), y.cuda(), "kfac", estimator, stream())
        )
    for name, factor in there.items():
        assert distance(factor, here[name].a, here[name].g) < 1e-4
