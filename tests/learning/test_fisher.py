"""Fisher information against brute force, and K-FAC against curvlinops.

Brute force means one sample and one class at a time, with gradients of weights taken by
autograd; the code under test takes gradients of layer outputs only, in large batches.
"""

import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.errors import FusionError
from testbed.learning import fisher as fisher_module
from testbed.learning.blocks import Block, blocks, matrix
from testbed.learning.fisher import Diagonal, Factor, Kronecker, fisher
from testbed.learning.models import build

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its dependencies use deprecated parts of torch
    from curvlinops import KFACLinearOperator

ESTIMATORS = ("exact", "sampled", "empirical")
KINDS = ("kfac", "diagonal")


class Residual(nn.Module):
    """A residual block with a strided shortcut, in-place activations and no BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 5, 3, stride=2, padding=1)
        self.second = nn.Conv2d(5, 5, 3, padding=1)
        self.shortcut = nn.Conv2d(2, 5, 1, stride=2, bias=False)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        out = self.second(self.relu(self.first(x))) + self.shortcut(x)
        return self.head(self.relu(out).mean(dim=(2, 3)))


class Normalised(nn.Module):
    """A residual block with BatchNorm and GroupNorm, in eval mode with statistics of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, stride=2, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, padding="same")
        self.norm2 = nn.GroupNorm(2, 4)
        self.shortcut = nn.Conv2d(2, 4, 1, stride=2, bias=False)
        self.relu = nn.ReLU(inplace=True)
        self.norm3 = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm2(self.second(self.relu(self.norm1(self.first(x))))) + self.shortcut(x)
        return self.head(self.norm3(self.relu(out).mean(dim=(2, 3))))


class Rows(nn.Module):
    """A linear layer on every row of a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Linear(5, 4)
        self.head = nn.Linear(40, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.rows(x)).flatten(1))


NETS = {
    "lenet": (lambda: build("lenet", (1, 28, 28), 10, 0), (1, 28, 28), 10),
    "residual": (Residual, (2, 8, 8), 4),
    "normalised": (Normalised, (2, 8, 8), 3),
    "rows": (Rows, (2, 5, 5), 3),
}


def tiny(inplace: bool = False) -> nn.Sequential:
    """Convolution and linear layer, with biases: 3 classes, pictures of 2x5x5."""
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1, stride=2),
        nn.ReLU(inplace=inplace),
        nn.Flatten(),
        nn.Linear(27, 6),
        nn.ReLU(inplace=inplace),
        nn.Linear(6, 3, bias=False),
    )


def seeded(model: nn.Module, seed: int = 0) -> tuple[nn.Module, dict[str, Tensor]]:
    """Give `model` weights that are not too small, and return them."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            fan = parameter[0].numel()
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * fan**-0.5)
        for name, buffer in model.named_buffers():
            if "running" in name:
                buffer.copy_(torch.rand(buffer.shape, generator=generator) + 0.5)
    return model, {name: value.clone() for name, value in model.state_dict().items()}


def samples(n: int, shape: tuple[int, ...], classes: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return (
        torch.randn(n, *shape, generator=generator),
        torch.randint(classes, (n,), generator=generator),
    )


def stream() -> np.random.Generator:
    return np.random.default_rng(11)


def gradients(model: nn.Module, x: Tensor, label: int) -> dict[str, Tensor]:
    """Gradient of log p(label | x) for one picture, as one matrix per block."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    logp = functional.log_softmax(model(x[None]), dim=1)[0, label]
    gradient = dict(zip(names, torch.autograd.grad(logp, parameters), strict=True))
    return {block.name: matrix(block, gradient) for block in blocks(model)}


def expectation(
    model: nn.Module, pictures: Tensor, labels: Tensor, exact: bool
) -> Iterator[tuple[float, dict[str, Tensor]]]:
    """Yield (weight, gradients) over samples and, if exact, over all classes."""
    for x, y in zip(pictures, labels, strict=True):
        if exact:
            p = functional.softmax(model(x[None]), dim=1)[0].tolist()
            for label, weight in enumerate(p):
                yield weight, gradients(model, x, label)
        else:
            yield 1.0, gradients(model, x, int(y))


def drawn(model: nn.Module, pictures: Tensor) -> Tensor:
    """Labels the sampled estimator draws: inverse distribution function, in float64."""
    p = functional.softmax(model(pictures), dim=1).detach().double().numpy()
    u = stream().random(len(p))
    return torch.tensor(
        [int(np.searchsorted(row.cumsum(), v)) for row, v in zip(p, u, strict=True)]
    )


def distance(ours: Kronecker, a: Tensor, g: Tensor) -> float:
    """Relative Frobenius distance of Kronecker products, without forming them."""
    a1, g1, a2, g2 = (each.double() for each in (ours.a, ours.g, a, g))
    square = (
        (g1 * g1).sum() * (a1 * a1).sum()
        - 2 * (g1 * g2).sum() * (a1 * a2).sum()
        + (g2 * g2).sum() * (a2 * a2).sum()
    )
    return float((square.clamp_min(0) / ((g2 * g2).sum() * (a2 * a2).sum())).sqrt())


def relative(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm())


def tensors(factor: Factor) -> tuple[Tensor, ...]:
    return (factor.a, factor.g) if isinstance(factor, Kronecker) else (factor.f,)


# --- K-FAC against curvlinops ----------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "theirs"), [("exact", "type-2"), ("empirical", "empirical")]
)
@pytest.mark.parametrize("net", NETS)
def test_kfac_equals_curvlinops(net: str, estimator: str, theirs: str) -> None:
    make, shape, classes = NETS[net]
    model, state = seeded(make())
    pictures, labels = samples(24, shape, classes)
    matrices = [block for block in blocks(model) if not block.norm]
    ours = fisher(model, state, pictures, labels, "kfac", estimator, stream())
    operator = KFACLinearOperator(
        model,
        nn.CrossEntropyLoss(),
        [model.get_parameter(name) for block in matrices for name in block.parameters],
        [(pictures[:10], labels[:10]), (pictures[10:], labels[10:])],
        fisher_type=theirs,
        separate_weight_and_bias=False,
        check_deterministic=False,
    )
    operator.compute_kronecker_factors()
    factors = operator.state_dict()
    # Theirs is a mean over samples, ours a sum; the number of locations divides A there.
    for block in matrices:
        a = factors["input_covariances"][block.name]
        g = factors["gradient_covariances"][block.name] * len(labels)
        assert distance(ours[block.name], a, g) < 1e-5, block.name
        v = torch.randn(block.rows, block.columns, generator=torch.Generator().manual_seed(2))
        mine = ours[block.name]
        assert relative(mine.g @ v @ mine.a, g @ v @ a) < 1e-5, block.name


# --- K-FAC by definition ---------------------------------------------------------------


def test_kfac_of_one_sample_is_the_exact_fisher_of_a_linear_layer() -> None:
    model, state = seeded(nn.Sequential(nn.Flatten(), nn.Linear(6, 4)).double())
    pictures, labels = samples(1, (1, 2, 3), 4)
    pictures = pictures.double()
    (factor,) = fisher(model, state, pictures, labels, "kfac", "exact", stream()).values()
    assert isinstance(factor, Kronecker)
    dense = sum(
        weight * torch.outer(each["1"].reshape(-1), each["1"].reshape(-1))
        for weight, each in expectation(model, pictures, labels, exact=True)
    )
    torch.testing.assert_close(torch.kron(factor.g, factor.a), dense, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_kfac_factors_by_brute_force(estimator: str) -> None:
    """A = (1/n) sum a a', G = (1/T) sum E[g g'] with T = 9 locations of the convolution."""
    model, state = seeded(tiny().double())
    pictures, labels = samples(6, (2, 5, 5), 3)
    pictures = pictures.double()
    ours = fisher(model, state, pictures, labels, "kfac", estimator, stream())
    if estimator == "sampled":
        labels = drawn(model, pictures)
    conv, first, second = (model[index] for index in (0, 3, 5))
    a = dict.fromkeys(ours, 0.0)
    g = dict.fromkeys(ours, 0.0)
    for x, y in zip(pictures, labels, strict=True):
        one = torch.ones(1, dtype=x.dtype)
        patches = functional.unfold(x[None], 3, stride=2, padding=1)[0].T
        s0 = conv(x[None])
        h0 = torch.relu(s0).flatten()
        s3 = first(h0)
        h3 = torch.relu(s3)
        s5 = second(h3)
        rows = torch.cat([patches, one.expand(9, 1)], dim=1)
        a["0"] += rows.T @ rows / 6
        a["3"] += torch.outer(torch.cat([h0, one]), torch.cat([h0, one])) / 6
        a["5"] += torch.outer(h3, h3) / 6
        logp = functional.log_softmax(s5, dim=0)
        for label in range(3):
            weight = (
                float(logp[label].detach().exp()) if estimator == "exact" else float(label == y)
            )
            g0, g3, g5 = torch.autograd.grad(logp[label], (s0, s3, s5), retain_graph=True)
            g0 = g0[0].flatten(1)
            g["0"] += weight * g0 @ g0.T / 9
            g["3"] += weight * torch.outer(g3, g3)
            g["5"] += weight * torch.outer(g5, g5)
    for name, factor in ours.items():
        torch.testing.assert_close(factor.a, a[name].detach(), rtol=1e-10, atol=1e-14)
        torch.testing.assert_close(factor.g, g[name], rtol=1e-10, atol=1e-14)


def test_kfac_factors_are_exactly_symmetric_and_singular_by_the_softmax_shift() -> None:
    model, state = seeded(tiny())
    pictures, labels = samples(40, (2, 5, 5), 3)
    factors = fisher(model, state, pictures, labels, "kfac", "exact", stream())
    for factor in factors.values():
        for side in tensors(factor):
            assert side.dtype == torch.float32
            assert torch.equal(side, side.T)
            assert torch.linalg.eigvalsh(side.double())[0] > -1e-5 * side.norm()
    # Adding a constant to all logits changes nothing: G of the last layer maps 1 to 0.
    last = factors["5"].g
    assert (last @ torch.ones(3)).norm() < 1e-5 * last.norm()


# --- the diagonal ----------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("net", [tiny, Residual, Normalised, Rows])
def test_diagonal_by_brute_force(net, estimator: str) -> None:
    model, state = seeded(net().double())
    model.eval()
    pictures, labels = samples(6, (2, 5, 5), 3)
    pictures = pictures.double()
    ours = fisher(model, state, pictures, labels, "diagonal", estimator, stream())
    if estimator == "sampled":
        labels = drawn(model, pictures)
    expected = {block.name: 0.0 for block in blocks(model)}
    for weight, each in expectation(model, pictures, labels, estimator == "exact"):
        for name, gradient in each.items():
            expected[name] += weight * gradient.square()
    assert ours.keys() == expected.keys()
    for name, factor in ours.items():
        assert isinstance(factor, Diagonal)
        torch.testing.assert_close(factor.f, expected[name], rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_normalisation_is_diagonal_under_kfac_too(estimator: str) -> None:
    model, state = seeded(Normalised())
    pictures, labels = samples(10, (2, 8, 8), 3)
    kfac, diagonal = (
        fisher(model, state, pictures, labels, kind, estimator, stream()) for kind in KINDS
    )
    for block in blocks(model):
        assert isinstance(kfac[block.name], Diagonal if block.norm else Kronecker)
        if block.norm:
            assert torch.equal(kfac[block.name].f, diagonal[block.name].f)
            assert (kfac[block.name].f > 0).all()


def test_normalisation_by_hand() -> None:
    """xhat = (5 - 1) / 2 = 2 and scale 1, shift 0: logits (2, 0), p = sigmoid(2)."""
    norm = nn.BatchNorm1d(1, eps=0.0)
    model = nn.Sequential(norm, nn.Linear(1, 2, bias=False))
    state = {
        "0.weight": torch.ones(1),
        "0.bias": torch.zeros(1),
        "0.running_mean": torch.ones(1),
        "0.running_var": torch.full((1,), 4.0),
        "0.num_batches_tracked": torch.tensor(1),
        "1.weight": torch.tensor([[1.0], [0.0]]),
    }
    f = fisher(model, state, torch.tensor([[5.0]]), torch.tensor([0]), "kfac", "exact", stream())
    p = 1 / (1 + np.exp(-2))
    # The gradient of the logits' difference is xhat = 2 for the scale, 1 for the shift.
    np.testing.assert_allclose(f["0"].f.flatten(), [4 * p * (1 - p), p * (1 - p)], rtol=1e-5)


# --- the exact estimator ---------------------------------------------------------------


@pytest.mark.parametrize(
    "logits",
    [
        [0.0, 0.0, 0.0, 0.0],
        [1.0, -2.0, 0.5, 3.0],
        [200.0, 0.0, -200.0, 1.0],  # certain of a class
        [-300.0, -300.0, 0.0, 0.0],
        [0.0, 300.0, -300.0, -300.0],
    ],
)
def test_three_vectors_carry_the_covariance_of_four_labels(logits: list[float]) -> None:
    row = torch.tensor([logits])
    vectors = list(fisher_module._output_gradients(row, torch.tensor([0]), "exact", stream()))
    p = functional.softmax(row.double(), dim=1)[0]
    assert len(vectors) == 3
    covariance = sum(torch.outer(v[0], v[0]) for v in vectors).double()
    torch.testing.assert_close(covariance, p.diag() - torch.outer(p, p), rtol=1e-5, atol=1e-9)


# --- the sampled estimator -------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_sampled_is_empirical_with_the_labels_drawn(kind: str) -> None:
    model, state = seeded(tiny())
    pictures, labels = samples(30, (2, 5, 5), 3)
    sampled = fisher(model, state, pictures, labels, kind, "sampled", stream())
    labels = drawn(model, pictures)
    assert len(set(labels.tolist())) == 3
    empirical = fisher(model, state, pictures, labels, kind, "empirical", stream())
    for name in sampled:
        for one, other in zip(tensors(sampled[name]), tensors(empirical[name]), strict=True):
            assert torch.equal(one, other)


def test_sampled_is_unbiased() -> None:
    """The mean of 400 draws lies within five standard errors of the exact Fisher."""
    model, state = seeded(tiny())
    pictures, labels = samples(5, (2, 5, 5), 3)
    rng = stream()
    draws = {name: [] for name in ("0", "3", "5")}
    for _ in range(400):
        for name, factor in fisher(
            model, state, pictures, labels, "diagonal", "sampled", rng
        ).items():
            draws[name].append(factor.f)
    exact = fisher(model, state, pictures, labels, "diagonal", "exact", rng)
    for name, values in draws.items():
        stack = torch.stack(values).double()
        error = stack.std(dim=0) / len(values) ** 0.5
        off = (stack.mean(dim=0) - exact[name].f.double()).abs()
        assert (off <= 5 * error + 1e-7).all()
        assert (off.norm() / exact[name].f.norm()) < 0.1


def test_estimators_differ_and_only_the_empirical_one_sees_labels() -> None:
    model, state = seeded(tiny())
    pictures, labels = samples(10, (2, 5, 5), 3)
    for estimator in ESTIMATORS:
        f, shifted = (
            fisher(model, state, pictures, y, "diagonal", estimator, stream())["3"].f
            for y in (labels, (labels + 1) % 3)
        )
        assert torch.equal(f, shifted) == (estimator != "empirical")


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
