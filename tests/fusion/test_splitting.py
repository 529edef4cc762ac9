"""Factors as a diagonal plus few rows, against the matrices they were made of."""

import numpy as np
import pytest
import torch
from torch import Tensor

from testbed.fusion.splitting import diagonals, rows


def gram(rank: int, size: int = 40, seed: int = 0) -> Tensor:
    half = np.random.default_rng(seed).standard_normal((rank, size))
    return torch.from_numpy(half.T @ half)


def shrunk(factor: Tensor, s: float) -> Tensor:
    return s * factor + (1 - s) * torch.diag(factor.diagonal())


def tolerance(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def left_over(a: Tensor, d: Tensor, z: list[Tensor]) -> Tensor:
    return torch.stack(
        [each - torch.diag(own) - part.T @ part for each, own, part in zip(a, d, z, strict=True)]
    )


@pytest.mark.parametrize("s", [0.75, 0.5, 0.1])
def test_the_shrinkage_of_a_low_rank_factor_is_found(s: float) -> None:
    a = torch.stack([shrunk(gram(rank), s) for rank in (3, 30)])
    expected = (1 - s) * a.diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(diagonals(a), expected, rtol=1e-9, atol=0)


def test_clients_may_have_shrunk_differently() -> None:
    a = torch.stack([shrunk(gram(3), 0.75), gram(3), torch.diag(torch.arange(1.0, 41.0).double())])
    shares = diagonals(a) / a.diagonal(dim1=1, dim2=2)
    for own, expected in zip(shares, (0.25, 0.0, 1.0), strict=True):
        torch.testing.assert_close(own, torch.full_like(own, expected), rtol=0, atol=1e-9)


def test_inputs_that_are_always_zero_tell_nothing() -> None:
    a = shrunk(gram(3), 0.75)
    a[:10] = a[:, :10] = 0.0
    d = diagonals(torch.stack([a, torch.zeros_like(a)]))
    torch.testing.assert_close(d[0], 0.25 * a.diagonal(), rtol=1e-9, atol=0)
    assert not d[1].any()


def test_rows_and_diagonal_make_up_the_factor() -> None:
    a = torch.stack([shrunk(gram(rank, seed=rank), 0.75) for rank in (2, 7, 11)])
    d = diagonals(a)
    z = rows(a, d, tolerance(1e-6, 1e-6, 1e-6), most=100)
    assert z is not None
    assert [each.shape for each in z] == [(2, 40), (7, 40), (11, 40)]
    assert left_over(a, d, z).abs().max() < 1e-6
    for each in z:
        products = each @ each.T
        assert (products - torch.diag(products.diagonal())).abs().max() < 1e-9
        assert (products.diagonal().diff() > 0).all()


def test_by_hand() -> None:
    """(1 2; 2 4) is the square of (1 2), and (3 0; 0 0) that of (sqrt 3, 0)."""
    a = torch.tensor([[[1.0, 2.0], [2.0, 4.0]], [[3.0, 0.0], [0.0, 0.0]]]).double()
    z = rows(a, torch.zeros(2, 2).double(), tolerance(1e-9, 1e-9), most=3)
    assert z is not None
    first, second = (each.abs() for each in z)
    torch.testing.assert_close(first, torch.tensor([[1.0, 2.0]]).double())
    torch.testing.assert_close(second, torch.tensor([[3.0**0.5, 0.0]]).double())


def test_what_is_left_over_meets_each_tolerance() -> None:
    values = 10.0 ** -torch.arange(40).double()
    basis = torch.linalg.qr(gram(40))[0]
    a = torch.stack([basis * values @ basis.T] * 2)
    d = torch.zeros(2, 40).double()
    z = rows(a, d, tolerance(1e-3, 1e-8), most=80)
    assert z is not None
    assert len(z[0]) < len(z[1]) < 15
    left = left_over(a, d, z).diagonal(dim1=1, dim2=2)
    assert 0 < left[0].max() <= 1e-3
    assert left[1].max() <= 1e-8
    assert left.min() > -1e-12


@pytest.mark.parametrize(("most", "enough"), [(10, True), (9, False)])
def test_too_many_rows_are_refused(most: int, enough: bool) -> None:
    a = torch.stack([gram(4), gram(5)])
    found = rows(a, torch.zeros(2, 40).double(), tolerance(1e-6, 1e-6), most)
    assert (found is not None) == enough


def test_a_factor_of_full_rank_gives_up_its_least_eigenvalue_to_the_diagonal() -> None:
    a = gram(80).unsqueeze(0)
    d = diagonals(a)
    z = rows(a, d, tolerance(1e-9), most=40)
    assert z is not None
    assert len(z[0]) == 39
    assert left_over(a, d, z).abs().max() < 1e-9
    assert rows(a, d, tolerance(1e-9), most=39) is None
