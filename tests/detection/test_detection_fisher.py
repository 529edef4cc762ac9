"""Fisher information of a detector: brute force, sums over pictures, what it weighs, fusion."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from drawn import make
from torch import Tensor, nn
from torch.nn import functional

from testbed.fusion.fsosa import Fused, Projection, fuse
from testbed.learning.blocks import blocks, matrix
from testbed.learning.contribution import Contribution, contribution_bytes, serialise
from testbed.learning.detection.fisher import fisher
from testbed.learning.detection.network import build
from testbed.learning.detection.pictures import Pictures, load
from testbed.learning.factors import Diagonal, Factor, Kronecker

pytestmark = pytest.mark.usefixtures("yolo")

KINDS = ("diagonal", "kfac")
SIDE = 64
ALL = np.arange(3)
DFL = "model.22.dfl.conv.weight"  # a constant


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Pictures:
    """Three pictures; the last one is background."""
    folder = tmp_path_factory.mktemp("drawn")
    paths = make(folder, train=3, test=1)
    made = load(*paths, (SIDE, SIDE), folder / "cache", None, None).train
    return replace(made, targets=(*made.targets[:2], np.zeros((0, 5), np.float32)))


def detector(seed: int = 0) -> tuple[nn.Module, dict[str, Tensor]]:
    """Return a detector whose normalisation is not the identity, and its state."""
    model = build("yolov8n", 10, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if "running" in name:
                buffer.add_(torch.rand(buffer.shape, generator=generator) * 0.2)
            elif name.endswith("num_batches_tracked"):
                buffer.fill_(7)
    return model, {name: value.clone() for name, value in model.state_dict().items()}


def loss_of(model: nn.Module, pictures: Pictures, index: int) -> Tensor:
    """Return one picture's loss by the criterion that the model itself makes."""
    x = torch.from_numpy(np.array(pictures.pixels[index : index + 1])).float() / 255
    labels = torch.from_numpy(pictures.targets[index])
    _, predicted = model.eval()(x)
    targets = {
        "batch_idx": torch.zeros(len(labels)),
        "cls": labels[:, 0],
        "bboxes": labels[:, 1:],
    }
    return model.init_criterion()(predicted, targets)[0].sum()


def tensors(factor: Factor) -> tuple[Tensor, ...]:
    return (factor.a, factor.g) if isinstance(factor, Kronecker) else (factor.f,)


def same(one: dict[str, Factor], other: dict[str, Factor]) -> bool:
    """Whether two Fishers are equal to the last bit."""
    return one.keys() == other.keys() and all(
        torch.equal(mine, yours)
        for name in one
        for mine, yours in zip(tensors(one[name]), tensors(other[name]), strict=True)
    )


def close(mine: Tensor, yours: Tensor) -> bool:
    return float((mine - yours).norm()) <= 1e-4 * float(yours.norm())


# --- by brute force ----------------------------------------------------------------------


def test_the_diagonal_by_brute_force(pictures: Pictures) -> None:
    model, state = detector()
    made = fisher(model, state, pictures, ALL, "diagonal")
    names = [name for name, each in model.named_parameters() if each.requires_grad]
    weights = [model.get_parameter(name) for name in names]
    sums = {name: torch.zeros(each.shape, dtype=torch.float64) for name, each in state.items()}
    for index in ALL:
        gradients = torch.autograd.grad(loss_of(model, pictures, index), weights)
        for name, gradient in zip(names, gradients, strict=True):
            sums[name] += gradient.double().square()
    assert {name for block in blocks(model) for name in block.parameters} == set(names)
    for block in blocks(model):
        factor = made[block.name]
        assert isinstance(factor, Diagonal)
        assert factor.f.dtype == torch.float32
        # A part that predicts larger boxes than there are learns nothing about boxes.
        assert factor.f.sum() > 0 or block.name.startswith("model.22.cv2.2.")
        assert close(factor.f, matrix(block, sums)), block.name


def test_kfac_by_brute_force(pictures: Pictures) -> None:
    """A = (1/n) sum a a', G = (1/T) sum g g', from unfolded inputs and gradients of outputs."""
    model, state = detector()
    made = fisher(model, state, pictures, ALL, "kfac")
    convolutions = {
        block.name: (block, model.get_submodule(block.name))
        for block in blocks(model)
        if not block.norm
    }
    inputs: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}

    def hook_for(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Tensor], output: Tensor) -> None:
            inputs[name], outputs[name] = args[0].detach().clone(), output

        return hook

    hooks = [
        module.register_forward_hook(hook_for(name)) for name, (_, module) in convolutions.items()
    ]
    a = dict.fromkeys(convolutions, torch.zeros(()))
    g = dict.fromkeys(convolutions, torch.zeros(()))
    for index in ALL:
        value = loss_of(model, pictures, index)
        gradients = torch.autograd.grad(value, list(outputs.values()))
        for name, gradient in zip(outputs, gradients, strict=True):
            block, module = convolutions[name]
            assert isinstance(module, nn.Conv2d)
            (rows,) = functional.unfold(
                inputs[name], module.kernel_size, padding=module.padding, stride=module.stride
            )
            if block.bias:
                rows = torch.cat([rows, torch.ones(1, rows.shape[1])])
            (columns,) = gradient.flatten(2)
            a[name] = a[name] + rows @ rows.T / len(ALL)
            g[name] = g[name] + columns @ columns.T / columns.shape[1]
    for hook in hooks:
        hook.remove()
    for name in convolutions:
        factor = made[name]
        assert isinstance(factor, Kronecker)
        assert close(factor.a, a[name]), name
        assert close(factor.g, g[name]), name


def test_normalisation_is_diagonal_under_kfac_too(pictures: Pictures) -> None:
    """There from gradients of outputs, here from those of weights."""
    model, state = detector()
    kfac, diagonal = (fisher(model, state, pictures, ALL, kind) for kind in KINDS)
    norms = [block.name for block in blocks(model) if block.norm]
    assert len(norms) == 57
    for name in norms:
        assert isinstance(kfac[name], Diagonal)
        assert close(kfac[name].f, diagonal[name].f), name


# --- one picture at a time ---------------------------------------------------------------


def test_the_diagonal_is_the_sum_of_its_pictures_to_the_bit(pictures: Pictures) -> None:
    model, state = detector()
    each = [fisher(model, state, pictures, ALL[i : i + 1], "diagonal") for i in ALL]
    for order in ([0, 1, 2], [2, 0, 1]):
        whole = fisher(model, state, pictures, ALL[order], "diagonal")
        for name, factor in whole.items():
            first, second, third = (each[index][name].f for index in order)
            assert torch.equal(factor.f, first + second + third)


def test_kfac_is_a_sum_over_pictures(pictures: Pictures) -> None:
    model, state = detector()
    whole, part, rest = (
        fisher(model, state, pictures, np.array(each), "kfac") for each in ([0, 1], [0], [1])
    )
    for name, factor in whole.items():
        if isinstance(factor, Kronecker):
            assert close(factor.a, (part[name].a + rest[name].a) / 2)
            assert close(factor.g, part[name].g + rest[name].g)
        else:
            assert close(factor.f, part[name].f + rest[name].f)


def test_the_loss_of_a_batch_would_couple_its_pictures(pictures: Pictures) -> None:
    """Why there are no batches: their loss divides by the target scores of all pictures."""
    model, state = detector()
    model.load_state_dict(state)
    weight = model.get_parameter("model.0.conv.weight")
    alone = [torch.autograd.grad(loss_of(model, pictures, index), weight)[0] for index in (0, 1)]
    x = torch.from_numpy(np.array(pictures.pixels[:2])).float() / 255
    labels = torch.from_numpy(np.concatenate(pictures.targets[:2]))
    first = len(pictures.targets[0])
    targets = {
        "batch_idx": torch.arange(len(labels)).ge(first).float(),
        "cls": labels[:, 0],
        "bboxes": labels[:, 1:],
    }
    together = model.init_criterion()(model.eval()(x)[1], targets)[0].sum()
    (gradient,) = torch.autograd.grad(together, weight)
    assert not close(gradient, alone[0] + alone[1])


def test_a_picture_without_boxes_informs_about_classes_alone(pictures: Pictures) -> None:
    model, state = detector()
    made = fisher(model, state, pictures, ALL[2:], "diagonal")
    head = {name: float(factor.f.sum()) for name, factor in made.items() if ".22." in name}
    boxes = {name for name in head if ".22.cv2." in name}
    assert len(boxes) == len(head) / 2 == 15
    assert all((head[name] == 0) == (name in boxes) for name in head)
    assert all(factor.f.sum() > 0 for name, factor in made.items() if name not in boxes)


@pytest.mark.parametrize("kind", KINDS)
def test_no_pictures_no_information(pictures: Pictures, kind: Any) -> None:
    model, state = detector()
    made = fisher(model, state, pictures, ALL[:0], kind)
    shapes = {block.name: (block.rows, block.columns) for block in blocks(model)}
    for name, factor in made.items():
        assert all(each.eq(0).all() for each in tensors(factor))
        if isinstance(factor, Diagonal):
            assert factor.f.shape == shapes[name]
        else:
            assert (len(factor.g), len(factor.a)) == shapes[name]


# --- nothing else changes ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "training"), [("diagonal", True), ("diagonal", False), ("kfac", True)]
)
def test_twice_the_same_and_everything_as_it_was(
    pictures: Pictures, kind: Any, training: bool
) -> None:
    _, state = detector(seed=1)
    before = {name: value.clone() for name, value in state.items()}
    model, _ = detector(seed=0)
    model.train(training)
    randomness = torch.get_rng_state()
    few = ALL[1:] if kind == "diagonal" else ALL[1:2]
    once = fisher(model, state, pictures, few, kind)
    assert torch.equal(torch.get_rng_state(), randomness)
    assert all(module.training == training for module in model.modules())
    for name, value in model.state_dict().items():  # of the state, running statistics too
        assert torch.equal(value, before[name])
        assert torch.equal(state[name], before[name])
    frozen = [name for name, each in model.named_parameters() if not each.requires_grad]
    assert frozen == [DFL]
    assert all(each.grad is None for each in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())
    with torch.no_grad():
        model.eval()(torch.zeros(1, 3, SIDE, SIDE))  # leaves anchors behind
    assert same(once, fisher(model, state, pictures, few, kind))
    assert same(once, fisher(detector(seed=2)[0], state, pictures, few, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_leaves_the_model_usable(pictures: Pictures, kind: Any) -> None:
    model, state = detector()
    model.train()
    with pytest.raises(IndexError):
        fisher(model, state, pictures, np.array([0, 99]), kind)
    assert model.training
    assert model.get_parameter("model.0.conv.weight").requires_grad
    assert not any(module._forward_hooks for module in model.modules())


def test_numbers_that_are_not_finite_are_seen(pictures: Pictures) -> None:
    model, state = detector()
    state["model.22.cv3.0.2.bias"][0] = torch.nan
    made = fisher(model, state, pictures, ALL[:1], "diagonal")
    assert not Contribution(1, {}, made).finite()


# --- what it weighs ----------------------------------------------------------------------


@pytest.mark.parametrize(("name", "weights"), [("yolov8n", 3_012_782), ("yolov8s", 11_139_454)])
def test_a_diagonal_fisher_weighs_what_the_model_weighs(name: str, weights: int) -> None:
    """As many numbers as trainable weights; only the running statistics have none."""
    model = build(name, 10, seed=0)
    assert sum(each.numel() for each in model.parameters() if each.requires_grad) == weights
    state, layers = model.state_dict(), blocks(model)
    alone = contribution_bytes(state, layers, None)
    both = contribution_bytes(state, layers, "diagonal")
    assert 4 * weights < both - alone < 4 * weights + 20_000  # a line of header a block
    assert 0.99 < (both - alone) / alone < 1
    kfac = contribution_bytes(state, layers, "kfac")
    triangles = sum(
        side * (side + 1) // 2
        for block in layers
        if not block.norm
        for side in (block.rows, block.columns)
    )
    norms = sum(2 * block.columns for block in layers if block.norm)
    assert 0 < kfac - alone - 4 * (triangles + norms) < 30_000


def test_a_contribution_has_the_size_foretold(pictures: Pictures) -> None:
    model, state = detector()
    for kind in KINDS:
        made = fisher(model, state, pictures, ALL[:1], kind)
        message = serialise(Contribution(1, state, made))
        assert len(message) == contribution_bytes(state, blocks(model), kind)


# --- fusion ------------------------------------------------------------------------------


def contributions(pictures: Pictures, states: list[dict[str, Tensor]]) -> list[Contribution]:
    """Of clients with one, two, ... of the pictures, whose models have `states`."""
    model, _ = detector()
    return [
        Contribution(number, state, fisher(model, state, pictures, ALL[:number], "diagonal"))
        for number, state in enumerate(states, start=1)
    ]


def fused(given: list[Contribution]) -> Fused:
    return fuse(given, blocks(detector()[0]), Projection())


def test_clients_that_agree_are_left_as_they_are(pictures: Pictures) -> None:
    _, state = detector()
    model = fused(contributions(pictures, [state] * 3)).model
    assert model.keys() == state.keys()
    for name, value in state.items():
        assert model[name].dtype == value.dtype
        if name.endswith("running_var"):  # E[x^2] - E[x]^2
            torch.testing.assert_close(model[name], value, rtol=1e-6, atol=0)
        else:
            assert torch.equal(model[name], value), name


def test_clients_that_differ_are_merged_by_the_rules(pictures: Pictures) -> None:
    states = [detector(seed)[1] for seed in (1, 2)]
    for state, count in zip(states, (12, 30), strict=True):
        for name in state:
            if name.endswith("num_batches_tracked"):
                state[name].fill_(count)
    given = contributions(pictures, states)
    model = fused(given).model
    norm = "model.0.bn"
    (m1, m2), (v1, v2) = (
        [state[f"{norm}.running_{what}"].double() for state in states] for what in ("mean", "var")
    )
    mean = (m1 + 2 * m2) / 3  # the clients have one and two pictures
    spread = ((m1 - mean) ** 2 + 2 * (m2 - mean) ** 2) / 3
    expected = {"running_mean": mean, "running_var": (v1 + 2 * v2) / 3 + spread}
    for what, value in expected.items():
        torch.testing.assert_close(model[f"{norm}.{what}"].double(), value, rtol=1e-6, atol=1e-9)
    counts = {name: value for name, value in model.items() if name.endswith("tracked")}
    assert len(counts) == 57
    assert all(each.dtype == torch.int64 and each == 30 for each in counts.values())
    assert torch.equal(model[DFL].flatten(), torch.arange(16.0))
    # A weight: (tau m + f1 w1 + f2 w2) / (tau + f1 + f2) with damping tau, m the plain mean.
    name = "model.0.conv"
    w1, w2 = (state[f"{name}.weight"].double().flatten(1) for state in states)
    f1, f2 = (each.fisher[name].f.double() for each in given)
    tau = Projection().damping * (f1 + f2).mean()
    merged = (tau * (w1 + w2) / 2 + f1 * w1 + f2 * w2) / (tau + f1 + f2)
    torch.testing.assert_close(model[f"{name}.weight"].double().flatten(1), merged)


def test_fusion_repeats_to_the_bit(pictures: Pictures) -> None:
    given = contributions(pictures, [detector(seed)[1] for seed in (1, 2, 3)])
    once, again = fused(given).model, fused(given).model
    assert all(torch.equal(value, again[name]) for name, value in once.items())
    assert Contribution(6, once, {}).finite()
