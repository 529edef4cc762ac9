"""DENSE: distillation of an ensemble on pictures that a generator draws."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from chains import Residual, halves, known, seeded, tiny
from torch import nn
from torch.nn import functional

from testbed.errors import FusionError
from testbed.fusion.averaging import weighted_mean
from testbed.fusion.dense import (
    Distillation,
    Ensemble,
    _disagreement,
    _distances,
    _distil,
    draw,
    flops,
    fuse,
)
from testbed.fusion.generator import Generator, cropped, flipped
from testbed.fusion.rules import RULES
from testbed.learning.contribution import Contribution
from testbed.learning.evaluation import evaluate

QUICK = Distillation(epochs=2, steps=3, batch=16, nz=8, ngf=4)
LEARNING = Distillation(steps=30, batch=64, nz=32, ngf=8)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def source(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sent(model: nn.Module, samples: int) -> Contribution:
    return Contribution(samples, {k: v.clone() for k, v in model.state_dict().items()}, {})


def test_the_ensemble_by_hand() -> None:
    """Logits, not probabilities, are averaged by data weight."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False))
    one, other = (nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False)) for _ in range(2))
    one[1].weight.data = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    other[1].weight.data = torch.tensor([[4.0, 0.0], [0.0, -3.0]])
    ensemble = Ensemble(model, [sent(one, 3), sent(other, 1)])
    logits = ensemble(torch.tensor([[[[2.0, 8.0]]]]))
    assert logits.tolist() == [[0.75 * 2 + 0.25 * 8, 0.75 * 8 - 0.25 * 24]]


def test_the_adversarial_term_by_hand() -> None:
    """KL(teacher || student), of the rows on which their answers differ."""
    teacher = torch.tensor([[3.0, 1.0], [1.0, 9.0]]).log()  # 3/4, 1/4
    student = torch.tensor([[1.0, 3.0], [0.1, 9.0]]).log()  # 1/4, 3/4; the second agrees
    kl = 0.75 * np.log(3) + 0.25 * np.log(1 / 3)
    assert float(_disagreement(teacher, student)) == pytest.approx(kl / 2)


def test_two_clients_by_hand() -> None:
    """A linear ensemble is the mean model: the student has nothing left to learn."""
    make = lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 2, bias=False))  # noqa: E731
    clients = [sent(seeded(make, seed), samples) for seed, samples in ((1, 3), (2, 1))]
    fused = fuse(clients, known(make(), (1, 4, 4), 2), rng(5), QUICK).model["1.weight"]
    by_hand = 0.75 * clients[0].model["1.weight"] + 0.25 * clients[1].model["1.weight"]
    torch.testing.assert_close(fused, by_hand, rtol=0, atol=1e-6)


def test_one_step_of_the_student_by_hand() -> None:
    """Softmax regression's gradient: T times the difference of the tempered answers."""
    make = lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False))  # noqa: E731
    network = known(make(), (1, 2, 2), 2)
    teacher, student = seeded(make, 1), seeded(make, 2)
    ensemble = Ensemble(network.model, [sent(teacher, 1)])
    x = torch.rand(6, 1, 2, 1).expand(6, 1, 2, 2)  # their own mirror images
    answers = [functional.softmax(net(x) / 20, dim=1).detach() for net in (student, teacher)]
    gradient = 20 * (answers[0] - answers[1]).T @ x.flatten(1) / 6
    expected = student[1].weight.detach() - 0.5 * gradient
    optimiser = torch.optim.SGD(student.parameters(), lr=0.5)
    _distil(student, ensemble, x, optimiser, source(), QUICK)
    assert float(gradient.abs().min()) > 0.001
    torch.testing.assert_close(student[1].weight.detach(), expected, rtol=1e-4, atol=1e-6)


def test_two_clients_with_disjoint_classes() -> None:
    """The student moves towards the ensemble, and beats the mean it started from."""
    model, contributions, x, y = halves()
    fused = fuse(contributions, known(model, (1, 8, 8), 10), rng(1), LEARNING).model
    mean, ensemble = weighted_mean(contributions), Ensemble(model, contributions)
    with torch.no_grad():
        target = ensemble(x)

    def distance(state) -> float:
        model.load_state_dict(dict(state))
        with torch.no_grad():
            return float((model(x) - target).square().mean())

    assert distance(fused) < 0.5 * distance(mean)
    accuracy = [evaluate(model, state, x, y).accuracy for state in (fused, mean)]
    assert accuracy[0] > accuracy[1] + 0.05


def test_the_same_again_and_no_chance_elsewhere() -> None:
    model, network = seeded(tiny), known(seeded(tiny), (2, 6, 6), 3)
    clients = [sent(seeded(tiny, seed), 5) for seed in (1, 2)]
    before, training = torch.get_rng_state(), model.training
    fused = fuse(clients, network, rng(3), QUICK).model
    again = fuse(clients, network, rng(3), QUICK).model
    other = fuse(clients, network, rng(4), QUICK).model
    assert flops(network, 2, QUICK) > 0
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(fused[name], again[name]) for name in fused)
    assert not all(torch.equal(fused[name], other[name]) for name in fused)
    assert (model.training, fused.keys()) == (training, clients[0].model.keys())
    assert not any(value.requires_grad for value in fused.values())
    assert all(each.requires_grad and each.grad is None for each in network.model.parameters())


def test_pictures_get_the_labels_they_are_drawn_for() -> None:
    """Training lowers the ensemble's cross-entropy: most pictures end as what was asked."""
    model, contributions, _, _ = halves()
    ensemble = Ensemble(model, contributions)
    by = replace(LEARNING, steps=40, adversarial=0.0)
    generator = Generator(by.nz, by.ngf, (1, 8, 8))

    def loss(steps: int) -> float:
        few = replace(by, steps=steps)
        pictures = draw(generator, ensemble, model, 10, source(2), few)
        labels = torch.randint(10, (by.batch,), generator=noise_drawn(by))
        with torch.no_grad():
            return float(functional.cross_entropy(ensemble(pictures), labels))

    assert loss(40) < 0.8 * loss(1)


def noise_drawn(by: Distillation) -> torch.Generator:
    """The state of the source when labels are drawn: after the weights and the noise."""
    seed = source(2)
    Generator(by.nz, by.ngf, (1, 8, 8)).reset(seed)
    torch.randn(by.batch, by.nz, 1, 1, generator=seed)
    return seed


def test_batch_statistics_by_hand() -> None:
    norm = nn.BatchNorm2d(2).eval()
    norm.running_mean, norm.running_var = torch.tensor([1.0, 0.0]), torch.tensor([1.0, 4.0])
    x = torch.zeros(1, 2, 1, 2)
    x[0, 0, 0] = torch.tensor([2.0, 6.0])  # mean 4, variance 4
    with _distances([norm]) as found:
        norm(x)
        # Means are off by (3, 0), variances by (3, -4).
        assert [float(each) for each in found] == pytest.approx([3 + 5])
    norm(x)
    assert len(found) == 1  # nothing listens any more


def test_networks_with_batch_norm_use_their_statistics() -> None:
    make = lambda: Residual(nn.BatchNorm2d)  # noqa: E731
    network = known(seeded(make), (1, 8, 8), 3)
    clients = [sent(seeded(make, seed), 5) for seed in (1, 2)]
    assert len(Ensemble(network.model, clients).norms) == 2
    fused = fuse(clients, network, rng(3), QUICK).model
    without = fuse(clients, network, rng(3), replace(QUICK, statistics=0.0)).model
    assert not torch.equal(fused["stem.weight"], without["stem.weight"])
    assert int(fused["norm.num_batches_tracked"]) == 1 + 2  # batches of 16 in two epochs


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 8, 8), (2, 6, 9)])
def test_the_generator_draws_pictures_of_any_size(shape) -> None:
    generator = Generator(8, 4, shape)
    generator.reset(source())
    pictures = generator(torch.randn(5, 8, 1, 1)).detach()
    assert pictures.shape == (5, *shape)
    assert 0 < float(pictures.min()) < float(pictures.max()) < 1
    weights = torch.cat([p.flatten() for n, p in generator.named_parameters() if p.dim() > 1])
    assert float(weights.detach().std()) == pytest.approx(0.02, rel=0.1)


def test_the_published_generator_has_its_size() -> None:
    """Linear 256 -> 128x7x7, norms of 256, 256 and 128, convolutions 128-128-64-1."""
    expected = 257 * 6272 + 256 + 9 * 128 * 128 + 256 + 9 * 128 * 64 + 128 + 9 * 64 + 1
    by = Distillation()
    made = Generator(by.nz, by.ngf, (1, 28, 28))
    assert sum(each.numel() for each in made.parameters()) == expected
    assert (by.epochs, by.steps, by.batch, by.temperature) == (20, 30, 256, 20.0)


def test_pictures_are_mirrored_and_shifted() -> None:
    x = torch.rand(200, 2, 8, 12)
    mirrored = flipped(x, source())
    moved = [not torch.equal(one, other) for one, other in zip(x, mirrored, strict=True)]
    assert 70 < sum(moved) < 130
    assert torch.equal(mirrored[moved.index(True)], x[moved.index(True)].flip(2))
    shifted = cropped(x, source())
    padded = functional.pad(x, (2, 2, 2, 2))
    offsets = set()
    for one, big in zip(shifted, padded, strict=True):
        offsets |= {
            (top, left)
            for top in range(5)
            for left in range(5)
            if torch.equal(one, big[:, top : top + 8, left : left + 12])
        }
    assert len(offsets) == 25


def test_refusals() -> None:
    network = known(seeded(tiny), (2, 6, 6), 3)
    with pytest.raises(FusionError, match="no client contributed"):
        fuse([], network, rng(), QUICK)
    clients = [sent(seeded(tiny, seed), 5) for seed in (1, 2)]
    with pytest.raises(FusionError, match=r"dense diverged.*lower learning\.lr") as caught:
        fuse(clients, network, rng(), replace(QUICK, lr=1e30))
    assert "\n" not in str(caught.value)


def test_registered_and_counted() -> None:
    assert RULES["dense"].statistic == "model"
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    # Forward: linear 2*8*8, convolutions of 2x2 and 4x4 pixels and the last one.
    generator = 2 * 8 * 8 + 2 * 9 * (8 * 8 * 4 + 8 * 4 * 16 + 4 * 1 * 16)
    client, drawn, seen = 2 * 16 * 2, 2 * 3 * 16, 16 * 3
    expected = drawn * (3 * generator + 2 * 4 * client) + seen * 6 * client
    assert flops(known(model, (1, 4, 4), 2), 3, QUICK) == expected
