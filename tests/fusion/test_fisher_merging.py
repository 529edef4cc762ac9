"""Fisher merging."""

import numpy as np
import pytest
import torch
from federated import RNG, has, only, weights

from testbed.fusion import fsosa
from testbed.fusion.fisher_merging import Merging, fuse
from testbed.learning.factors import Diagonal

AS_IT_IS, NORMALISED = Merging(floor=1e-300), Merging(normalise=True)


def known(*f: float) -> Diagonal:
    return Diagonal(torch.tensor([list(f)], dtype=torch.float64))


def test_two_clients_by_hand() -> None:
    """Means over samples (3, 4, 0) and (0, 2, 0), of length 5 and 2: (.6, .8, 0), (0, 1, 0).

    Both have 2 of 4 samples.  Coordinate 0: only the first knows it, 1.  Coordinate 1:
    (.8 * 2 + 1 * 8) / 1.8 = 16 / 3.  Coordinate 2: nobody knows it, (5 + 7) / 2 = 6.
    """
    clients = [
        has([[1.0, 2.0, 5.0]], 2, known(6, 8, 0)),
        has([[3.0, 8.0, 7.0]], 2, known(0, 4, 0)),
    ]
    got = weights(fuse(clients, only(1, 3), RNG, NORMALISED).model)
    assert got[0].tolist() == pytest.approx([1.0, 16 / 3, 6.0])


def test_two_clients_by_hand_as_fedfisher_has_it() -> None:
    """Not normalised, n 1 and 3: (1/4 * 8 * 1 + 3/4 * 2 * 8) / (2 + 3/2) = 4."""
    clients = [has([[1.0]], 1, known(8)), has([[8.0]], 3, known(6))]
    got = weights(fuse(clients, only(1, 1), RNG, AS_IT_IS).model)
    assert got.item() == pytest.approx(14 / 3.5)


def test_the_length_of_a_fisher_does_not_count_but_the_data_do() -> None:
    clients = [has([[0.0]], 1, known(1e-4)), has([[4.0]], 3, known(5e3))]
    assert weights(fuse(clients, only(1, 1), RNG, NORMALISED).model).item() == pytest.approx(3.0)


def test_below_the_floor_is_the_mean_by_data_weight() -> None:
    clients = [has([[0.0, 0.0]], 1, known(1, 1e-7)), has([[4.0, 4.0]], 3, known(3, 0))]
    assert weights(fuse(clients, only(1, 2), RNG).model)[0].tolist() == pytest.approx([3.0, 3.0])
    lower = Merging(floor=1e-9)
    got = weights(fuse(clients, only(1, 2), RNG, lower).model)[0]
    assert got.tolist() == pytest.approx([3.0, 0.0])


def test_a_client_without_information_does_not_count() -> None:
    clients = [has([[2.0]], 1, known(1)), has([[9.0]], 1, known(0))]
    assert weights(fuse(clients, only(1, 1), RNG).model).item() == 2.0


def test_it_is_f_sosa_with_a_diagonal_fisher_where_somebody_knows() -> None:
    """F-SOSA's F_k is a sum over samples, so p_k F_k / n_k is the same up to a factor."""
    rng = np.random.default_rng(3)
    clients = []
    for samples in (5, 1, 12):
        f = torch.from_numpy(rng.random((4, 6)) * 10.0 ** rng.uniform(-6, 0, (4, 6)))
        f[2, 3] = 0.0  # nobody knows this one
        clients.append(has(rng.standard_normal((4, 6)).tolist(), samples, Diagonal(f)))
    network = only(4, 6)
    ours = weights(fuse(clients, network, RNG, AS_IT_IS).model)
    plain = fsosa.Projection(damping=0.0, output_damping=0.0)
    theirs = weights(fsosa.fuse(clients, network.blocks, plain).model)
    differs = (ours - theirs).abs() > 1e-12
    assert differs.nonzero().tolist() == [[2, 3]]  # plain mean there, mean by data weight here
    at = [each.model["fc.weight"][2, 3] for each in clients]
    assert ours[2, 3] == pytest.approx((5 * at[0] + at[1] + 12 * at[2]) / 18)
