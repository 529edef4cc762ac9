"""Conditioning of Fisher blocks: shrinkage, powers, scales, and nothing from other clients."""

import numpy as np
import pytest
import torch
from torch import Tensor

from testbed.config.schema import FusionConfig
from testbed.learning.conditioning import Conditioning, condition
from testbed.learning.factors import Diagonal, Kronecker

ROBUST = Conditioning(temper=0.55, temper_inputs=0.8, normalise=0.4, shrink=0.75)


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


def test_the_paper_preset_does_nothing_and_the_default_is_robust() -> None:
    paper = FusionConfig.model_validate({"preset": "paper"})
    assert Conditioning.from_config(paper) == Conditioning()
    assert Conditioning.from_config(FusionConfig()) == ROBUST


@pytest.mark.parametrize("a", [0.5, 0.9])
@pytest.mark.parametrize("rank", [4, 2])
def test_the_inputs_factor_is_raised_to_its_power(a: float, rank: int) -> None:
    block = Kronecker(psd(0, 4, rank), psd(1, 3, 3))
    tempered = condition({"fc": block}, 5, Conditioning(temper_inputs=a))["fc"]
    expected = np.kron(block.g.numpy(), power(block.a.numpy(), a))
    np.testing.assert_allclose(kronecker(tempered), expected, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("p", [0.5, 0.75, 0.9])
@pytest.mark.parametrize("rank", [3, 2])
def test_the_mean_of_the_gradients_factor_is_raised_to_the_power(p: float, rank: int) -> None:
    """A (x) (G / n)^p, times n."""
    block = Kronecker(psd(0, 4, 4), psd(1, 3, rank))
    tempered = condition({"fc": block}, 5, Conditioning(temper=p))["fc"]
    expected = 5 * np.kron(power(block.g.numpy() / 5, p), block.a.numpy())
    np.testing.assert_allclose(kronecker(tempered), expected, rtol=1e-9, atol=1e-8)


def test_correlations_of_inputs_are_shrunk_and_variances_kept() -> None:
    block = Kronecker(torch.tensor([[4.0, -2.0], [-2.0, 9.0]]), torch.eye(2))
    shrunk = condition({"fc": block}, 1, Conditioning(shrink=0.25))["fc"]
    assert torch.equal(shrunk.a, torch.tensor([[4.0, -0.5], [-0.5, 9.0]]))
    alone = condition({"fc": block}, 1, Conditioning(shrink=0.0))["fc"]
    assert torch.equal(alone.a, torch.diag(torch.tensor([4.0, 9.0])))


def test_directions_without_information_stay_without_weight() -> None:
    """Rounding leaves eigenvalues near 1e-8 of the largest; their power must not count."""
    block = Kronecker(psd(0, 5, 5).float(), psd(1, 20, 3).float())
    tempered = condition({"fc": block}, 5, Conditioning(temper=0.5))["fc"]
    values = torch.linalg.eigvalsh(tempered.g.double())
    assert (values[:-3].abs() < 1e-5 * values[-1]).all()


@pytest.mark.parametrize("temper", [1.0, 0.75])
def test_full_normalisation_gives_every_block_the_mean_n(temper: float) -> None:
    blocks = {
        "fc": Kronecker(1e-6 * psd(0, 4, 4), 1e3 * psd(1, 3, 3)),
        "norm": Diagonal(torch.tensor([[1.0, 3.0], [0.0, 4.0]])),
    }
    normal = condition(blocks, 48, Conditioning(temper, temper, normalise=1.0))
    assert float(normal["fc"].a.trace() * normal["fc"].g.trace()) / 12 == pytest.approx(48)
    assert float(normal["norm"].f.mean()) == pytest.approx(48)


@pytest.mark.parametrize("q", [0.0, 0.4, 1.0])
def test_a_louder_client_weighs_more_by_the_rest_of_the_power(q: float) -> None:
    """Blocks a hundred times larger count 100^(1 - q) times as much."""
    quiet = {"fc": Kronecker(psd(0, 4, 4), psd(1, 3, 3))}
    loud = {"fc": Kronecker(100 * quiet["fc"].a, quiet["fc"].g)}
    by = Conditioning(normalise=q)
    one, other = (kronecker(condition(each, 6, by)["fc"]) for each in (quiet, loud))
    np.testing.assert_allclose(other, 100 ** (1 - q) * one, rtol=1e-9)


def test_a_diagonal_block_by_hand() -> None:
    block = {"norm": Diagonal(16 * torch.tensor([[1.0, 9.0], [0.0, 16.0]]))}
    tempered = condition(block, 16, Conditioning(temper=0.5, normalise=1.0))["norm"]
    # Square roots of the means are 1, 3, 0, 4, on average 2; the mean becomes n = 16.
    assert torch.equal(tempered.f, torch.tensor([[8.0, 24.0], [0.0, 32.0]]))


@pytest.mark.parametrize("by", [Conditioning(), Conditioning(0.5), ROBUST])
def test_a_block_of_zeros_stays_zero(by: Conditioning) -> None:
    blocks = {
        "fc": Kronecker(psd(0, 3, 3), torch.zeros(2, 2, dtype=torch.float64)),
        "norm": Diagonal(torch.zeros(2, 3)),
    }
    normal = condition(blocks, 9, by)
    assert torch.equal(normal["fc"].g, torch.zeros(2, 2, dtype=torch.float64))
    assert torch.equal(normal["norm"].f, torch.zeros(2, 3))


@pytest.mark.parametrize("rank", [6, 2])
def test_factors_keep_their_dtype_and_symmetry_and_stay_semidefinite(rank: int) -> None:
    block = Kronecker(psd(0, 6, rank).float(), psd(1, 4, rank).float())
    tempered = condition({"fc": block}, 3, ROBUST)["fc"]
    assert tempered.a.dtype == tempered.g.dtype == torch.float32
    assert torch.equal(tempered.a, tempered.a.T)
    assert torch.equal(tempered.g, tempered.g.T)
    for factor in (tempered.a, tempered.g):
        values = torch.linalg.eigvalsh(factor.double())
        assert float(values[0]) > -1e-6 * float(values[-1])


def test_numbers_that_are_not_finite_reach_the_coordinator_to_be_refused() -> None:
    for bad in (float("nan"), float("inf")):
        block = Kronecker(psd(0, 3, 3), torch.full((2, 2), bad, dtype=torch.float64))
        assert not condition({"fc": block}, 3, ROBUST)["fc"].g.isfinite().any()
