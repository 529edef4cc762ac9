"""The preconditioner, against dense matrices."""

import numpy as np
import pytest
import torch
from torch import Tensor

from testbed.fusion.woodbury import woodbury

O, I = 6, 9  # noqa: E741


def parts(clients: int, rank: int, seed: int = 0) -> tuple[Tensor, list[Tensor]]:
    """Return G_k and orthogonal rows Z_k."""
    rng = np.random.default_rng(seed)
    half = torch.from_numpy(rng.standard_normal((clients, O, O)))
    z = [torch.linalg.qr(torch.from_numpy(rng.standard_normal((I, rank))))[0].T for _ in half]
    scales = torch.linspace(0.1, 3, rank).double().unsqueeze(1)
    return half @ half.transpose(1, 2), [scales * each for each in z]


def dense(g: Tensor, z: list[Tensor], tau: float) -> Tensor:
    total = tau * torch.eye(O * I).double()
    for own, rows in zip(g, z, strict=True):
        total += torch.kron(own, rows.T @ rows)
    return total


def matrix(operator, dtype=torch.float64) -> Tensor:
    columns = [operator(each.view(O, I)).reshape(-1) for each in torch.eye(O * I, dtype=dtype)]
    return torch.stack(columns, dim=1)


def test_with_all_terms_it_is_the_inverse() -> None:
    """What is left of the diagonal is tau then."""
    g, z = parts(clients=3, rank=2)
    total = dense(g, z, 0.1)
    inverse = woodbury(g, z, total.diagonal().view(O, I), 0.1, size=10**6)
    torch.testing.assert_close(matrix(inverse) @ total, torch.eye(O * I).double())


@pytest.mark.parametrize("size", [1, 5, 20])
def test_with_some_terms_it_inverts_them_and_a_diagonal(size: int) -> None:
    """With fewer rows than runs, D is what the terms leave of F's diagonal."""
    g, z = parts(clients=3, rank=2)
    total = dense(g, z, 0.1)
    terms = []
    for own, rows in zip(g, z, strict=True):
        values, vectors = torch.linalg.eigh(own)
        for row in rows:
            terms += [
                torch.kron(value.sqrt() * x, row)
                for value, x in zip(values, vectors.T, strict=True)
            ]
    w = torch.stack(sorted(terms, key=lambda each: -float(each.norm()))[:size], dim=1)
    kept = w @ w.T
    expected = kept + torch.diag(total.diagonal() - kept.diagonal())
    inverse = matrix(woodbury(g, z, total.diagonal().view(O, I), 0.1, size))
    torch.testing.assert_close(inverse @ expected, torch.eye(O * I).double())


def test_more_terms_come_closer() -> None:
    g, z = parts(clients=4, rank=5)
    total = dense(g, z, 0.01)
    conditions = []
    for size in (0, 30, 90):
        inverse = matrix(woodbury(g, z, total.diagonal().view(O, I), 0.01, size))
        torch.testing.assert_close(inverse, inverse.T)
        spectrum = torch.linalg.eigvals(inverse @ total).real
        assert spectrum.min() > 0
        conditions.append(float(spectrum.max() / spectrum.min()))
    assert conditions[0] > 3 * conditions[1] > 9 * conditions[2]


@pytest.mark.parametrize("decades", [4, 8, 14])
def test_it_stays_definite_however_far_damping_lies_below(decades: int) -> None:
    g, z = parts(clients=3, rank=4)
    tau = 10.0**-decades
    total = dense(g, z, tau)
    inverse = matrix(woodbury(g, z, total.diagonal().view(O, I), tau, 60))
    assert torch.linalg.eigvalsh((inverse + inverse.T) / 2).min() > 0


def test_vectors_keep_their_type() -> None:
    g, z = parts(clients=3, rank=2)
    inverse = woodbury(g, z, dense(g, z, 0.1).diagonal().view(O, I), 0.1, 10)
    wide, narrow = matrix(inverse), matrix(inverse, torch.float32)
    assert narrow.dtype == torch.float32
    torch.testing.assert_close(narrow, wide.float())


def test_clients_without_rows_leave_the_diagonal() -> None:
    inverse = woodbury(
        torch.eye(O).double().unsqueeze(0),
        [torch.zeros(0, I).double()],
        torch.full((O, I), 0.5).double(),
        0.5,
        10,
    )
    torch.testing.assert_close(matrix(inverse), 2 * torch.eye(O * I).double())
