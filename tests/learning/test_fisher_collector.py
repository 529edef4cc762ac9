"""What the collector of Fisher blocks promises, and which layers it refuses."""

import pytest
import torch
from nets import ESTIMATORS, KINDS, Residual, samples, seeded, stream, tensors, tiny
from torch import Tensor, nn

from testbed.errors import FusionError
from testbed.learning import fisher as fisher_module
from testbed.learning.blocks import Block, blocks
from testbed.learning.fisher import batch_size, fisher

# --- promises of the collector ---------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_chunks_do_not_change_the_sums(
    kind: str, estimator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, state = seeded(tiny().double())
    pictures, labels = samples(23, (2, 5, 5), 3)
    pictures = pictures.double()
    whole = fisher(model, state, pictures, labels, kind, estimator, stream())
    monkeypatch.setattr(fisher_module, "_BATCH", 5)
    chunked = fisher(model, state, pictures, labels, kind, estimator, stream())
    for name in whole:
        for one, other in zip(tensors(whole[name]), tensors(chunked[name]), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-15)


def test_large_layers_are_looked_at_in_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of single samples take no more memory than the limit says."""
    model, _ = seeded(tiny())
    largest = max(each.numel() for each in model.parameters())
    monkeypatch.setattr(fisher_module, "_MOST", 3 * largest)
    assert (batch_size(model, "diagonal"), batch_size(model, "kfac")) == (3, 200)
    monkeypatch.setattr(fisher_module, "_MOST", largest // 2)
    assert batch_size(model, "diagonal") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_fisher_is_a_sum_over_samples(kind: str) -> None:
    model, state = seeded(tiny().double())
    pictures, labels = samples(8, (2, 5, 5), 3)
    pictures = pictures.double()
    once, twice = (
        fisher(model, state, x, y, kind, "exact", stream())
        for x, y in ((pictures, labels), (pictures.repeat(2, 1, 1, 1), labels.repeat(2)))
    )
    for name in once:
        if kind == "kfac":
            torch.testing.assert_close(twice[name].a, once[name].a)
            torch.testing.assert_close(twice[name].g, 2 * once[name].g)
        else:
            torch.testing.assert_close(twice[name].f, 2 * once[name].f)


@pytest.mark.parametrize("kind", KINDS)
def test_activations_may_work_in_place(kind: str) -> None:
    pictures, labels = samples(10, (2, 5, 5), 3)
    plain, inplace = (
        fisher(*seeded(tiny(flag)), pictures, labels, kind, "exact", stream())
        for flag in (False, True)
    )
    for name in plain:
        for one, other in zip(tensors(plain[name]), tensors(inplace[name]), strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_an_input_may_be_overwritten_after_use(kind: str) -> None:
    class Net(nn.Module):
        def __init__(self, overwrite: bool) -> None:
            super().__init__()
            self.fc, self.overwrite = nn.Linear(4, 3, bias=False), overwrite

        def forward(self, x: Tensor) -> Tensor:
            x = x.flatten(1).clone()
            out = self.fc(x)
            if self.overwrite:
                x.zero_()
            return out

    pictures, labels = samples(10, (1, 2, 2), 3)
    plain, overwriting = (
        fisher(*seeded(Net(flag)), pictures, labels, kind, "exact", stream())
        for flag in (False, True)
    )
    for one, other in zip(tensors(plain["fc"]), tensors(overwriting["fc"]), strict=True):
        assert torch.equal(one, other)


def test_the_fisher_is_computed_in_eval_mode() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(8, 4), nn.Dropout(0.5), nn.Linear(4, 3))
    model, state = seeded(net.train())
    pictures, labels = samples(10, (2, 2, 2), 3)
    one, other = (
        fisher(model, state, pictures, labels, "kfac", "exact", stream()) for _ in range(2)
    )
    assert torch.equal(one["3"].a, other["3"].a)
    assert torch.equal(one["1"].g, other["1"].g)


class _ForwardError(Exception):
    pass


class _Failing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise _ForwardError


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_left_as_it_was(fails: bool) -> None:
    layers = [nn.Flatten(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3)]
    model, state = seeded(nn.Sequential(*layers, *([_Failing()] if fails else [])))
    model[1].weight.requires_grad_(False)
    before = {name: value.clone() for name, value in state.items()}
    pictures, labels = samples(10, (2, 2, 2), 3)
    if fails:
        with pytest.raises(_ForwardError):
            fisher(model, state, pictures, labels, "kfac", "exact", stream())
    else:
        fisher(model, state, pictures, labels, "kfac", "exact", stream())
    flags = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    assert flags == {"1.weight": False, "1.bias": True, "3.weight": True, "3.bias": True}
    assert not any(module._forward_hooks for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
        assert torch.equal(state[name], before[name])


def test_blocks_of_the_fisher_are_those_of_the_model() -> None:
    model, state = seeded(Residual())
    pictures, labels = samples(4, (2, 8, 8), 4)
    expected: dict[str, Block] = {block.name: block for block in blocks(model)}
    for kind in KINDS:
        factors = fisher(model, state, pictures, labels, kind, "exact", stream())
        assert factors.keys() == expected.keys()
        for name, factor in factors.items():
            rows, columns = expected[name].rows, expected[name].columns
            shapes = [tuple(each.shape) for each in tensors(factor)]
            assert shapes == (
                [(columns, columns), (rows, rows)] if kind == "kfac" else [(rows, columns)]
            )


# --- layers without a Fisher of their own ------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_called_twice_is_refused_by_name(kind: str) -> None:
    shared = nn.Linear(4, 4)
    model, state = seeded(nn.Sequential(nn.Flatten(), shared, nn.ReLU(), shared))
    pictures, labels = samples(5, (1, 2, 2), 4)
    with pytest.raises(FusionError, match="layer '1' is called more than once"):
        fisher(model, state, pictures, labels, kind, "exact", stream())
    assert not any(module._forward_hooks for module in model.modules())


def test_normalisation_by_the_batch_is_refused_by_name() -> None:
    norm = nn.BatchNorm2d(3, affine=False, track_running_stats=False)
    model, state = seeded(nn.Sequential(nn.Conv2d(2, 3, 5), norm, nn.Flatten()))
    pictures, labels = samples(5, (2, 5, 5), 3)
    with pytest.raises(FusionError, match="layer '1' keeps no running statistics"):
        fisher(model, state, pictures, labels, "kfac", "exact", stream())


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_that_takes_no_part_has_a_fisher_of_zero(kind: str) -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(4, 3), nn.Conv2d(2, 3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x.flatten(1))

    model, state = seeded(Idle())
    pictures, labels = samples(5, (1, 2, 2), 3)
    factors = fisher(model, state, pictures, labels, kind, "exact", stream())
    assert factors.keys() == {"used", "unused"}
    shapes = [tuple(each.shape) for each in tensors(factors["unused"])]
    assert shapes == ([(19, 19), (3, 3)] if kind == "kfac" else [(3, 19)])
    assert all(float(each.norm()) == 0 for each in tensors(factors["unused"]))


@pytest.mark.parametrize("kind", KINDS)
def test_frozen_and_grouped_layers_have_no_fisher_and_stay_out_of_the_way(kind: str) -> None:
    model, state = seeded(
        nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.Conv2d(4, 4, 3, groups=2), nn.Flatten(), nn.Linear(4, 3)
        )
    )
    pictures, labels = samples(5, (2, 5, 5), 3)
    every = fisher(model, state, pictures, labels, kind, "exact", stream())
    model[0].requires_grad_(False)
    some = fisher(model, state, pictures, labels, kind, "exact", stream())
    assert (every.keys(), some.keys()) == ({"0", "3"}, {"3"})
    for one, other in zip(tensors(every["3"]), tensors(some["3"]), strict=True):
        assert torch.equal(one, other)
