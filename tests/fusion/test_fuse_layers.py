"""Whole models in the projection: layers, other parameters, the order of clients, refusals."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from quadratics import (
    LAYER,
    PLAIN,
    Projection,
    client,
    diagonals,
    federation,
    fuse,
    psd,
    vector,
)

from testbed.errors import FusionError
from testbed.learning.blocks import Block
from testbed.learning.contribution import Contribution
from testbed.learning.factors import Kronecker

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
