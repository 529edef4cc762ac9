"""Reduced forms of Fisher factors: positive semi-definite, near the original, of known size."""

import numpy as np
import pytest
import torch
from contributions import contribution, payload
from torch import Tensor, nn

from testbed.errors import FusionError
from testbed.fusion.fsosa import Projection, fuse
from testbed.learning.acceptance import inspect
from testbed.learning.blocks import Block, blocks
from testbed.learning.compression import (
    Upload,
    decode,
    decode_diagonal,
    encode,
    encode_diagonal,
)
from testbed.learning.contribution import (
    Contribution,
    contribution_bytes,
    deserialise,
    received,
    serialise,
)
from testbed.learning.factors import Diagonal, Kronecker
from testbed.learning.fisher import fisher
from testbed.learning.models import build

HALF, LOW = Upload("half"), Upload("low-rank", rank=8)
FORMS = [Upload(), HALF, LOW]
LENET = (1, 28, 28)


def steep(size: int, rank: int, decades: float, seed: int = 0) -> Tensor:
    """A float32 factor of given rank whose eigenvalues and diagonal span decades."""
    rng = np.random.default_rng(seed)
    half = rng.standard_normal((rank, size)) * 10 ** rng.uniform(-decades / 2, 0, (rank, 1))
    half *= 10 ** rng.uniform(-decades / 2, 0, (1, size))
    return torch.from_numpy(half.T @ half).float()


def sent(factor: Tensor, upload: Upload) -> Tensor:
    return decode("a", encode("a", factor, upload))


# --- one factor ------------------------------------------------------------------------


@pytest.mark.parametrize("upload", FORMS)
@pytest.mark.parametrize(("size", "rank"), [(1, 1), (20, 20), (60, 7), (130, 130)])
@pytest.mark.parametrize("decades", [0, 6])
def test_what_is_received_is_symmetric_and_semidefinite(upload, size, rank, decades) -> None:
    factor = steep(size, rank, decades)
    got = sent(factor, upload)
    assert got.dtype == factor.dtype
    assert torch.equal(got, got.T)
    # Down to the rounding of float32, which the sent factor has too.
    assert torch.linalg.eigvalsh(got.double())[0] >= -1e-6 * got.norm()


def test_rounding_the_factor_itself_would_not_do() -> None:
    """Why a root is sent: the same bits spent on the factor make it indefinite."""
    factor = steep(60, 7, 2)
    rounded = (factor / factor.max()).half().double() * factor.max()
    assert torch.linalg.eigvalsh(rounded)[0] < -1e-5 * rounded.norm()


@pytest.mark.parametrize("decades", [0, 6, 12])
def test_half_is_near_entry_by_entry(decades: float) -> None:
    factor = steep(60, 60, decades)
    got = sent(factor, HALF)
    lengths = factor.diagonal().sqrt()
    assert ((got - factor).abs() <= 2**-10 * torch.outer(lengths, lengths)).all()
    torch.testing.assert_close(got.diagonal(), factor.diagonal(), rtol=1e-6, atol=0)


def test_half_by_hand() -> None:
    """[[4, 2], [2, 2]] = U'U with U = [[2, 1], [0, 1]]; columns 2 (1, 0) and 2^.5 (1, 1) 2^-.5."""
    parts = encode("a", torch.tensor([[4.0, 2.0], [2.0, 2.0]]), HALF)
    assert parts["a.root"].dtype == torch.float16
    np.testing.assert_allclose(parts["a.root"].abs(), [1, 0.5**0.5, 0.5**0.5], rtol=2**-11)
    np.testing.assert_allclose(parts["a.scale"], [2, 2**0.5], rtol=2**-11)


def test_low_rank_keeps_the_leading_eigenpairs() -> None:
    factor = steep(40, 40, 4)
    values, vectors = torch.linalg.eigh(factor.double())
    best = (vectors[:, -8:] * values[-8:]) @ vectors[:, -8:].T
    torch.testing.assert_close(sent(factor, LOW).double(), best, rtol=1e-5, atol=1e-8)
    assert encode("a", factor, LOW)["a.leading"].shape == (8, 40)


def test_a_factor_of_low_rank_survives_low_rank() -> None:
    factor = steep(40, 8, 1)
    torch.testing.assert_close(sent(factor, LOW), factor, rtol=1e-5, atol=1e-6)


def test_small_factors_stay_full_under_low_rank() -> None:
    """A triangle of 15 has 120 numbers, as many as 8 rows of 15; one of 16 has more, 136."""
    assert list(encode("a", steep(15, 15, 0), LOW)) == ["a"]
    assert list(encode("a", steep(16, 16, 0), LOW)) == ["a.leading"]


@pytest.mark.parametrize("upload", FORMS)
def test_zero_stays_zero(upload: Upload) -> None:
    assert float(sent(torch.zeros(30, 30), upload).abs().max()) == 0
    f = torch.zeros(3, 4)
    assert torch.equal(decode_diagonal("f", encode_diagonal("f", f, upload)), f)


def test_a_dead_input_does_not_disturb_the_others() -> None:
    factor = steep(20, 20, 2)
    factor[3], factor[:, 3] = 0, 0
    got = sent(factor, HALF)
    assert float(got[3].abs().max()) == 0
    assert float((got - factor).norm() / factor.norm()) < 2**-10


def test_half_of_a_diagonal_is_near_and_not_negative() -> None:
    f = torch.from_numpy(10 ** np.random.default_rng(0).uniform(-12, 3, (30, 40))).float()
    got = decode_diagonal("f", encode_diagonal("f", f, HALF))
    assert (got >= 0).all()
    large = f > 1e-8 * f.max()
    torch.testing.assert_close(got[large], f[large], rtol=2**-9, atol=0)
    assert ((got - f).abs() <= 1e-11 * f.max())[~large].all()
    assert torch.equal(decode_diagonal("f", encode_diagonal("f", f, LOW)), f)


# --- the message -----------------------------------------------------------------------


@pytest.mark.parametrize("upload", FORMS)
@pytest.mark.parametrize("kind", ["kfac", "diagonal"])
def test_bytes_are_foretold(kind: str, upload: Upload) -> None:
    model = build("lenet", LENET, 10, 0)
    foretold = contribution_bytes(model.state_dict(), blocks(model), kind, upload)
    for samples, seed in ((3, 0), (20, 1)):
        assert len(serialise(contribution(kind, samples, seed), upload)) == foretold


def test_bytes_are_foretold_with_normalisation() -> None:
    model = nn.Sequential(nn.Conv2d(1, 40, 3), nn.BatchNorm2d(40), nn.Flatten(), nn.Linear(40, 3))
    state = dict(model.state_dict())
    pictures, labels = torch.rand(4, 1, 3, 3), torch.tensor([0, 1, 2, 0])
    for upload in FORMS:
        factors = fisher(model, state, pictures, labels, "kfac", "exact", np.random.default_rng(0))
        message = serialise(Contribution(4, state, factors), upload)
        assert len(message) == contribution_bytes(state, blocks(model), "kfac", upload)
        got = deserialise(message)
        assert isinstance(got.fisher["1"], Diagonal)
        assert got.model["1.num_batches_tracked"].dtype == torch.int64


def test_bytes_by_hand() -> None:
    """LeNet's triangles hold 55,376 + 11,042 numbers, its factors have 885 rows in all."""
    rows = 25 + 150 + 256 + 120 + 84 + 6 + 16 + 120 + 84 + 10
    weights, triangles = 44_190, 55_376 + 11_042
    assert payload(serialise(contribution(), HALF)) == 4 * weights + 2 * triangles + 4 * rows + 8
    low = 8 * (25 + 150 + 256 + 120 + 84 + 16 + 120 + 84) + 6 * 7 // 2 + 10 * 11 // 2
    assert payload(serialise(contribution(), LOW)) == 4 * (weights + low) + 8
    diagonal = payload(serialise(contribution("diagonal"), HALF))
    assert diagonal == 4 * weights + 2 * weights + 4 * 5 + 8


@pytest.mark.parametrize("upload", FORMS)
@pytest.mark.parametrize("kind", ["kfac", "diagonal"])
def test_the_model_arrives_in_full_and_the_fisher_nearly(kind: str, upload: Upload) -> None:
    one = contribution(kind)
    got = received(one, upload)
    assert got.samples == one.samples
    assert all(torch.equal(got.model[name], one.model[name]) for name in one.model)
    assert got.fisher.keys() == one.fisher.keys()
    if upload.form == "low-rank":
        return
    for name, factor in one.fisher.items():
        pairs = (
            [(got.fisher[name].a, factor.a), (got.fisher[name].g, factor.g)]
            if isinstance(factor, Kronecker)
            else [(got.fisher[name].f, factor.f)]
        )
        for ours, theirs in pairs:
            assert float((ours - theirs).norm() / theirs.norm()) < 1e-3


@pytest.mark.parametrize("upload", FORMS)
@pytest.mark.parametrize("kind", ["kfac", "diagonal"])
def test_the_coordinator_accepts_reduced_forms(kind: str, upload: Upload) -> None:
    model = build("lenet", LENET, 10, 0)
    got = received(contribution(kind), upload)
    assert inspect(got, blocks(model), model.state_dict(), kind) is None


@pytest.mark.parametrize("upload", [HALF, LOW])
def test_a_diverged_contribution_arrives_as_such(upload: Upload) -> None:
    one = contribution()
    one.fisher["0"].a[0, 0] = torch.nan
    assert not received(one, upload).finite()


@pytest.mark.parametrize("upload", [HALF, LOW])
def test_messages_repeat_bit_for_bit(upload: Upload) -> None:
    assert serialise(contribution(), upload) == serialise(contribution(), upload)


@pytest.mark.parametrize("upload", [HALF, LOW])
def test_truncated_messages_are_refused(upload: Upload) -> None:
    message = serialise(contribution(), upload)
    for length in (0, 8, len(message) // 2, len(message) - 1):
        with pytest.raises(FusionError, match="not a contribution"):
            deserialise(message[:length])


# --- fusion of what was received ---------------------------------------------------------


@pytest.mark.parametrize("upload", FORMS)
@pytest.mark.parametrize("rank", [24, 5])
def test_b_is_formed_from_what_was_received(upload: Upload, rank: int) -> None:
    """Without damping F delta = r is solvable only if r = sum F_k (W_k - mean) is in range(F).

    Reduced or not, and singular or not, the residual reaches the tolerance; the reference
    uses the received factors throughout.
    """
    rng = np.random.default_rng(1)
    clients = [
        received(
            Contribution(
                1,
                {"fc.weight": torch.from_numpy(rng.standard_normal((4, 24))).float()},
                {"fc": Kronecker(steep(24, rank, 1, seed), steep(4, 4, 0.5, seed + 100))},
            ),
            upload,
        )
        for seed in range(3)
    ]
    projection = Projection(output_damping=0.0, rtol=1e-5, max_iterations=5000)
    fused = fuse(clients, [Block("fc", (4, 24), bias=False)], projection)
    assert fused.solves["fc"].converged
    w = [each.model["fc.weight"].double().numpy().reshape(-1) for each in clients]
    f = [
        np.kron(each.fisher["fc"].g.double().numpy(), each.fisher["fc"].a.double().numpy())
        for each in clients
    ]
    r = sum(block @ (own - sum(w) / 3) for block, own in zip(f, w, strict=True))
    delta = fused.model["fc.weight"].double().numpy().reshape(-1) - sum(w) / 3
    assert np.linalg.norm(sum(f) @ delta - r) < 2e-5 * np.linalg.norm(r)
