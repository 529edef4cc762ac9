"""What is accepted and what is refused, by hand and on real uploads."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from testbed.learning.acceptance import inspect, inspect_model
from testbed.learning.blocks import Block, blocks
from testbed.learning.contribution import Contribution, deserialise, serialise
from testbed.learning.factors import Diagonal, Kronecker
from testbed.learning.fisher import fisher
from testbed.learning.training import Recipe, train

FC = Block("fc", (2, 3), bias=True)
INITIAL = {"fc.weight": torch.zeros(2, 3), "fc.bias": torch.zeros(2), "count": torch.tensor(0)}
A = torch.tensor([[2.0, 1, 0, 0], [1, 2, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]])
G = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])


def sent(samples: int = 5, a: Tensor = A, g: Tensor = G, **changed: Any) -> Contribution:
    model = {**INITIAL, **{name.replace("_", "."): value for name, value in changed.items()}}
    return Contribution(samples, model, {"fc": Kronecker(a, g)})


def diagonal(f: Tensor) -> Contribution:
    return Contribution(5, INITIAL, {"fc": Diagonal(f)})


def verdict(contribution: Contribution, kind: Any = "kfac") -> str | None:
    return inspect(contribution, [FC], INITIAL, kind)


# --- by hand ---------------------------------------------------------------------------


def test_singular_factors_and_zeros_are_fine() -> None:
    assert verdict(sent()) is None
    assert verdict(sent(a=torch.zeros(4, 4), g=torch.zeros(2, 2))) is None
    assert verdict(diagonal(torch.zeros(2, 4)), "diagonal") is None


def entry(matrix: Tensor, row: int, column: int, value: float) -> Tensor:
    changed = matrix.clone()
    changed[row, column] = value
    return changed


BAD = float("nan")


@pytest.mark.parametrize(
    ("contribution", "reason"),
    [
        (sent(samples=0), "its number of samples is 0"),
        (sent(samples=-3), "its number of samples is -3"),
        (sent(fc_weight=torch.full((2, 3), BAD)), "fc.weight holds NaN or infinite numbers"),
        (sent(fc_bias=torch.tensor([0, torch.inf])), "fc.bias holds NaN or infinite numbers"),
        (sent(fc_weight=torch.zeros(3, 2)), "fc.weight has shape (3, 2), not (2, 3)"),
        (
            sent(fc_bias=torch.zeros(2, dtype=torch.float16)),
            "fc.bias has type torch.float16, not torch.float32",
        ),
        (sent(other=torch.zeros(1)), "other is foreign to the model"),
        (sent(a=A[:3, :3]), "the Fisher's A of fc has shape (3, 3), not (4, 4)"),
        (sent(g=torch.zeros(2)), "the Fisher's G of fc has shape (2,), not (2, 2)"),
        (
            sent(g=G.double()),
            "the Fisher's G of fc has type torch.float64, not torch.float32",
        ),
        (sent(a=A * BAD), "the Fisher's A of fc holds NaN or infinite numbers"),
        (sent(a=entry(A, 0, 1, 1.001)), "the Fisher's A of fc is not symmetric"),
        # Eigenvalues 3, 1, 1, and -0.01 against a trace of about 5.
        (sent(a=entry(A, 3, 3, -0.01)), "the Fisher's A of fc is not positive semi-definite"),
        # Eigenvalues 3 and -1: positive diagonal, negative determinant.
        (
            sent(g=torch.tensor([[1.0, 2.0], [2.0, 1.0]])),
            "the Fisher's G of fc is not positive semi-definite",
        ),
        # No trace, but not zero.
        (
            sent(g=torch.tensor([[0.0, 1.0], [1.0, 0.0]])),
            "the Fisher's G of fc is not positive semi-definite",
        ),
        (sent(g=-G), "the Fisher's G of fc is not positive semi-definite"),
        (Contribution(5, INITIAL, {}), "the Fisher of fc is missing"),
        (
            Contribution(5, INITIAL, {"fc": Kronecker(A, G), "fd": Kronecker(A, G)}),
            "the Fisher of fd is foreign to the model",
        ),
        (diagonal(torch.zeros(2, 4)), "the Fisher of fc is diagonal, not kfac"),
    ],
)
def test_refused_with_the_reason(contribution: Contribution, reason: str) -> None:
    assert verdict(contribution) == reason


@pytest.mark.parametrize(
    ("f", "reason"),
    [
        (entry(torch.ones(2, 4), 1, 2, -1e-9), "the Fisher of fc has a negative entry"),
        (torch.ones(4, 2), "the Fisher of fc has shape (4, 2), not (2, 4)"),
        (torch.ones(2, 4) * BAD, "the Fisher of fc holds NaN or infinite numbers"),
    ],
)
def test_a_diagonal_is_refused_with_the_reason(f: Tensor, reason: str) -> None:
    assert verdict(diagonal(f), "diagonal") == reason


def test_a_missing_tensor_is_named_and_kinds_are_not_mixed() -> None:
    model = {name: value for name, value in INITIAL.items() if name != "fc.bias"}
    assert verdict(replace(sent(), model=model)) == "fc.bias is missing"
    assert inspect_model(model, INITIAL) == "fc.bias is missing"
    assert verdict(sent(), "diagonal") == "the Fisher of fc is kfac, not diagonal"


def test_a_normalisation_layer_is_diagonal_whatever_the_kind() -> None:
    norm = Block("bn", (3,), bias=True, norm=True)
    initial = {"bn.weight": torch.ones(3), "bn.bias": torch.zeros(3)}
    f = torch.ones(norm.rows, norm.columns)
    fine = Contribution(5, initial, {"bn": Diagonal(f)})
    assert inspect(fine, [norm], initial, "kfac") is None
    factors = Contribution(5, initial, {"bn": Kronecker(A, G)})
    found = inspect(factors, [norm], initial, "kfac")
    assert found == "the Fisher of bn is kfac, not diagonal"


def test_integers_must_not_change_their_type() -> None:
    assert inspect_model({**INITIAL, "count": torch.tensor(7)}, INITIAL) is None
    told = inspect_model({**INITIAL, "count": torch.tensor(7.0)}, INITIAL)
    assert told == "count has type torch.float32, not torch.int64"


# --- rounding --------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(1, 300),
    size=st.integers(1, 120),
    decades=st.floats(0, 8),
    scale=st.sampled_from([1e-12, 1.0, 1e9]),
    seed=st.integers(0, 10),
)
def test_rounding_of_any_sum_of_outer_products_is_accepted(n, size, decades, scale, seed) -> None:
    """Many columns and few samples, spectra over eight decades, any scale."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(n, size, generator=generator).relu() * torch.logspace(0, -decades, size)
    a = scale * (rows.T @ rows)
    block = Block("l", (1, size), bias=False)
    initial = {"l.weight": torch.zeros(1, size)}
    contribution = Contribution(n, initial, {"l": Kronecker(a, torch.ones(1, 1))})
    assert inspect(contribution, [block], initial, "kfac") is None


@settings(deadline=None, max_examples=60)
@given(size=st.integers(2, 40), below=st.floats(3e-5, 10), seed=st.integers(0, 10))
def test_an_eigenvalue_clearly_below_zero_is_refused(size, below, seed) -> None:
    """Whatever the direction: spectrum 1, ..., 1 and one of -below times the trace."""
    generator = torch.Generator().manual_seed(seed)
    q, _ = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))
    values = torch.ones(size, dtype=torch.float64)
    # -below (size - 1 + x) = x
    values[0] = -below * (size - 1) / (1 + below)
    a = ((q * values) @ q.T).float()
    a = (a + a.T) / 2
    block = Block("l", (1, size), bias=False)
    initial = {"l.weight": torch.zeros(1, size)}
    contribution = Contribution(3, initial, {"l": Kronecker(a, torch.ones(1, 1))})
    told = inspect(contribution, [block], initial, "kfac")
    assert told == "the Fisher's A of l is not positive semi-definite"


# --- real uploads ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["kfac", "diagonal"])
@pytest.mark.parametrize("estimator", ["exact", "sampled", "empirical"])
def test_real_uploads_are_accepted(kind, estimator) -> None:
    """The wide layer's A has 865 columns and, of 64 samples, rank 64."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(864, 10)
    )
    initial = {name: value.detach().clone() for name, value in net.state_dict().items()}
    pictures, labels = torch.rand(64, 1, 28, 28), torch.arange(64) % 10
    rng = np.random.default_rng(0)
    state = train(net, initial, pictures, labels, Recipe(10, 0.05, 16, 0.9), rng)
    informed = fisher(net, state, pictures, labels, kind, estimator, rng)
    upload = deserialise(serialise(Contribution(64, state, informed)))
    assert inspect(upload, blocks(net), initial, kind) is None
