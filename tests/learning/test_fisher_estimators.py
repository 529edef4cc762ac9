"""The three estimators of the expectation over labels."""

import pytest
import torch
from nets import ESTIMATORS, KINDS, drawn, samples, seeded, stream, tensors, tiny
from torch.nn import functional

from testbed.learning import fisher as fisher_module
from testbed.learning.fisher import fisher

# --- the exact estimator ---------------------------------------------------------------


@pytest.mark.parametrize(
    "logits",
    [
        [0.0, 0.0, 0.0, 0.0],
        [1.0, -2.0, 0.5, 3.0],
        [200.0, 0.0, -200.0, 1.0],  # certain of a class
        [-300.0, -300.0, 0.0, 0.0],
        [0.0, 300.0, -300.0, -300.0],
    ],
)
def test_three_vectors_carry_the_covariance_of_four_labels(logits: list[float]) -> None:
    row = torch.tensor([logits])
    vectors = list(fisher_module._output_gradients(row, torch.tensor([0]), "exact", stream()))
    p = functional.softmax(row.double(), dim=1)[0]
    assert len(vectors) == 3
    covariance = sum(torch.outer(v[0], v[0]) for v in vectors).double()
    torch.testing.assert_close(covariance, p.diag() - torch.outer(p, p), rtol=1e-5, atol=1e-9)


# --- the sampled estimator -------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_sampled_is_empirical_with_the_labels_drawn(kind: str) -> None:
    model, state = seeded(tiny())
    pictures, labels = samples(30, (2, 5, 5), 3)
    sampled = fisher(model, state, pictures, labels, kind, "sampled", stream())
    labels = drawn(model, pictures)
    assert len(set(labels.tolist())) == 3
    empirical = fisher(model, state, pictures, labels, kind, "empirical", stream())
    for name in sampled:
        for one, other in zip(tensors(sampled[name]), tensors(empirical[name]), strict=True):
            assert torch.equal(one, other)


def test_sampled_is_unbiased() -> None:
    """The mean of 400 draws lies within five standard errors of the exact Fisher."""
    model, state = seeded(tiny())
    pictures, labels = samples(5, (2, 5, 5), 3)
    rng = stream()
    draws = {name: [] for name in ("0", "3", "5")}
    for _ in range(400):
        for name, factor in fisher(
            model, state, pictures, labels, "diagonal", "sampled", rng
        ).items():
            draws[name].append(factor.f)
    exact = fisher(model, state, pictures, labels, "diagonal", "exact", rng)
    for name, values in draws.items():
        stack = torch.stack(values).double()
        error = stack.std(dim=0) / len(values) ** 0.5
        off = (stack.mean(dim=0) - exact[name].f.double()).abs()
        assert (off <= 5 * error + 1e-7).all()
        assert (off.norm() / exact[name].f.norm()) < 0.1


def test_estimators_differ_and_only_the_empirical_one_sees_labels() -> None:
    model, state = seeded(tiny())
    pictures, labels = samples(10, (2, 5, 5), 3)
    for estimator in ESTIMATORS:
        f, shifted = (
            fisher(model, state, pictures, y, "diagonal", estimator, stream())["3"].f
            for y in (labels, (labels + 1) % 3)
        )
        assert torch.equal(f, shifted) == (estimator != "empirical")
