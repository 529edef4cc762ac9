"""The projection onto {F W = b} with Kronecker blocks, against `numpy.linalg`."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from quadratics import (
    LAYER,
    PLAIN,
    TRACE,
    Projection,
    client,
    dense,
    federation,
    fuse,
    psd,
    steep,
    traces,
    vector,
)

from testbed.learning.blocks import Block
from testbed.learning.factors import Kronecker


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
@pytest.mark.parametrize("normalise", [0.0, 1.0])
def test_damped_solution_equals_the_dense_one(damping, rank_a, rank_g, normalise) -> None:
    """Solve (F + tau I) delta = r with tau = c tr(F) / (o i)."""
    contributions = federation(3, rank_a, rank_g)
    weights = [1 / trace for trace in traces(contributions)] if normalise == 1.0 else None
    F, mean, r = dense(contributions, weights)
    tau = damping * np.trace(F) / 15
    if normalise == 1.0:
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


@pytest.mark.parametrize(
    ("clients", "shape", "decades", "rank"),
    [(5, (20, 60), 6, 60), (5, (20, 60), 6, 12), (10, (32, 60), 6, 30), (3, (4, 300), 8, 20)],
    ids=["full rank", "low rank", "many clients", "wide"],
)
@pytest.mark.parametrize(("damping", "error"), [(1.0, 1e-5), (0.1, 1e-4), (1e-3, 5e-3)])
@pytest.mark.parametrize("normalise", [0.0, 1.0])
def test_layers_of_real_size_and_steep_spectra(
    clients, shape, decades, rank, damping, error, normalise
) -> None:
    contributions = steep(clients, shape, decades, rank)
    weights = [1 / trace for trace in traces(contributions)] if normalise == 1.0 else None
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
    projection = Projection(normalise=0.0, rtol=1e-10)
    one, other = (fuse(steep(5, (20, 60), 3, 60, s), [block], projection) for s in (1.0, scale))
    assert other.solves["fc"].converged
    np.testing.assert_allclose(vector(other), vector(one), atol=1e-8)


def test_a_solve_that_stops_early_says_how_far_it_came() -> None:
    contributions = steep(5, (20, 60), 6, 12)
    F, mean, r = dense(contributions)
    for damping in (0.0, 1e-6):
        projection = Projection(normalise=0.0, damping=damping, max_iterations=20)
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
    damped = F + 0.2 * np.trace(F) / 15 * np.eye(15)
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
