"""OTFusion: alignment by optimal transport."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from chains import ORDERS, Residual, bars, known, learned, learner, permuted, seeded, tiny
from torch import nn

from testbed.errors import FusionError
from testbed.fusion.averaging import weighted_mean
from testbed.fusion.chain import walk
from testbed.fusion.otfusion import COMBINATIONS, Switches, align, average, flops, fuse, transport
from testbed.fusion.rules import RULES
from testbed.learning.contribution import Contribution
from testbed.learning.evaluation import evaluate

BOTH = Switches(correction=True, past_correction=True)
RNG = np.random.default_rng(0)


def linear(w1, w2) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 2, bias=False))
    model[0].weight.data, model[2].weight.data = torch.tensor(w1), torch.tensor(w2)
    return model


def sent(model: nn.Module, samples: int) -> Contribution:
    return Contribution(samples, {k: v.clone() for k, v in model.state_dict().items()}, {})


def test_two_clients_by_hand() -> None:
    """The second client's neurons are the first's in reverse order, and a little off."""
    pivot = linear([[1.0, 0.0], [0.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]])
    other = linear([[0.0, 2.4], [1.4, 0.0]], [[0.4, 1.0], [1.0, 0.0]])
    layers = walk(pivot)
    # Squared distances of row 0 to the pivot's: 6.76, 0.16; of row 1: 0.16, 5.96. They cross.
    rows, targets = other[0].weight.detach(), pivot[0].weight.detach()
    torch.testing.assert_close(
        transport(rows, targets), torch.tensor([[0.0, 0.5], [0.5, 0.0]], dtype=torch.float64)
    )
    aligned = align(other.state_dict(), pivot.state_dict(), layers, BOTH)
    torch.testing.assert_close(aligned["0.weight"], torch.tensor([[1.4, 0.0], [0.0, 2.4]]))
    # Columns changed places, [[1, 0.4], [0, 1]], and the answers stay where they were.
    torch.testing.assert_close(aligned["2.weight"], torch.tensor([[1.0, 0.4], [0.0, 1.0]]))
    mean = average([sent(pivot, 3), sent(other, 1)], layers, BOTH)
    torch.testing.assert_close(mean["0.weight"], torch.tensor([[1.1, 0.0], [0.0, 2.1]]))
    torch.testing.assert_close(mean["2.weight"], torch.tensor([[1.0, 0.1], [0.0, 1.0]]))


def test_the_switches_by_hand() -> None:
    pivot = linear([[1.0, 0.0], [0.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]])
    other = linear([[0.0, 2.4], [1.4, 0.0]], [[0.4, 1.0], [1.0, 0.0]])
    layers = walk(pivot)

    def second(correction: bool, past: bool) -> list[list[float]]:
        by = Switches(correction, past)
        return align(other.state_dict(), pivot.state_dict(), layers, by)["2.weight"]

    # Columns stay, and the rows go by a map of the moved columns: the identity.
    torch.testing.assert_close(second(True, False), torch.tensor([[0.4, 1.0], [1.0, 0.0]]))
    # T holds halves: once for the columns, once for the rows.
    torch.testing.assert_close(second(False, True), torch.tensor([[0.25, 0.1], [0.0, 0.25]]))
    halves = second(False, False)
    assert sorted(halves.flatten().tolist()) == pytest.approx([0, 0.2, 0.5, 0.5])


def test_transport_is_the_cheapest_permutation() -> None:
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(rng.standard_normal((9, 4)))
    order = rng.permutation(9)
    map_ = transport(rows[order] + 1e-3, rows)
    expected = np.zeros((9, 9))
    expected[np.arange(9), order] = 1 / 9
    np.testing.assert_allclose(map_, expected, atol=1e-15)


@pytest.mark.parametrize("bias", [True, False])
def test_a_permuted_client_is_undone_exactly(bias: bool) -> None:
    model = seeded(lambda: tiny(bias)).double()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    other = permuted(state, ORDERS)
    x = torch.rand(4, 2, 6, 6, dtype=torch.float64)
    expected = model(x)
    model.load_state_dict(other)
    torch.testing.assert_close(model(x), expected)  # the same function
    assert not torch.equal(other["0.weight"], state["0.weight"])
    aligned = align(other, state, walk(model), BOTH)
    for name, value in state.items():
        torch.testing.assert_close(aligned[name], value, rtol=0, atol=1e-12)


@pytest.mark.parametrize("norm", [None, nn.BatchNorm2d])
def test_skip_paths_and_norms_follow(norm) -> None:
    """The two paths into a sum must be permuted alike; so must a norm's statistics."""
    model = seeded(lambda: Residual(norm)).double()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    if norm:
        values = np.random.default_rng(1).random((4, 4)) + 0.5
        for at, key in enumerate(("weight", "bias", "running_mean", "running_var")):
            state[f"norm.{key}"] = torch.from_numpy(values[at])
    narrow, wide = torch.tensor([2, 0, 3, 1]), torch.tensor([5, 0, 4, 2, 1, 3])
    other = {}
    for name, value in state.items():
        if name.endswith("tracked"):
            other[name] = value
            continue
        if name.split(".")[0] in ("stem", "same", "norm"):
            value = value[narrow]
        if name.split(".")[0] in ("wide", "short"):
            value = value[wide]
        if name in ("same.weight", "wide.weight", "short.weight"):
            value = value[:, narrow]
        other[name] = value[:, wide] if name == "answer.weight" else value
    x = torch.rand(3, 1, 8, 8, dtype=torch.float64)
    model.eval().load_state_dict(state)
    expected = model(x)
    model.load_state_dict(other)
    torch.testing.assert_close(model(x), expected)
    aligned = align(other, state, walk(model), BOTH)
    for name, value in state.items():
        torch.testing.assert_close(aligned[name], value, rtol=0, atol=1e-12)


def test_the_combination_is_chosen_by_held_out_pictures() -> None:
    model = seeded(learner)
    contributions = learned(model, [[0, 1, 2], [1, 2, 3]])
    network = known(model, (1, 8, 8), 4)
    fused = fuse(contributions, network, RNG)
    pictures = torch.cat([each.extra["holdout/x"] for each in contributions]).float() / 255
    labels = torch.cat([each.extra["holdout/y"] for each in contributions]).long()
    layers = walk(model)
    candidates = [average(contributions, layers, each) for each in COMBINATIONS]
    scores = [evaluate(model, each, pictures, labels).accuracy for each in candidates]
    assert evaluate(model, fused.model, pictures, labels).accuracy == max(scores)
    assert len(set(scores)) > 1
    best = candidates[int(np.argmax(scores))]
    assert all(torch.equal(fused.model[name], best[name]) for name in best)
    again = fuse(contributions, network, np.random.default_rng(9))
    assert all(torch.equal(fused.model[name], again.model[name]) for name in best)
    x, y = bars(400, [0, 1, 2, 3], 7)
    assert evaluate(model, fused.model, x, y).accuracy > 0.6


def test_permuted_clients_fuse_better_than_their_mean() -> None:
    """Averaging a network with its own permutation ruins it; OTFusion gives it back."""
    model = seeded(tiny).double()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.integers(0, 256, (60, 2, 6, 6), dtype=np.uint8))
    y = model(x.double() / 255).argmax(1).to(torch.uint8)
    held = {"holdout/x": x, "holdout/y": y}
    one = Contribution(5, {k: v.float() for k, v in state.items()}, {}, held)
    two = replace(one, model={k: v.float() for k, v in permuted(state, ORDERS).items()})
    model.float()
    fused = fuse([one, two], known(model, (2, 6, 6), 3), RNG).model
    for name in state:
        torch.testing.assert_close(fused[name], one.model[name], rtol=0, atol=1e-6)
        assert fused[name].dtype == torch.float32
    assert not torch.allclose(weighted_mean([one, two])["0.weight"], one.model["0.weight"])


def test_one_client_keeps_its_model() -> None:
    model = seeded(learner)
    (alone,) = learned(model, [[0, 1]], samples=40, epochs=1)
    fused = fuse([alone], known(model, (1, 8, 8), 4), RNG).model
    assert all(torch.equal(fused[name], value) for name, value in alone.model.items())


def test_refusals() -> None:
    model = seeded(learner)
    network = known(model, (1, 8, 8), 4)
    with pytest.raises(FusionError, match="no client contributed"):
        fuse([], network, RNG)
    nothing = {
        "holdout/x": torch.zeros(0, 1, 8, 8, dtype=torch.uint8),
        "holdout/y": torch.zeros(0, dtype=torch.uint8),
    }
    blind = Contribution(3, model.state_dict(), {}, nothing)
    with pytest.raises(FusionError, match=r"clients sent none; raise data\.holdout"):
        fuse([blind], network, RNG)


def test_registered_and_counted() -> None:
    assert RULES["otfusion"].statistic == "model+holdout"
    network = known(linear([[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]), (1, 1, 2), 2)
    # A layer: cost and rows 4*2*2*2, columns 2*2*2*2, transport 8. A picture: two layers of 8.
    assert flops(network, 3) == 4 * (2 * 2 * (32 + 16 + 8) + 500 * 16)
