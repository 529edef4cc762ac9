"""Conditioning of Fisher blocks: powers, traces, and nothing a client does not know alone."""

import numpy as np
import pytest
import torch
from torch import Tensor

from testbed.learning.conditioning import Conditioning, condition
from testbed.learning.factors import Diagonal, Kronecker


def psd(seed: int, size: int, rank: int) -> Tensor:
    half = np.random.default_rng(seed).standard_normal((size, rank))
    return torch.from_numpy(half @ half.T)


def kronecker(block: Kronecker) -> np.ndarray:
    return np.kron(block.g.numpy(), block.a.numpy())


def power(matrix: np.ndarray, p: float) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    kept = np.where(values > 1e-9 * values[-1], values.clip(0), 0) ** p
    return (vectors * kept) @ vectors.T


def test_nothing_is_done_by_default() -> None:
    blocks = {"fc": Kronecker(psd(0, 4, 4), psd(1, 3, 3)), "out": Diagonal(torch.ones(2, 2))}
    same = condition(blocks, 7, Conditioning())
    assert torch.equal(same["fc"].a, blocks["fc"].a)
    assert torch.equal(same["fc"].g, blocks["fc"].g)
    assert torch.equal(same["out"].f, blocks["out"].f)


@pytest.mark.parametrize("p", [0.5, 0.75, 0.9])
@pytest.mark.parametrize("rank", [4, 2])
def test_the_power_of_the_block_is_the_power_of_its_factors(p: float, rank: int) -> None:
    block = Kronecker(psd(0, 4, rank), psd(1, 3, 2))
    tempered = condition({"fc": block}, 5, Conditioning(temper=p))["fc"]
    np.testing.assert_allclose(kronecker(tempered), power(kronecker(block), p), atol=1e-8)


def test_directions_without_information_stay_without_weight() -> None:
    """Rounding leaves eigenvalues near 1e-8 of the largest; their power must not count."""
    block = Kronecker(psd(0, 20, 3).float(), psd(1, 5, 5).float())
    tempered = condition({"fc": block}, 5, Conditioning(temper=0.5))["fc"]
    values = torch.linalg.eigvalsh(tempered.a.double())
    assert (values[:-3].abs() < 1e-5 * values[-1]).all()


@pytest.mark.parametrize("temper", [1.0, 0.75])
def test_every_block_gets_the_trace_n(temper: float) -> None:
    blocks = {
        "fc": Kronecker(1e-6 * psd(0, 4, 4), 1e3 * psd(1, 3, 3)),
        "norm": Diagonal(torch.tensor([[1.0, 3.0], [0.0, 4.0]])),
    }
    normal = condition(blocks, 48, Conditioning(temper, "trace"))
    assert float(normal["fc"].a.trace() * normal["fc"].g.trace()) == pytest.approx(48)
    assert float(normal["norm"].f.sum()) == pytest.approx(48)


def test_a_diagonal_block_by_hand() -> None:
    block = {"norm": Diagonal(torch.tensor([[1.0, 9.0], [0.0, 16.0]]))}
    tempered = condition(block, 16, Conditioning(temper=0.5, normalise="trace"))["norm"]
    # Square roots 1, 3, 0, 4 add up to 8; the trace becomes n = 16.
    assert torch.equal(tempered.f, torch.tensor([[2.0, 6.0], [0.0, 8.0]]))


@pytest.mark.parametrize("temper", [1.0, 0.5])
def test_a_block_of_zeros_stays_zero(temper: float) -> None:
    blocks = {
        "fc": Kronecker(psd(0, 3, 3), torch.zeros(2, 2, dtype=torch.float64)),
        "norm": Diagonal(torch.zeros(2, 3)),
    }
    normal = condition(blocks, 9, Conditioning(temper, "trace"))
    assert torch.equal(normal["fc"].g, torch.zeros(2, 2, dtype=torch.float64))
    assert torch.equal(normal["norm"].f, torch.zeros(2, 3))


def test_factors_keep_their_dtype_and_symmetry() -> None:
    block = Kronecker(psd(0, 6, 6).float(), psd(1, 4, 4).float())
    tempered = condition({"fc": block}, 3, Conditioning(0.75, "trace"))["fc"]
    assert tempered.a.dtype == tempered.g.dtype == torch.float32
    assert torch.equal(tempered.a, tempered.a.T)
    assert torch.equal(tempered.g, tempered.g.T)
    assert float(torch.linalg.eigvalsh(tempered.a.double())[0]) > -1e-6
