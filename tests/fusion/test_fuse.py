"""The projection onto {F W = b} against dense linear algebra.

Clients are quadratic: hand-made factors in float64, so that nothing but the projection is
tested.  Dense means Kronecker products formed in full and solved by `numpy.linalg`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor

from testbed.errors import FusionError
from testbed.fusion import fsosa
from testbed.fusion.fsosa import Fused
from testbed.learning.blocks import Block
from testbed.learning.conditioning import Conditioning, Normalise, condition
from testbed.learning.contribution import Contribution
from testbed.learning.factors import Diagonal, Kronecker


@dataclass(frozen=True)
class Projection(fsosa.Projection):
    """A projection, and what clients with one sample each do to their blocks before it."""

    normalise: Normalise = "trace"


def fuse(contributions: Sequence[Contribution], blocks: Sequence[Block], by: Projection) -> Fused:
    conditioning = Conditioning(normalise=by.normalise)
    received = [
        replace(each, fisher=condition(each.fisher, 1, conditioning)) for each in contributions
    ]
    return fsosa.fuse(received, blocks, by)


PLAIN = Projection(normalise="none", damping=0.0, rtol=1e-13, max_iterations=5000)
TRACE = replace(PLAIN, normalise="trace")
LAYER = Block("fc", (3, 5), bias=False)


def psd(rng: np.random.Generator, size: int, rank: int) -> Tensor:
    half = rng.standard_normal((size, rank))
    return torch.from_numpy(half @ half.T / rank)


def client(w: Tensor, factor: Kronecker | Diagonal, **rest: Tensor) -> Contribution:
    return Contribution(1, {"fc.weight": w, **rest}, {"fc": factor})


def federation(
    clients: int, rank_a: int, rank_g: int, seed: int = 0, shape: tuple[int, int] = (3, 5)
) -> list[Contribution]:
    rng = np.random.default_rng(seed)
    rows, columns = shape
    return [
        client(
            torch.from_numpy(rng.standard_normal(shape)),
            Kronecker(a=psd(rng, columns, rank_a), g=psd(rng, rows, rank_g)),
        )
        for _ in range(clients)
    ]


def dense(contributions: Sequence[Contribution], weights: Sequence[float] | None = None):
    """Return F, W_bar and r = b - F W_bar, of row-major vec(W)."""
    blocks = [np.kron(c.fisher["fc"].g.numpy(), c.fisher["fc"].a.numpy()) for c in contributions]
    if weights is not None:
        blocks = [weight * block for weight, block in zip(weights, blocks, strict=True)]
    models = [c.model["fc.weight"].numpy().reshape(-1) for c in contributions]
    mean = np.mean(models, axis=0)
    r = sum(block @ (model - mean) for block, model in zip(blocks, models, strict=True))
    return sum(blocks), mean, r


def vector(fused: Fused) -> np.ndarray:
    return fused.model["fc.weight"].numpy().reshape(-1)


def traces(contributions: Sequence[Contribution]) -> list[float]:
    return [float(c.fisher["fc"].a.trace() * c.fisher["fc"].g.trace()) for c in contributions]


# --- Kronecker blocks ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clients", "rank_a", "rank_g", "rank"),
    [(4, 5, 3, 15), (3, 2, 1, 6), (2, 2, 2, 8), (1, 2, 1, 2)],
    ids=["regular", "rank 6 of 15", "rank 8 of 15", "one client, rank 2"],
)
def test_projection_equals_the_pseudo_inverse(clients, rank_a, rank_g, rank) -> None:
    contributions = federation(clients, rank_a, rank_g)
    F, mean, r = dense(contributions)
    assert np.linalg.matrix_rank(F, tol=1e-9) == rank
    fused = fuse(contributions, [LAYER], PLAIN)
    w = vector(fused)
    inverse = np.linalg.pinv(F, rcond=1e-10, hermitian=True)
    np.testing.assert_allclose(w, mean + inverse @ r, atol=1e-9)
    # It satisfies the constraint, and leaves W_bar alone where the constraint says nothing.
    np.testing.assert_allclose(F @ (w - mean), r, atol=1e-9)
    null = np.eye(15) - inverse @ F
    assert np.abs(null @ (w - mean)).max() < 1e-9
    assert fused.solves["fc"].converged
    assert fused.solves["fc"].residual < 1e-12
    assert 0 <= fused.solves["fc"].iterations <= 60


def test_no_other_solution_is_closer_to_the_mean() -> None:
    contributions = federation(3, 2, 1)
    F, mean, _ = dense(contributions)
    w = vector(fuse(contributions, [LAYER], PLAIN))
    null = np.linalg.svd(F)[2][6:]
    for step in np.random.default_rng(1).standard_normal((20, len(null))):
        assert np.linalg.norm(w + step @ null - mean) > np.linalg.norm(w - mean)


@pytest.mark.parametrize("damping", [1e-4, 0.1, 10.0])
@pytest.mark.parametrize(("rank_a", "rank_g"), [(5, 3), (2, 1)])
@pytest.mark.parametrize("normalise", ["none", "trace"])
def test_damped_solution_equals_the_dense_one(damping, rank_a, rank_g, normalise) -> None:
    """Solve (F + tau I) delta = r with tau = c tr(F) / (o i)."""
    contributions = federation(3, rank_a, rank_g)
    weights = [1 / trace for trace in traces(contributions)] if normalise == "trace" else None
    F, mean, r = dense(contributions, weights)
    tau = damping * np.trace(F) / 15
    if normalise == "trace":
        assert tau == pytest.approx(damping * 3 / 15)
    fused = fuse(contributions, [LAYER], replace(PLAIN, damping=damping, normalise=normalise))
    np.testing.assert_allclose(
        vector(fused), mean + np.linalg.solve(F + tau * np.eye(15), r), atol=1e-9
    )
    assert fused.solves["fc"].converged


def test_strong_damping_gives_the_mean() -> None:
    contributions = federation(3, 5, 3)
    _, mean, _ = dense(contributions)
    w = vector(fuse(contributions, [LAYER], replace(PLAIN, damping=1e12)))
    np.testing.assert_allclose(w, mean, atol=1e-9)


def steep(
    clients: int, shape: tuple[int, int], decades: float, rank: int, scale: float = 1.0
) -> list[Contribution]:
    """Clients whose factors' eigenvalues fall by `decades`, then to zero, in their own bases."""
    rng = np.random.default_rng(0)

    def factor(size: int, rank: int) -> Tensor:
        basis = np.linalg.qr(rng.standard_normal((size, size)))[0]
        values = 10.0 ** (-decades * np.arange(size) / (size - 1)) * scale
        values[rank:] = 0.0
        return torch.from_numpy(basis * values @ basis.T)

    common = rng.standard_normal(shape)
    return [
        client(
            torch.from_numpy(common + 0.3 * rng.standard_normal(shape)),
            Kronecker(a=factor(shape[1], rank), g=factor(shape[0], shape[0] - 1)),
        )
        for _ in range(clients)
    ]


@pytest.mark.parametrize(
    ("clients", "shape", "decades", "rank"),
    [(5, (20, 60), 6, 60), (5, (20, 60), 6, 12), (10, (32, 60), 6, 30), (3, (4, 300), 8, 20)],
    ids=["full rank", "low rank", "many clients", "wide"],
)
@pytest.mark.parametrize(("damping", "error"), [(1.0, 1e-5), (0.1, 1e-4), (1e-3, 5e-3)])
@pytest.mark.parametrize("normalise", ["none", "trace"])
def test_layers_of_real_size_and_steep_spectra(
    clients, shape, decades, rank, damping, error, normalise
) -> None:
    contributions = steep(clients, shape, decades, rank)
    weights = [1 / trace for trace in traces(contributions)] if normalise == "trace" else None
    F, mean, r = dense(contributions, weights)
    damped = F + damping * np.trace(F) / len(F) * np.eye(len(F))
    projection = Projection(normalise=normalise, damping=damping)
    fused = fuse(contributions, [Block("fc", shape, bias=False)], projection)
    delta = vector(fused) - mean
    residual = np.linalg.norm(damped @ delta - r) / np.linalg.norm(r)
    assert fused.solves["fc"].converged
    assert fused.solves["fc"].residual == pytest.approx(residual, rel=1e-3, abs=1e-12)
    assert residual <= 2 * projection.rtol
    exact = np.linalg.solve(damped, r)
    assert np.linalg.norm(delta - exact) < error * np.linalg.norm(exact)


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e6, 1e12])
def test_the_scale_of_the_fisher_does_not_matter(scale: float) -> None:
    """Confident clients have a Fisher near zero: F of order 1e-24 is solved like any other."""
    block = Block("fc", (20, 60), bias=False)
    projection = Projection(normalise="none", rtol=1e-10)
    one, other = (fuse(steep(5, (20, 60), 3, 60, s), [block], projection) for s in (1.0, scale))
    assert other.solves["fc"].converged
    np.testing.assert_allclose(vector(other), vector(one), atol=1e-8)


def test_a_solve_that_stops_early_says_how_far_it_came() -> None:
    contributions = steep(5, (20, 60), 6, 12)
    F, mean, r = dense(contributions)
    for damping in (0.0, 1e-6):
        projection = Projection(normalise="none", damping=damping, max_iterations=20)
        fused = fuse(contributions, [Block("fc", (20, 60), bias=False)], projection)
        damped = F + damping * np.trace(F) / len(F) * np.eye(len(F))
        residual = np.linalg.norm(damped @ (vector(fused) - mean) - r) / np.linalg.norm(r)
        assert not fused.solves["fc"].converged
        assert fused.solves["fc"].iterations <= 20
        assert fused.solves["fc"].residual == pytest.approx(residual, rel=1e-6)
        assert residual > 1e-6


@pytest.mark.parametrize("rank", [5, 2])
def test_the_default_tolerance_is_reached_and_reported_truly(rank: int) -> None:
    contributions = federation(6, rank, 3)
    weights = [1 / trace for trace in traces(contributions)]
    F, mean, r = dense(contributions, weights)
    fused = fuse(contributions, [LAYER], Projection())
    damped = F + 0.1 * np.trace(F) / 15 * np.eye(15)
    true = np.linalg.norm(damped @ (vector(fused) - mean) - r) / np.linalg.norm(r)
    assert fused.solves["fc"].converged
    assert true <= 2e-6
    assert fused.solves["fc"].residual == pytest.approx(true, abs=1e-7)


def test_linear_regression_clients_give_pooled_least_squares() -> None:
    """Three clients with 4 samples in 5 dimensions: each alone is underdetermined."""
    rng = np.random.default_rng(3)
    xs, ys = rng.standard_normal((3, 4, 5)), rng.standard_normal((3, 4, 1))
    contributions = [
        client(
            torch.from_numpy((np.linalg.pinv(x) @ y).T),
            Kronecker(a=torch.from_numpy(x.T @ x), g=torch.ones(1, 1, dtype=torch.float64)),
        )
        for x, y in zip(xs, ys, strict=True)
    ]
    fused = fuse(contributions, [Block("fc", (1, 5), bias=False)], PLAIN)
    pooled = np.linalg.lstsq(xs.reshape(-1, 5), ys.reshape(-1), rcond=None)[0]
    np.testing.assert_allclose(vector(fused), pooled, atol=1e-9)


def test_equal_input_covariances_cancel() -> None:
    """All A equal and regular: W = (sum G)^-1 sum G W, whatever A is."""
    shared = psd(np.random.default_rng(9), 5, 5)
    contributions = [
        client(c.model["fc.weight"], Kronecker(shared, c.fisher["fc"].g))
        for c in federation(4, 5, 3)
    ]
    g = [c.fisher["fc"].g for c in contributions]
    expected = torch.linalg.solve(
        sum(g), sum(one @ c.model["fc.weight"] for one, c in zip(g, contributions, strict=True))
    )
    fused = fuse(contributions, [LAYER], PLAIN)
    torch.testing.assert_close(fused.model["fc.weight"], expected, rtol=0, atol=1e-9)


def test_one_client_keeps_its_model() -> None:
    for projection in (PLAIN, TRACE, Projection()):
        (alone,) = contributions = federation(1, 2, 1)
        fused = fuse(contributions, [LAYER], projection)
        assert torch.equal(fused.model["fc.weight"], alone.model["fc.weight"])
        assert fused.solves["fc"].converged


def test_equal_clients_keep_their_model() -> None:
    (one,) = federation(1, 5, 3)
    fused = fuse([one] * 4, [LAYER], Projection())
    torch.testing.assert_close(
        fused.model["fc.weight"], one.model["fc.weight"], rtol=0, atol=1e-12
    )


# --- normalisation ---------------------------------------------------------------------


def test_trace_normalisation_gives_every_client_the_same_weight() -> None:
    contributions = federation(3, 5, 3)
    F, mean, r = dense(contributions, [1 / trace for trace in traces(contributions)])
    np.testing.assert_allclose(
        vector(fuse(contributions, [LAYER], TRACE)), mean + np.linalg.solve(F, r), atol=1e-8
    )


@pytest.mark.parametrize("damping", [0.0, 0.1])
def test_trace_normalisation_undoes_any_scale(damping: float) -> None:
    contributions = federation(3, 5, 3)
    scaled = [
        client(
            c.model["fc.weight"],
            Kronecker(c.fisher["fc"].a * 10.0**power, c.fisher["fc"].g * 10.0 ** (2 * power)),
        )
        for c, power in zip(contributions, (-6, 0, 3), strict=True)
    ]
    projection = replace(TRACE, damping=damping)
    np.testing.assert_allclose(
        vector(fuse(scaled, [LAYER], projection)),
        vector(fuse(contributions, [LAYER], projection)),
        atol=1e-8,
    )
    plain = replace(projection, normalise="none")
    one, other = (vector(fuse(each, [LAYER], plain)) for each in (scaled, contributions))
    assert np.abs(one - other).max() > 1e-3


@pytest.mark.parametrize("normalise", ["none", "trace"])
@pytest.mark.parametrize("damping", [0.0, 0.1])
def test_a_client_without_information_counts_in_the_mean_only(normalise, damping) -> None:
    contributions = federation(2, 5, 3)
    zero = Kronecker(*(torch.zeros(n, n, dtype=torch.float64) for n in (5, 3)))
    contributions.append(client(torch.ones(3, 5, dtype=torch.float64), zero))
    weights = [1.0, 1.0, 0.0]
    if normalise == "trace":
        weights = [1 / trace for trace in traces(contributions[:2])] + [0.0]
    F, mean, r = dense(contributions, weights)
    tau = damping * np.trace(F) / 15
    fused = fuse(contributions, [LAYER], replace(PLAIN, damping=damping, normalise=normalise))
    np.testing.assert_allclose(
        vector(fused), mean + np.linalg.solve(F + tau * np.eye(15), r), atol=1e-8
    )


@pytest.mark.parametrize("kind", ["kfac", "diagonal"])
@pytest.mark.parametrize("projection", [PLAIN, TRACE, Projection()])
def test_without_any_information_the_mean_is_released(kind: str, projection) -> None:
    zero = (
        Kronecker(*(torch.zeros(n, n, dtype=torch.float64) for n in (5, 3)))
        if kind == "kfac"
        else Diagonal(torch.zeros(3, 5, dtype=torch.float64))
    )
    contributions = [client(c.model["fc.weight"], zero) for c in federation(3, 5, 3)]
    fused = fuse(contributions, [LAYER], projection)
    mean = sum(c.model["fc.weight"] for c in contributions) / 3
    torch.testing.assert_close(fused.model["fc.weight"], mean, rtol=0, atol=1e-12)
    assert fused.solves["fc"].converged


# --- diagonal blocks -------------------------------------------------------------------


def diagonals(seed: int = 0) -> list[Contribution]:
    rng = np.random.default_rng(seed)
    f = rng.random((4, 3, 5)) * 10.0 ** rng.uniform(-6, 0, (4, 3, 5))
    f[:, 1, 2] = 0.0  # nobody knows this one
    f[:2, 0, 4] = 0.0
    return [
        client(torch.from_numpy(rng.standard_normal((3, 5))), Diagonal(torch.from_numpy(each)))
        for each in f
    ]


def test_diagonal_is_the_weighted_mean_coordinate_by_coordinate() -> None:
    contributions = diagonals()
    f = np.stack([c.fisher["fc"].f.numpy() for c in contributions])
    w = np.stack([c.model["fc.weight"].numpy() for c in contributions])
    expected = np.where(f.sum(0) > 0, (f * w).sum(0) / np.maximum(f.sum(0), 1e-300), w.mean(0))
    fused = fuse(contributions, [LAYER], PLAIN)
    np.testing.assert_allclose(fused.model["fc.weight"].numpy(), expected, atol=1e-12)
    assert expected[1, 2] == pytest.approx(w[:, 1, 2].mean())
    assert fused.solves["fc"].converged
    assert fused.solves["fc"].iterations == 0


@pytest.mark.parametrize("normalise", ["none", "trace"])
@pytest.mark.parametrize("damping", [0.0, 1e-3, 0.1])
def test_diagonal_is_the_dense_solution(normalise: str, damping: float) -> None:
    contributions = diagonals(1)
    f = np.stack([c.fisher["fc"].f.numpy().reshape(-1) for c in contributions])
    w = np.stack([c.model["fc.weight"].numpy().reshape(-1) for c in contributions])
    if normalise == "trace":
        f /= f.sum(axis=1, keepdims=True)
    F = np.diag(f.sum(0))
    tau = damping * np.trace(F) / 15
    r = (f * (w - w.mean(0))).sum(0)
    expected = w.mean(0) + np.linalg.pinv(F + tau * np.eye(15), rcond=1e-14) @ r
    projection = replace(PLAIN, normalise=normalise, damping=damping)
    np.testing.assert_allclose(
        vector(fuse(contributions, [LAYER], projection)), expected, atol=1e-10
    )


def test_a_diagonal_block_equals_the_same_block_as_kronecker_factors() -> None:
    """With diagonal A and G both descriptions are one Fisher."""
    rng = np.random.default_rng(4)
    a, g = rng.random((3, 5)) + 0.1, rng.random((3, 3)) + 0.1
    w = [torch.from_numpy(rng.standard_normal((3, 5))) for _ in range(3)]
    kronecker, diagonal = (
        [client(w[k], factor(k)) for k in range(3)]
        for factor in (
            lambda k: Kronecker(
                torch.diag(torch.from_numpy(a[k])), torch.diag(torch.from_numpy(g[k]))
            ),
            lambda k: Diagonal(torch.from_numpy(np.outer(g[k], a[k]))),
        )
    )
    for projection in (PLAIN, TRACE, replace(PLAIN, damping=0.1), replace(TRACE, damping=0.1)):
        one, other = (fuse(each, [LAYER], projection) for each in (kronecker, diagonal))
        np.testing.assert_allclose(vector(one), vector(other), atol=1e-9)


# --- layers, other parameters, order ---------------------------------------------------


def test_layers_are_independent_and_biases_belong_to_them() -> None:
    rng = np.random.default_rng(5)
    conv, head = Block("conv", (2, 1, 2, 2), bias=True), Block("fc", (3, 5), bias=False)
    contributions = []
    for c in federation(3, 5, 3):
        model = {
            "conv.weight": torch.from_numpy(rng.standard_normal((2, 1, 2, 2))),
            "conv.bias": torch.from_numpy(rng.standard_normal(2)),
            **c.model,
        }
        factor = Kronecker(psd(rng, 5, 5), psd(rng, 2, 2))
        contributions.append(Contribution(1, model, {"conv": factor, **c.fisher}))
    fused = fuse(contributions, [conv, head], PLAIN)
    alone = fuse(contributions, [head], PLAIN)
    assert torch.equal(fused.model["fc.weight"], alone.model["fc.weight"])
    assert set(fused.solves) == {"conv", "fc"}
    # The convolution as the 2 x 5 matrix it is.
    as_linear = [
        client(
            torch.cat(
                [c.model["conv.weight"].reshape(2, 4), c.model["conv.bias"][:, None]], dim=1
            ),
            c.fisher["conv"],
        )
        for c in contributions
    ]
    w = fuse(as_linear, [Block("fc", (2, 5), bias=False)], PLAIN).model["fc.weight"]
    torch.testing.assert_close(fused.model["conv.weight"].reshape(2, 4), w[:, :4])
    torch.testing.assert_close(fused.model["conv.bias"], w[:, 4])
    assert fused.model["conv.weight"].shape == (2, 1, 2, 2)


def test_parameters_without_a_block_take_the_plain_mean_in_their_own_type() -> None:
    norms = [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 8.0])]
    contributions = [
        client(
            c.model["fc.weight"].float(),
            Kronecker(c.fisher["fc"].a.float(), c.fisher["fc"].g.float()),
            **{"norm.weight": norm},
        )
        for c, norm in zip(federation(2, 5, 3), norms, strict=True)
    ]
    fused = fuse(contributions, [LAYER], Projection())
    assert fused.model["norm.weight"].tolist() == [2.0, 5.0]
    assert {value.dtype for value in fused.model.values()} == {torch.float32}
    assert fused.model.keys() == contributions[0].model.keys()


def test_equal_subsets_give_equal_bits() -> None:
    for contributions in (federation(4, 2, 2), diagonals()):
        one, other = (fuse(contributions, [LAYER], Projection()) for _ in range(2))
        assert torch.equal(one.model["fc.weight"], other.model["fc.weight"])
        assert one.solves == other.solves


def test_the_order_of_clients_matters_to_rounding_only() -> None:
    contributions = federation(5, 5, 3)
    one, other = (
        fuse(each, [LAYER], Projection(rtol=1e-12))
        for each in (contributions, contributions[::-1])
    )
    np.testing.assert_allclose(vector(one), vector(other), atol=1e-9)


def test_contributions_are_left_alone() -> None:
    contributions = federation(3, 5, 3)
    before = [
        (c.model["fc.weight"].clone(), c.fisher["fc"].a.clone(), c.fisher["fc"].g.clone())
        for c in contributions
    ]
    fuse(contributions, [LAYER], Projection())
    for c, (w, a, g) in zip(contributions, before, strict=True):
        assert torch.equal(c.model["fc.weight"], w)
        assert torch.equal(c.fisher["fc"].a, a)
        assert torch.equal(c.fisher["fc"].g, g)


# --- what can go wrong -----------------------------------------------------------------


def test_an_empty_subset_is_refused() -> None:
    with pytest.raises(FusionError, match="empty"):
        fuse([], [LAYER], Projection())


def test_one_unconverged_layer_is_flagged_and_the_others_are_not() -> None:
    hard = Block("hard", (8, 12), bias=False)
    contributions = []
    for easy, c in zip(federation(4, 5, 3), federation(4, 12, 8, shape=(8, 12)), strict=True):
        steep = Kronecker(c.fisher["fc"].a ** 3, c.fisher["fc"].g)
        contributions.append(
            Contribution(
                1,
                {"hard.weight": c.model["fc.weight"], **easy.model},
                {
                    "hard": Kronecker(steep.a @ steep.a.T, steep.g),
                    # Identity: one step solves it.
                    "fc": Kronecker(*(torch.eye(n, dtype=torch.float64) for n in (5, 3))),
                },
            )
        )
    fused = fuse(contributions, [hard, LAYER], replace(PLAIN, max_iterations=3))
    assert fused.solves["fc"].converged
    stopped = fused.solves["hard"]
    assert not stopped.converged
    assert stopped.iterations == 3
    assert 1e-13 < stopped.residual < math.inf
