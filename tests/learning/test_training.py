"""Local training against a reference written by hand in numpy."""

import numpy as np
import pytest
import torch
from torch import nn

from testbed.learning.models import build
from testbed.learning.training import Recipe, train

SAMPLES, INPUTS, CLASSES = 10, 4, 3
RECIPE = Recipe(epochs=3, lr=0.1, batch=4, momentum=0.9)


@pytest.fixture
def problem() -> tuple[nn.Linear, dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(0)
    model = nn.Linear(INPUTS, CLASSES).double()
    start = {
        "weight": torch.from_numpy(rng.standard_normal((CLASSES, INPUTS))),
        "bias": torch.from_numpy(rng.standard_normal(CLASSES)),
    }
    x = torch.from_numpy(rng.standard_normal((SAMPLES, INPUTS)))
    y = torch.from_numpy(rng.integers(CLASSES, size=SAMPLES))
    return model, start, x, y


def reference(start, x, y, recipe, rng, last_batch=True):
    """Softmax regression by SGD with momentum: v = mu v + g, w = w - lr v."""
    w = np.column_stack([start["weight"].numpy(), start["bias"].numpy()])
    x = np.column_stack([x.numpy(), np.ones(SAMPLES)])
    y = np.eye(CLASSES)[y.numpy()]
    v = np.zeros_like(w)
    for _ in range(recipe.epochs):
        order = rng.permutation(SAMPLES)
        for begin in range(0, SAMPLES, recipe.batch):
            chosen = order[begin : begin + recipe.batch]
            if len(chosen) < recipe.batch and not last_batch:
                continue
            scores = np.exp(x[chosen] @ w.T)
            p = scores / scores.sum(axis=1, keepdims=True)
            gradient = (p - y[chosen]).T @ x[chosen] / len(chosen)
            v = recipe.momentum * v + gradient
            w = w - recipe.lr * v
    return w


def as_matrix(state: dict[str, torch.Tensor]) -> np.ndarray:
    return np.column_stack([state["weight"].numpy(), state["bias"].numpy()])


def test_training_is_sgd_with_momentum_over_shuffled_epochs(problem) -> None:
    model, start, x, y = problem
    trained = train(model, start, x, y, RECIPE, np.random.default_rng(5))
    expected = reference(start, x, y, RECIPE, np.random.default_rng(5))
    np.testing.assert_allclose(as_matrix(trained), expected, rtol=1e-12)


def test_the_last_smaller_batch_of_an_epoch_is_used(problem) -> None:
    model, start, x, y = problem
    trained = train(model, start, x, y, RECIPE, np.random.default_rng(5))
    without = reference(start, x, y, RECIPE, np.random.default_rng(5), last_batch=False)
    assert np.abs(as_matrix(trained) - without).max() > 1e-2


def test_a_batch_larger_than_the_client_is_one_full_step(problem) -> None:
    model, start, x, y = problem
    recipe = Recipe(epochs=1, lr=0.1, batch=1000, momentum=0.9)
    trained = train(model, start, x, y, recipe, np.random.default_rng(5))
    expected = reference(start, x, y, recipe, np.random.default_rng(1))  # any order
    np.testing.assert_allclose(as_matrix(trained), expected, rtol=1e-12)


def test_training_depends_on_its_arguments_only(problem) -> None:
    model, start, x, y = problem
    first = train(model, start, x, y, RECIPE, np.random.default_rng(5))
    torch.manual_seed(123)
    with torch.no_grad():
        model.weight.fill_(torch.nan)  # whatever an earlier client left behind
    model.eval()
    second = train(model, start, x, y, RECIPE, np.random.default_rng(5))
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = train(model, start, x, y, RECIPE, np.random.default_rng(6))
    assert not torch.equal(first["weight"], other["weight"])


def test_neither_start_nor_result_shares_memory_with_the_model(problem) -> None:
    model, start, x, y = problem
    before = {name: value.clone() for name, value in start.items()}
    trained = train(model, start, x, y, RECIPE, np.random.default_rng(5))
    kept = {name: value.clone() for name, value in trained.items()}
    with torch.no_grad():
        model.weight.zero_()
    assert all(torch.equal(start[name], before[name]) for name in before)
    assert all(torch.equal(trained[name], kept[name]) for name in kept)
    assert not any(value.requires_grad for value in trained.values())


def test_training_runs_in_train_mode() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2)).eval()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    x, y = torch.tensor([[1.0, 5.0], [3.0, 9.0]]), torch.tensor([0, 1])
    recipe = Recipe(epochs=1, lr=0.1, batch=2, momentum=0.0)
    trained = train(model, start, x, y, recipe, np.random.default_rng(0))
    # Momentum 0.1 of BatchNorm towards the batch's means 2 and 7.
    torch.testing.assert_close(trained["0.running_mean"], torch.tensor([0.2, 0.7]))
    assert int(trained["0.num_batches_tracked"]) == 1


def plain_loop(model, start, x, y, recipe, rng):
    """The loop that anyone would write."""
    model.load_state_dict(start)
    model.train()
    criterion = nn.CrossEntropyLoss()
    optimiser = torch.optim.SGD(model.parameters(), lr=recipe.lr, momentum=recipe.momentum)
    for _ in range(recipe.epochs):
        order = torch.from_numpy(rng.permutation(len(y)))
        for begin in range(0, len(y), recipe.batch):
            chosen = order[begin : begin + recipe.batch]
            optimiser.zero_grad()
            criterion(model(x[chosen]), y[chosen]).backward()
            optimiser.step()
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", ["lenet", "small-cnn", "mlp", "batchnorm", "unused"])
def test_bit_for_bit_what_a_plain_loop_gives(name: str, momentum: float) -> None:
    if name == "batchnorm":
        model = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(),
            nn.Linear(4 * 26 * 26, 10),
        )  # fmt: skip
    elif name == "unused":
        model = build("lenet", (1, 28, 28), 10, seed=0)
        model.register_parameter("spare", nn.Parameter(torch.ones(3)))
    else:
        model = build(name, (1, 28, 28), 10, seed=0)
    start = {key: value.clone() for key, value in model.state_dict().items()}
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(50, 1, 28, 28, generator=generator)
    y = torch.randint(10, (50,), generator=generator)
    recipe = Recipe(epochs=2, lr=0.05, batch=16, momentum=momentum)
    expected = plain_loop(model, start, x, y, recipe, np.random.default_rng(1))
    trained = train(model, start, x, y, recipe, np.random.default_rng(1))
    assert list(trained) == list(expected)
    assert all(torch.equal(trained[key], expected[key]) for key in expected)


def test_frozen_weights_stay(problem) -> None:
    model, start, x, y = problem
    model.bias.requires_grad_(False)
    trained = train(model, start, x, y, RECIPE, np.random.default_rng(5))
    assert torch.equal(trained["bias"], start["bias"])
    assert not torch.equal(trained["weight"], start["weight"])
