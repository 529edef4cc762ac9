"""RegMean."""

import numpy as np
import pytest
import torch
from federated import RNG, has, only, weights
from quadratics import psd

from testbed.fusion import fsosa
from testbed.fusion.regmean import fuse, merge
from testbed.learning.factors import Kronecker


def test_two_clients_by_hand() -> None:
    """a = 1/2, as much data each: Gamma_1 = (2 1; 1 2) becomes (2 .5; .5 2), Gamma_2 is I.

    W_1 Gamma_1 + W_2 Gamma_2 = (1, 0) Gamma_1 + (0, 1) = (2, 1.5), and the inverse of
    (3 .5; .5 3) is (3 -.5; -.5 3) / 8.75: W = (5.25, 3.5) / 8.75 = (0.6, 0.4).
    """
    clients = [
        has([[1.0, 0.0]], gram__fc=[[2.0, 1.0], [1.0, 2.0]]),
        has([[0.0, 1.0]], gram__fc=[[1.0, 0.0], [0.0, 1.0]]),
    ]
    got = weights(merge(clients, only(1, 2).blocks, a=0.5))
    assert got[0].tolist() == pytest.approx([0.6, 0.4])


def test_it_answers_like_pooled_least_squares() -> None:
    """With a = 1 it minimises the summed squared distance to the clients' answers."""
    rng = np.random.default_rng(0)
    clients, inputs, answers = [], [], []
    for n in (30, 7, 50):
        x, w = rng.standard_normal((n, 5)), rng.standard_normal((3, 5))
        clients.append(has(w.tolist(), n, gram__fc=x.T @ x / n))
        inputs.append(x)
        answers.append(x @ w.T)
    expected = np.linalg.lstsq(np.concatenate(inputs), np.concatenate(answers), rcond=None)[0].T
    got = weights(merge(clients, only(3, 5).blocks, a=1.0))
    np.testing.assert_allclose(got, expected, atol=1e-12)


def test_it_is_f_sosa_with_identity_for_g() -> None:
    rng = np.random.default_rng(1)
    network, clients = only(3, 5), []
    for n in (4, 9):
        gram = psd(rng, 5, 5)
        fisher = Kronecker(a=n * gram, g=torch.eye(3, dtype=torch.float64))
        clients.append(has(rng.standard_normal((3, 5)).tolist(), n, fisher, gram__fc=gram))
    ours = weights(merge(clients, network.blocks, a=1.0))
    plain = fsosa.Projection(damping=0.0, output_damping=0.0, rtol=1e-13)
    theirs = weights(fsosa.fuse(clients, network.blocks, plain).model)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


def test_a_dead_input_gets_weight_zero() -> None:
    gram = [[1.0, 0.0], [0.0, 0.0]]
    clients = [has([[1.0, 7.0]], gram__fc=gram), has([[3.0, 9.0]], gram__fc=gram)]
    assert weights(merge(clients, only(1, 2).blocks, a=0.9))[0].tolist() == [2.0, 0.0]


@pytest.mark.parametrize("right", [0.1, 0.9])
def test_held_out_pictures_choose_a(right) -> None:
    """Pictures are labelled by the model of one a, and that one is chosen."""
    rng = np.random.default_rng(8)
    network, clients = only(3, 4), []
    x = torch.from_numpy(rng.integers(0, 256, (200, 1, 1, 4))).byte()
    for _ in range(2):
        gram = psd(rng, 4, 2)
        clients.append(has((4 * rng.standard_normal((3, 4))).tolist(), 5, gram__fc=gram))
    expected = merge(clients, network.blocks, right)
    labels = (x.reshape(-1, 4).double() / 255 @ weights(expected).T).argmax(dim=1).byte()
    for each in clients:
        each.extra.update({"holdout/x": x, "holdout/y": labels})
    assert torch.equal(weights(fuse(clients, network, RNG).model), weights(expected))
