"""What weighs how much in the projection: normalised clients, and diagonal blocks."""

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
    diagonals,
    federation,
    fuse,
    traces,
    vector,
)

from testbed.fusion import fsosa
from testbed.learning.blocks import Block
from testbed.learning.contribution import Contribution
from testbed.learning.factors import Diagonal, Kronecker

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
    plain = replace(projection, normalise=0.0)
    one, other = (vector(fuse(each, [LAYER], plain)) for each in (scaled, contributions))
    assert np.abs(one - other).max() > 1e-3


@pytest.mark.parametrize("normalise", [0.0, 1.0])
@pytest.mark.parametrize("damping", [0.0, 0.1])
def test_a_client_without_information_counts_in_the_mean_only(normalise, damping) -> None:
    contributions = federation(2, 5, 3)
    zero = Kronecker(*(torch.zeros(n, n, dtype=torch.float64) for n in (5, 3)))
    contributions.append(client(torch.ones(3, 5, dtype=torch.float64), zero))
    weights = [1.0, 1.0, 0.0]
    if normalise == 1.0:
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


@pytest.mark.parametrize("normalise", [0.0, 1.0])
@pytest.mark.parametrize("damping", [0.0, 1e-3, 0.1])
def test_diagonal_is_the_dense_solution(normalise: float, damping: float) -> None:
    contributions = diagonals(1)
    f = np.stack([c.fisher["fc"].f.numpy().reshape(-1) for c in contributions])
    w = np.stack([c.model["fc.weight"].numpy().reshape(-1) for c in contributions])
    if normalise == 1.0:
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


# --- the output layer ------------------------------------------------------------------


def test_the_output_layer_has_a_damping_of_its_own() -> None:
    """The same block is damped by c in the middle and by the output's c at the end."""
    contributions = [
        Contribution(
            1,
            {"fc.weight": c.model["fc.weight"], "out.weight": c.model["fc.weight"]},
            {"fc": c.fisher["fc"], "out": c.fisher["fc"]},
        )
        for c in federation(3, 5, 3)
    ]
    F, mean, r = dense(contributions)
    layers = [LAYER, Block("out", (3, 5), bias=False)]
    projection = fsosa.Projection(damping=0.1, output_damping=2.0, rtol=1e-13)
    fused = fsosa.fuse(contributions, layers, projection).model
    for name, c in (("fc.weight", 0.1), ("out.weight", 2.0)):
        tau = c * np.trace(F) / 15
        expected = mean + np.linalg.solve(F + tau * np.eye(15), r)
        np.testing.assert_allclose(fused[name].reshape(-1).numpy(), expected, atol=1e-9)
