"""A vehicle's training is its recipe: the given weights, every step, the same each time."""

import math
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from shared_data import bundle
from states import FIRST, RECIPE, SIX, apart, learnt, rng, same, steps_of
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from testbed.learning.detection import training
from testbed.learning.detection.network import build, loss
from testbed.learning.detection.pictures import Pictures, load
from testbed.learning.detection.training import CLIP, train
from testbed.learning.devices import CPU

pytestmark = pytest.mark.usefixtures("yolo")


@pytest.fixture
def counted() -> Iterator[list[str]]:
    """Every optimiser step that is taken, by the optimiser's name."""
    taken: list[str] = []
    hook = register_optimizer_step_post_hook(lambda which, *_: taken.append(type(which).__name__))
    yield taken
    hook.remove()


@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
def test_the_given_weights_are_the_ones_trained(model, start, pictures, optimiser):
    """The zeroed donor: a first convolution of zeros comes back when steps have no length."""
    given = {**start, FIRST: torch.zeros_like(start[FIRST])}
    recipe = replace(RECIPE, epochs=2, lr=0.0, optimiser=optimiser)
    trained = train(model, given, pictures, SIX, recipe, rng())
    assert not trained[FIRST].any()
    assert same(learnt(trained, model), learnt(given, model))
    moved = train(model, given, pictures, SIX, replace(recipe, lr=0.001), rng())
    assert moved[FIRST].any()


@pytest.mark.parametrize(
    ("count", "batch", "epochs", "steps"),
    [(6, 6, 10, 10), (6, 4, 3, 6), (5, 2, 2, 6), (6, 64, 2, 2), (1, 1, 2, 2)],
)
@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
def test_every_batch_is_a_step(
    model, start, pictures, counted, count, batch, epochs, steps, optimiser
):
    recipe = replace(RECIPE, batch=batch, epochs=epochs, optimiser=optimiser)
    trained = train(model, start, pictures, np.arange(count), recipe, rng())
    assert counted == [{"sgd": "SGD", "adamw": "AdamW"}[optimiser]] * steps
    assert steps_of(trained) == steps


def test_running_statistics_are_part_of_the_state(model, start, pictures):
    trained = train(model, start, pictures, SIX, replace(RECIPE, lr=0.0), rng())
    # After one step: 0.97 of what they were and 0.03 of the batch's.
    x = torch.from_numpy(pictures.pixels[SIX]).float() / 255
    seen = nn.functional.conv2d(x, start[FIRST], stride=2, padding=1)
    mean = 0.03 * seen.mean((0, 2, 3))
    assert torch.allclose(trained["model.0.bn.running_mean"], mean, atol=1e-6)
    variance = 0.97 + 0.03 * seen.transpose(0, 1).flatten(1).var(1)
    assert torch.allclose(trained["model.0.bn.running_var"], variance)


def gradients(model: nn.Module, start: dict[str, Tensor], pictures: Pictures) -> list[Tensor]:
    """Return the gradient of the six pictures' loss, its norm clipped by hand."""
    model.load_state_dict(start)
    model.train()
    x = torch.from_numpy(pictures.pixels[SIX]).float() / 255
    rows = [[i, *box] for i, boxes in enumerate(pictures.targets) for box in boxes.tolist()]
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    found = torch.autograd.grad(loss(model, x, torch.tensor(rows)), weights)
    norm = math.sqrt(sum(float(each.double().square().sum()) for each in found))
    assert norm > CLIP == 10
    return [each * (10 / norm) for each in found]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_step_of_sgd_by_hand(model, start, pictures, momentum):
    expected = gradients(model, start, pictures)
    names = [name for name, weight in model.named_parameters() if weight.requires_grad]
    trained = train(model, start, pictures, SIX, replace(RECIPE, momentum=momentum), rng())
    for name, gradient in zip(names, expected, strict=True):
        # Nesterov's step looks ahead by the momentum, which is the gradient at first.
        by_hand = start[name] - 0.001 * (gradient + momentum * gradient)
        assert torch.allclose(trained[name], by_hand, rtol=1e-5, atol=1e-6)


def test_a_step_of_adamw_by_hand(model, start, pictures):
    expected = gradients(model, start, pictures)
    names = [name for name, weight in model.named_parameters() if weight.requires_grad]
    trained = train(model, start, pictures, SIX, replace(RECIPE, optimiser="adamw"), rng())
    for name, gradient in zip(names, expected, strict=True):
        certain = gradient.abs() > 1e-4
        by_hand = start[name] - 0.001 * gradient.sign()  # and no decay of the weight
        assert torch.allclose(trained[name][certain], by_hand[certain], rtol=1e-3, atol=1e-6)


def test_the_same_arguments_give_the_same_bits(model, start, pictures):
    recipe = replace(RECIPE, epochs=2, batch=4, augment="mosaic")
    one = train(model, start, pictures, SIX, recipe, rng(1))
    train(model, start, pictures, SIX[:2], replace(recipe, optimiser="adamw"), rng(5))
    assert same(one, train(model, start, pictures, SIX, recipe, rng(1)))
    assert same(one, train(build("yolov8n", 10, 4), start, pictures, SIX, recipe, rng(1)))
    assert not same(one, train(model, start, pictures, SIX, recipe, rng(2)))


def test_it_draws_from_its_own_generator_only(model, start, pictures):
    def states() -> tuple[list[int], str, object]:
        return (
            torch.get_rng_state().tolist(),
            str(np.random.get_state()),  # noqa: NPY002
            random.getstate(),
        )

    before = states()
    train(model, start, pictures, SIX, replace(RECIPE, augment="mosaic"), rng())
    assert states() == before


def test_a_pictures_augmentation_depends_on_client_and_epoch_only(
    model, start, pictures, monkeypatch
):
    drawn: dict[tuple[int, int], float] = {}
    real = training.batch

    def recorded(pictures, chosen, augment, key, pool):
        assert sorted(pool) == sorted(SIX)
        for picture in chosen.tolist():
            epoch = sum(seen[1] == picture for seen in drawn)
            drawn[epoch, picture] = key(picture).random()
            assert key(picture).random() == drawn[epoch, picture]
        return real(pictures, chosen, augment, key, pool)

    def draws(batch: int, seed: int, order: np.ndarray = SIX) -> dict[tuple[int, int], float]:
        drawn.clear()
        recipe = replace(RECIPE, epochs=2, batch=batch, augment="flip")
        train(model, start, pictures, order, recipe, rng(seed))
        return dict(drawn)

    monkeypatch.setattr(training, "batch", recorded)
    expected = draws(6, 0)
    assert len(set(expected.values())) == 12
    assert draws(4, 0) == expected
    assert draws(6, 0, SIX[::-1].copy()) == expected
    assert not set(draws(6, 1).values()) & set(expected.values())


def test_each_epoch_sees_every_picture_once_in_its_own_order(model, start, pictures, monkeypatch):
    seen: list[list[int]] = []
    real = training.batch

    def recorded(pictures, chosen, *rest):
        seen.append(chosen.tolist())
        return real(pictures, chosen, *rest)

    monkeypatch.setattr(training, "batch", recorded)
    part = np.array([5, 1, 3])
    train(model, start, pictures, part, replace(RECIPE, epochs=4, batch=2), rng())
    assert [len(batch) for batch in seen] == [2, 1] * 4
    epochs = [seen[i] + seen[i + 1] for i in range(0, 8, 2)]
    assert all(sorted(epoch) == [1, 3, 5] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1


def test_what_comes_back_is_nobody_elses(model, start, pictures):
    given = {name: value.clone() for name, value in start.items()}
    trained = train(model, start, pictures, SIX, RECIPE, rng())
    kept = {name: value.clone() for name, value in trained.items()}
    train(model, start, pictures, SIX, replace(RECIPE, lr=0.01), rng())
    assert same(trained, kept)
    assert same(start, given)
    assert list(trained) == list(start)
    for name, value in trained.items():
        assert value.dtype == start[name].dtype
        assert value.is_contiguous()
        assert not value.requires_grad
    assert all(weight.grad is None for weight in model.parameters())


def test_it_learns(model, start, pictures):
    """Classes that are in a picture come to score higher in it than those that are not."""
    present = torch.zeros(6, 10, dtype=torch.bool)
    for picture, boxes in zip(present, pictures.targets, strict=True):
        picture[boxes[:, 0].astype(int)] = True

    def lead(state: dict[str, Tensor]) -> float:
        model.load_state_dict(state)
        model.train()
        with torch.no_grad():
            scores = model(torch.from_numpy(pictures.pixels[SIX]).float() / 255)["scores"]
        best = scores.amax(2)
        return float(best[present].mean() - best[~present].mean())

    recipe = replace(RECIPE, epochs=10, batch=3, lr=0.003, optimiser="adamw")
    assert lead(train(model, start, pictures, SIX, recipe, rng())) > lead(start) + 0.5


def without_boxes(pictures: Pictures) -> Pictures:
    return replace(pictures, targets=tuple(boxes[:0] for boxes in pictures.targets))


@pytest.mark.parametrize("augment", ["none", "flip", "mosaic"])
def test_a_client_without_a_box_learns_what_background_is(model, start, pictures, augment):
    recipe = replace(RECIPE, epochs=3, lr=0.01, augment=augment)
    trained = train(model, start, without_boxes(pictures), SIX, recipe, rng())
    assert all(bool(value.isfinite().all()) for value in trained.values())
    scores = trained["model.22.cv3.0.2.bias"] - start["model.22.cv3.0.2.bias"]
    assert (scores < 0).all()
    # Nothing says where boxes would be.
    assert torch.equal(trained["model.22.cv2.0.2.bias"], start["model.22.cv2.0.2.bias"])


def test_a_client_without_a_picture_keeps_what_it_was_given(model, start, pictures):
    assert same(train(model, start, pictures, SIX[:0], RECIPE, rng()), start)


def test_a_loss_that_is_not_finite_ends_the_training(model, start, pictures, counted):
    recipe = replace(RECIPE, epochs=20, lr=1e30)
    with pytest.raises(ArithmeticError) as caught:
        train(model, start, pictures, SIX, recipe, rng())
    # What to do stands once, at the end of the line of the run.
    number = r"(nan|inf|[\d.e+]+)"
    line = f"step 2: the loss is {number} and the norm of its gradient {number}"
    assert re.fullmatch(line, str(caught.value))
    assert len(counted) == 1  # and no step was made of it
    # The network is as good as before for the next client.
    again = train(model, start, pictures, SIX, RECIPE, rng())
    assert same(again, train(build("yolov8n", 10, 3), start, pictures, SIX, RECIPE, rng()))


def test_a_gradient_that_is_not_finite_ends_it_too(model, start, pictures, monkeypatch, counted):
    class Steep(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value):
            return value.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * float("inf")

    monkeypatch.setattr(training, "loss", lambda *given: Steep.apply(loss(*given)))
    told = r"^step 1: the loss is \d.* gradient (nan|inf); check the weights that training starts"
    with pytest.raises(ArithmeticError, match=told):
        train(model, start, pictures, SIX, RECIPE, rng())
    assert counted == []


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        MemoryError(),
    ],
)
def test_out_of_memory_goes_through_and_nothing_is_tried_again(
    model, start, pictures, monkeypatch, error
):
    sizes: list[int] = []

    def full(model, images, targets):
        sizes.append(len(images))
        raise error

    monkeypatch.setattr(training, "loss", full)
    with pytest.raises(type(error)) as caught:
        train(model, start, pictures, SIX, RECIPE, rng())
    assert caught.value is error
    assert sizes == [6]


def test_bf16_is_for_the_passes_only(model, start, pictures):
    def moved(state: dict[str, Tensor]) -> Tensor:
        assert all(value.dtype == start[name].dtype for name, value in state.items())
        names = learnt(start, model)
        return torch.cat([(state[name] - start[name]).flatten() for name in names])

    exact = moved(train(model, start, pictures, SIX, RECIPE, rng()))
    coarse = moved(train(model, start, pictures, SIX, replace(RECIPE, precision="bf16"), rng()))
    # The step goes where the exact one does, and is of a length that eight bits cannot tell.
    assert 0.8 < float(nn.functional.cosine_similarity(exact, coarse, dim=0)) < 0.999
    assert float(coarse.norm()) == pytest.approx(float(exact.norm()), rel=1e-4)


def test_the_compiled_network_is_the_same_module(model, start, pictures, monkeypatch):
    """Traced and compiled once; the weights of each client are those it is given."""
    graphs: list[int] = []

    def counting(graph, inputs):
        graphs.append(len(inputs))
        return graph.forward

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=counting))
    compiled = train(model, start, pictures, SIX, replace(RECIPE, compile=True), rng())
    assert apart(compiled, train(model, start, pictures, SIX, RECIPE, rng())) < 1e-6
    once = len(graphs)
    assert once > 0
    other = {**start, FIRST: start[FIRST] / 2}
    compiled = train(model, other, pictures, SIX, replace(RECIPE, compile=True), rng())
    assert apart(compiled, train(model, other, pictures, SIX, RECIPE, rng())) < 1e-6
    assert len(graphs) == once
    torch._dynamo.reset()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_on_cuda(model, start, pictures, precision):
    recipe = replace(RECIPE, epochs=2, precision=precision)
    there = [
        train(model, start, pictures, SIX, recipe, rng(), torch.device("cuda")) for _ in range(2)
    ]
    here = train(model, start, pictures, SIX, recipe, rng(), CPU)
    assert all(value.is_contiguous() and value.device == CPU for value in there[0].values())
    assert apart(here, there[0]) < (1e-3 if precision == "float32" else 0.05)
    assert apart(*there) < (1e-5 if precision == "float32" else 0.01)


def test_real_pictures(model, start, tmp_path):
    folder = bundle("bdd100k_640")
    labels = sorted(folder.glob("*train*.json"))[0]
    real = load(
        folder / "images" / "train", labels, folder / "images" / "train", labels,
        (96, 160), tmp_path, limit=6, test_limit=1,
    ).train  # fmt: skip
    trained = train(model, start, real, SIX, replace(RECIPE, batch=4, augment="mosaic"), rng())
    assert steps_of(trained) == 2
    assert 0 < apart(learnt(trained, model), learnt(start, model)) < 0.1
