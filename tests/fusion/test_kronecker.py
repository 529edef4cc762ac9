"""Sums of Kronecker products in all the forms in which they are solved, against dense ones."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from testbed.fusion import kronecker
from testbed.fusion.kronecker import KroneckerSum
from testbed.fusion.solver import conjugate_gradients

SHAPE = (40, 50)  # large enough to be preconditioned
PATHS = {"_product", "_low_rank_product", "_split_product"}


def system(
    clients: int,
    rank: int,
    s: float,
    damping: float,
    shape: tuple[int, int] = SHAPE,
    seed: int = 0,
) -> tuple[KroneckerSum, Tensor]:
    """Inputs of `rank` samples each, steep gradients, shrunk as clients do; and a right side."""
    rng = np.random.default_rng(seed)
    o, i = shape
    rows = torch.from_numpy(rng.standard_normal((clients, rank, i))) * torch.linspace(0.05, 1, i)
    a = rows.transpose(1, 2) @ rows
    a = s * a + (1 - s) * torch.diag_embed(a.diagonal(dim1=1, dim2=2))
    half = torch.from_numpy(rng.standard_normal((clients, o, o))) * torch.logspace(-2, 0, o)
    g = half @ half.transpose(1, 2)
    traces = a.diagonal(dim1=1, dim2=2).sum(1) * g.diagonal(dim1=1, dim2=2).sum(1)
    w = torch.from_numpy(rng.standard_normal((clients, o, i)))
    return KroneckerSum(g, a, damping * float(traces.sum()) / (o * i)), (g @ w @ a).sum(0)


def dense(of: KroneckerSum) -> Tensor:
    unknowns = of.g.shape[1] * of.a.shape[1]
    total = of.tau * torch.eye(unknowns).double()
    for g, a in zip(of.g, of.a, strict=True):
        total += torch.kron(g, a)
    return total


@dataclass
class Spy:
    """Which products were set up."""

    used: set[str]


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    found = Spy(set())
    for name in PATHS:
        real = getattr(kronecker, name)

        def wrapped(*arguments, name=name, real=real):
            if arguments[0].dtype == torch.float32:
                found.used.add(name)
            return real(*arguments)

        monkeypatch.setattr(kronecker, name, wrapped)
    return found


def test_a_product_by_hand() -> None:
    """G v A = (2 0; 0 1) (1 2; 3 4) (1 1; 1 1) = (6 6; 7 7), then twice, plus v."""
    g = torch.tensor([[2.0, 0.0], [0.0, 1.0]]).double().expand(2, 2, 2)
    v = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).double()
    image = KroneckerSum(g, torch.ones(2, 2, 2).double(), 1.0).operator()(v)
    torch.testing.assert_close(image, torch.tensor([[13.0, 14.0], [17.0, 18.0]]).double())


def test_the_three_products_agree_with_the_dense_one() -> None:
    rng = np.random.default_rng(1)
    g, d, z, v = (
        torch.from_numpy(rng.standard_normal(shape))
        for shape in ((3, 4, 4), (3, 7), (3, 2, 7), (4, 7))
    )
    u = torch.linalg.qr(torch.from_numpy(rng.standard_normal((7, 7))))[0]
    low = z.transpose(1, 2) @ z
    split = u.T @ (torch.diag_embed(d) + low) @ u
    for product, a in (
        (kronecker._product(g, split, 0.3), split),
        (kronecker._low_rank_product(g, z, 0.3), low),
        (kronecker._split_product(g, d, z, u, 0.3), split),
    ):
        expected = (dense(KroneckerSum(g, a, 0.3)) @ v.reshape(-1)).view(4, 7)
        torch.testing.assert_close(product(v), expected)


@pytest.mark.parametrize(
    ("rank", "s", "path"),
    [(6, 1.0, "_low_rank_product"), (6, 0.75, "_split_product"), (80, 0.75, "_product")],
    ids=["few samples", "few samples, shrunk", "many samples"],
)
@pytest.mark.parametrize("damping", [1.0, 1e-2, 1e-4])
def test_every_path_solves_the_full_system(spy, rank, s, path, damping) -> None:
    of, rhs = system(8, rank, s, damping)
    x, solve = of.solve(rhs, 1e-6, 2000)
    total = dense(of)
    residual = (total @ x.reshape(-1) - rhs.reshape(-1)).norm() / rhs.norm()
    assert spy.used == {path}
    assert solve.converged
    assert residual <= 1e-6
    assert solve.residual == pytest.approx(float(residual), rel=1e-6)
    plain = conjugate_gradients(of.operator(), rhs, 1e-6, 20_000)[1]
    assert solve.iterations < plain


def test_preconditioned_iterations_are_several_times_fewer() -> None:
    of, rhs = system(8, 6, 0.75, 1e-3)
    plain = conjugate_gradients(of.operator(), rhs, 1e-6, 20_000)[1]
    assert of.solve(rhs, 1e-6, 2000)[1].iterations < plain / 4


@pytest.mark.parametrize("rtol", [1e-2, 1e-10, 1e-13])
def test_tolerances_beyond_single_precision_are_reached(rtol: float) -> None:
    of, rhs = system(8, 6, 0.75, 1e-2)
    x, solve = of.solve(rhs, rtol, 2000)
    assert solve.converged
    assert (of.operator()(x) - rhs).norm() <= 1.01 * rtol * rhs.norm()


def test_equal_systems_give_equal_bits_whatever_came_before() -> None:
    of, rhs = system(8, 6, 0.75, 1e-2)
    x, solve = of.solve(rhs, 1e-6, 2000)
    other, other_rhs = system(5, 80, 0.5, 1e-3, seed=3)
    other.solve(other_rhs, 1e-6, 2000)
    again = KroneckerSum(of.g.clone(), of.a.clone(), of.tau).solve(rhs.clone(), 1e-6, 2000)
    assert torch.equal(again[0], x)
    assert again[1] == solve


def test_nothing_given_is_written_to() -> None:
    of, rhs = system(8, 6, 0.75, 1e-2)
    before = [each.clone() for each in (of.g, of.a, rhs)]
    of.solve(rhs, 1e-6, 2000)
    for each, copy in zip((of.g, of.a, rhs), before, strict=True):
        assert torch.equal(each, copy)


def test_a_small_system_is_solved_the_plain_way(spy) -> None:
    of, rhs = system(8, 6, 0.75, 1.0, shape=(5, 20))
    x, solve = of.solve(rhs, 1e-6, 2000)
    assert spy.used == set()
    assert solve.converged
    assert solve.iterations <= 50
    assert (of.operator()(x) - rhs).norm() <= 1e-6 * rhs.norm()


def test_a_small_but_hard_system_goes_on_preconditioned(spy) -> None:
    of, rhs = system(8, 6, 0.75, 1e-6, shape=(30, 40))
    x, solve = of.solve(rhs, 1e-6, 5000)
    assert spy.used
    assert solve.converged
    assert solve.iterations > 50
    assert (of.operator()(x) - rhs).norm() <= 1e-6 * rhs.norm()


@pytest.mark.parametrize("damping", [1e-8, 1e-12, 1e-16])
def test_where_single_precision_cannot_follow_the_report_stays_true(damping: float) -> None:
    of, rhs = system(8, 6, 0.75, damping)
    x, solve = of.solve(rhs, 1e-6, 3000)
    residual = float((of.operator()(x) - rhs).norm() / rhs.norm())
    assert solve.residual == pytest.approx(residual, rel=1e-3)
    assert solve.converged == (residual <= 1e-6)
    assert solve.iterations <= 3000


@pytest.mark.parametrize("most", [0, 1, 7])
def test_iterations_stay_within_their_bound(most: int) -> None:
    of, rhs = system(8, 6, 0.75, 1e-4)
    x, solve = of.solve(rhs, 1e-12, most)
    assert solve.iterations <= most
    assert not solve.converged
    assert solve.residual == pytest.approx(
        float((of.operator()(x) - rhs).norm() / rhs.norm()), rel=1e-6
    )


def test_clients_that_know_nothing_change_nothing() -> None:
    of, rhs = system(4, 6, 0.75, 1e-2)
    none = torch.zeros(1, 40, 40).double(), torch.zeros(1, 50, 50).double()
    more = KroneckerSum(torch.cat([of.g, none[0]]), torch.cat([of.a, none[1]]), of.tau)
    x, solve = more.solve(rhs, 1e-9, 2000)
    assert solve.converged
    torch.testing.assert_close(x, of.solve(rhs, 1e-9, 2000)[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("tau", [0.0, 1.0])
def test_nothing_asked_nothing_done(tau: float) -> None:
    of, rhs = system(3, 6, 1.0, 0.0)
    x, solve = KroneckerSum(of.g, of.a, tau).solve(torch.zeros_like(rhs), 1e-6, 100)
    assert not x.any()
    assert solve.converged
    assert solve.iterations == 0
