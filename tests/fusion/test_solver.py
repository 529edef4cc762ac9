"""Conjugate gradients, on systems solved by hand."""

import pytest
import torch
from torch import Tensor

from testbed.fusion.solver import Operator, conjugate_gradients


def by(matrix: Tensor) -> Operator:
    return lambda v: matrix @ v


F = torch.tensor([[4.0, 1.0], [1.0, 3.0]]).double()
R = torch.tensor([1.0, 2.0]).double()


def test_two_unknowns_take_two_iterations() -> None:
    """(4 1; 1 3) x = (1 2) has x = (1 7) / 11."""
    x, iterations = conjugate_gradients(by(F), R, 1e-12, 100)
    assert iterations == 2
    torch.testing.assert_close(x, torch.tensor([1.0, 7.0]).double() / 11)


def test_the_first_iterate_is_steepest_descent() -> None:
    """r = (1 2), F r = (6 7): the step is r.r / r.Fr = 5 / 20."""
    x, iterations = conjugate_gradients(by(F), R, 1e-12, 1)
    assert iterations == 1
    torch.testing.assert_close(x, R / 4)


@pytest.mark.parametrize("distinct", [1, 3, 6])
def test_iterations_are_as_many_as_distinct_eigenvalues(distinct: int) -> None:
    values = torch.arange(60).remainder(distinct).double() + 1
    _, iterations = conjugate_gradients(by(torch.diag(values)), torch.ones(60).double(), 1e-9, 99)
    assert iterations == distinct


def test_a_singular_system_gives_the_solution_of_least_norm() -> None:
    """(1 1; 1 1) x = (2 2): of all with x1 + x2 = 2, (1 1)."""
    x, iterations = conjugate_gradients(
        by(torch.ones(2, 2).double()), torch.full((2,), 2.0).double(), 1e-12, 100
    )
    assert iterations == 1
    torch.testing.assert_close(x, torch.ones(2).double())


def test_an_exact_preconditioner_takes_one_iteration() -> None:
    x, iterations = conjugate_gradients(by(F), R, 1e-12, 100, by(torch.linalg.inv(F)))
    assert iterations == 1
    torch.testing.assert_close(F @ x, R)


def test_the_tolerance_is_relative() -> None:
    values = 10.0 ** torch.linspace(0, 4, 200).double()
    r = 1e-20 * torch.ones(200).double()
    counts = []
    for rtol in (1e-2, 1e-6):
        x, iterations = conjugate_gradients(by(torch.diag(values)), r, rtol, 5000)
        assert (r - values * x).norm() <= 1.01 * rtol * r.norm()
        counts.append(iterations)
    assert 0 < counts[0] < counts[1] < 5000


def test_nothing_asked_nothing_done() -> None:
    x, iterations = conjugate_gradients(by(F), torch.zeros(2).double(), 1e-6, 100)
    assert iterations == 0
    assert not x.any()


def test_a_direction_that_is_not_curved_ends_it() -> None:
    x, iterations = conjugate_gradients(by(-F), R, 1e-6, 100)
    assert iterations == 0
    assert not x.any()
    assert torch.equal(R, torch.tensor([1.0, 2.0]).double())
