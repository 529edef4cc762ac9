"""F-SOSA, its two edits and Retrain on clients whose models are worked out by hand.

Two clients are fused, a and b, and then a and c.  Diagonal Fisher, weights (w0, w1, w2):

            W            F            F W
    a     1, 2, 10     1, 3, 0      1, 6,  0
    b     5, 6, 20     3, 1, 0     15, 6,  0
    c     9, 0, 30     1, 1, 2      9, 0, 60

    a, b: F = (4, 4, 0), b = (16, 12, 0), mean (3, 4, 15).  What is left of the constraint is
          b - F mean = (4, -4, 0), so W = mean + F+ (4, -4, 0) = (3 + 1, 4 - 1, 15).
          Nobody knows anything of w2, which keeps the mean.
    a, c: F = (2, 4, 2), b = (10, 6, 60): W = (5, 1.5, 30).

Kronecker factors, W of 2x2, F_k W = G_k W_k A_k.  All A are diagonal, so a column of W has a
system of its own, sum_k A_k[j, j] G_k w = sum_k A_k[j, j] G_k w_k:

            W              G               A
    a     1 2 / 3 4     2  1 /  1 2     1 0 / 0 1
    b     5 6 / 7 8     2 -1 / -1 2     1 0 / 0 3
    c     5 2 / 7 0     2 -1 / -1 2     1 0 / 0 1

    a, b: column 0: 4 w = (5, 7) + (3, 9) = (8, 16), w = (2, 4).
          column 1: (8 -2 / -2 8) w = (8, 10) + 3 (4, 10) = (20, 40), w = (4, 6).
    a, c: column 0: the same, (2, 4).  column 1: 4 w = (8, 10) + (4, -2), w = (3, 2).
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from driving import drive
from exact import Branching

from testbed.editing import fsosa, retrain
from testbed.editing.clients import Change, Client
from testbed.editing.fsosa import Parameters, State
from testbed.editing.orders import Fuse, Order, Train, Work
from testbed.fusion.fsosa import Fused, Projection, fuse
from testbed.learning.blocks import Block
from testbed.learning.contribution import Contribution
from testbed.learning.factors import Diagonal, Factor, Kronecker

A, B, C = Client("a", 0), Client("b", 1), Client("c", 2)
P2 = Parameters(size=2)
PLAIN = Projection(damping=0.0, output_damping=0.0, rtol=1e-12)
Matrix = list[list[float]]


def numbers(rows: Matrix) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def sent(w: Matrix, fisher: Factor) -> Contribution:
    return Contribution(1, {"fc.weight": numbers(w)}, {"fc": fisher})


def diagonal(w: list[float], f: list[float]) -> Contribution:
    return sent([w], Diagonal(numbers([f])))


def kronecker(w: Matrix, g: Matrix, a: Matrix) -> Contribution:
    return sent(w, Kronecker(a=numbers(a), g=numbers(g)))


UPLOADS = {
    "diagonal": {
        A: diagonal([1, 2, 10], [1, 3, 0]),
        B: diagonal([5, 6, 20], [3, 1, 0]),
        C: diagonal([9, 0, 30], [1, 1, 2]),
    },
    "kfac": {
        A: kronecker([[1, 2], [3, 4]], [[2, 1], [1, 2]], [[1, 0], [0, 1]]),
        B: kronecker([[5, 6], [7, 8]], [[2, -1], [-1, 2]], [[1, 0], [0, 3]]),
        C: kronecker([[5, 2], [7, 0]], [[2, -1], [-1, 2]], [[1, 0], [0, 1]]),
    },
}
A_AND_B = {"diagonal": [[4, 3, 15]], "kfac": [[2, 4], [4, 6]]}
A_AND_C = {"diagonal": [[5, 1.5, 30]], "kfac": [[2, 3], [4, 2]]}
KINDS = list(UPLOADS)


def fused(kind: str, *clients: Client, by: Projection = PLAIN) -> Fused:
    block = Block("fc", {"diagonal": (1, 3), "kfac": (2, 2)}[kind], bias=False)
    return fuse([UPLOADS[kind][client] for client in clients], [block], by)


def weights(model: Fused) -> Matrix:
    return [pytest.approx(row, abs=1e-12) for row in model.model["fc.weight"].tolist()]


def driven(kind: str, orders: list[Order]) -> Callable[[Work[Any]], Any]:
    """Answer a method's orders with the table above."""

    def answer(order: Order) -> Any:
        orders.append(order)
        if isinstance(order, Train):
            return {client: UPLOADS[kind][client] for client in order.clients}
        assert isinstance(order, Fuse)
        names = {id(upload): client for client, upload in UPLOADS[kind].items()}
        return fused(kind, *(names[id(each)] for each in order.contributions))

    return lambda work: drive(work, answer)


def start(kind: str, *population: Client) -> State:
    """A state in which a and b are the subset."""
    return driven(kind, [])(fsosa.build(population, (A, B), {}))


@pytest.mark.parametrize("kind", KINDS)
def test_f_sosa_fuses_two_clients(kind: str) -> None:
    assert weights(fused(kind, A, B)) == A_AND_B[kind]
    assert weights(fused(kind, A, C)) == A_AND_C[kind]


def test_damping_draws_towards_the_mean() -> None:
    """c = 3/4: tau = 3/4 (4 + 4 + 0) / 3 = 2, and (F + tau) delta = (4, -4, 0)."""
    model = fused("diagonal", A, B, by=Projection(damping=9.0, output_damping=0.75))
    assert weights(model) == [[3 + 4 / 6, 4 - 4 / 6, 15]]


def test_what_nobody_knows_keeps_the_mean_with_kronecker_factors_too() -> None:
    """A = 1 1 / 1 1 for both, G = 1 and 3: F = 4 (1 1 / 1 1), b = (3, 3) + 3 (11, 11).

    The mean is (3, 4), r = (36, 36) - (28, 28) = (8, 8), F+ = (1 1 / 1 1) / 16: F+ r = (1, 1).
    """
    ones: Matrix = [[1, 1], [1, 1]]
    clients = [kronecker([[1, 2]], [[1]], ones), kronecker([[5, 6]], [[3]], ones)]
    model = fuse(clients, [Block("fc", (1, 2), bias=False)], PLAIN)
    assert weights(model) == [[4, 5]]


@pytest.mark.parametrize("kind", KINDS)
def test_f_sosa_u_replaces_the_one_that_leaves(kind: str) -> None:
    """b leaves, and the only survivor outside the subset, c, takes its place."""
    state, orders = start(kind, A, B, C), []
    assert weights(state.fused) == A_AND_B[kind]
    edit = fsosa.apply(state, Change.of([B]), P2, Branching([]))
    state, done = driven(kind, orders)(edit)
    assert orders[0] == Train((C,))
    assert (done.evicted, done.admitted) == ((B,), (C,))
    assert tuple(state.contributions) == state.subset == state.population == (A, C)
    assert weights(state.fused) == A_AND_C[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_f_sosa_i_lets_the_newcomer_in_or_keeps_the_model(kind: str) -> None:
    """c joins: draws below P = 2 of M + 1 = 3 admit it; then one of the two, b, makes room."""
    for script, subset, expected in (
        ([0, 1], (A, C), A_AND_C),
        ([1, 1], (A, C), A_AND_C),
        ([2], (A, B), A_AND_B),
    ):
        state, orders, rng = start(kind, A, B), [], Branching(script)
        edit = fsosa.apply(state, Change.of((), [C]), P2, rng)
        state, _ = driven(kind, orders)(edit)
        assert rng.sizes == [3, 2][: len(script)]
        assert orders[:1] == ([Train((C,))] if C in subset else [])
        assert tuple(state.contributions) == state.subset == subset
        assert state.population == (A, B, C)
        assert weights(state.fused) == expected[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_retrain_answers_the_same_for_the_same_subset(kind: str) -> None:
    """b leaves, a and c are all there is: both train anew, and the model is F-SOSA-U's."""
    before, orders = start(kind, A, B, C), []
    edited, _ = driven(kind, [])(fsosa.apply(before, Change.of([B]), P2, Branching([])))
    anew, done = driven(kind, orders)(retrain.apply(before, Change.of([B]), P2, Branching([])))
    assert orders[0] == Train((A, C))
    assert anew.subset == edited.subset == (A, C)
    assert (done.evicted, done.admitted) == ((B,), (C,))
    assert weights(anew.fused) == A_AND_C[kind]
    assert torch.equal(anew.fused.model["fc.weight"], edited.fused.model["fc.weight"])
