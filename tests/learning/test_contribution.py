"""The message a client sends: exact, packed, of one size, and refused when broken."""

import json
import struct

import pytest
import torch
from contributions import contribution, payload
from safetensors.torch import save

from testbed.errors import FusionError
from testbed.learning.blocks import blocks
from testbed.learning.contribution import (
    Contribution,
    contribution_bytes,
    deserialise,
    deserialise_model,
    serialise,
    serialise_model,
)
from testbed.learning.fisher import Diagonal, Kronecker
from testbed.learning.models import build

KINDS = ("kfac", "diagonal")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["lenet", "small-cnn"])
def test_round_trip_is_bit_exact(kind: str, name: str) -> None:
    sent = contribution(kind, name=name)
    received = deserialise(serialise(sent))
    assert received.samples == sent.samples
    assert received.model.keys() == sent.model.keys()
    assert all(torch.equal(received.model[key], sent.model[key]) for key in sent.model)
    assert received.fisher.keys() == sent.fisher.keys()
    for block, factor in sent.fisher.items():
        other = received.fisher[block]
        if isinstance(factor, Kronecker):
            assert torch.equal(other.a, factor.a)
            assert torch.equal(other.g, factor.g)
        else:
            assert torch.equal(other.f, factor.f)


def test_not_even_the_sign_of_a_zero_is_lost() -> None:
    minus = torch.full((3, 3), -0.0)
    sent = Contribution(1, {}, {"b": Kronecker(minus, minus), "c": Diagonal(minus.clone())})
    received = deserialise(serialise(sent))
    assert serialise(received) == serialise(sent)
    assert received.fisher["b"].a.signbit().all()


def test_a_model_alone_goes_round_too() -> None:
    model = contribution("diagonal").model
    message = serialise_model(model)
    received = deserialise_model(message)
    assert payload(message) == 4 * 44_190
    assert received.keys() == model.keys()
    assert all(torch.equal(received[key], model[key]) for key in model)


def test_bytes_by_hand() -> None:
    """LeNet: 44,190 weights; a triangle of k has k (k + 1) / 2 numbers; 8 bytes for n."""
    a = 25 * 26 // 2 + 150 * 151 // 2 + 256 * 257 // 2 + 120 * 121 // 2 + 84 * 85 // 2
    g = 6 * 7 // 2 + 16 * 17 // 2 + 120 * 121 // 2 + 84 * 85 // 2 + 10 * 11 // 2
    assert (a, g) == (55_376, 11_042)
    assert payload(serialise(contribution("kfac"))) == 4 * (44_190 + a + g) + 8
    assert payload(serialise(contribution("diagonal"))) == 4 * (44_190 + 44_190) + 8


@pytest.mark.parametrize("kind", KINDS)
def test_every_contribution_of_a_run_has_the_size_foretold(kind: str) -> None:
    model = build("lenet", (1, 28, 28), 10, 0)
    foretold = contribution_bytes(model.state_dict(), blocks(model), kind)
    for samples, seed in ((1, 0), (7, 1)):
        assert len(serialise(contribution(kind, samples, seed))) == foretold
    some = contribution(kind)
    assert len(serialise(Contribution(10**9, some.model, some.fisher))) == foretold


def test_equal_contributions_have_equal_messages() -> None:
    assert serialise(contribution("kfac")) == serialise(contribution("kfac"))


@pytest.mark.parametrize("kind", KINDS)
def test_truncated_messages_are_refused(kind: str) -> None:
    message = serialise(contribution(kind))
    (header,) = struct.unpack("<Q", message[:8])
    for length in (0, 7, 8, 8 + header // 2, 8 + header, len(message) - 1):
        with pytest.raises(FusionError, match="not a contribution"):
            deserialise(message[:length])


@pytest.mark.parametrize(
    "message",
    [
        b"hello, this is not a message",
        json.dumps({"samples": 3}).encode(),
        serialise_model({"w": torch.zeros(3)}),
        save({"samples": torch.tensor([1]), "fisher.a/x": torch.zeros(3)}),
        save({"samples": torch.tensor([1, 2])}),
        save(
            {
                "samples": torch.tensor([1]),
                "fisher.a/x": torch.zeros(4),  # no triangle has four numbers
                "fisher.g/x": torch.zeros(3),
            }
        ),
    ],
    ids=["text", "json", "model only", "no G", "two sizes", "no triangle"],
)
def test_foreign_messages_are_refused_in_one_line(message: bytes) -> None:
    with pytest.raises(FusionError, match="not a contribution") as caught:
        deserialise(message)
    assert "\n" not in str(caught.value)
