"""FedEraser: replay stored updates, turned into the direction that others' data asks for.

Source: Liu et al., "FedEraser: Enabling Efficient Client-Level Data Removal from Federated
Learning Models", IWQoS 2021.

Notation (paper -> here)
------------------------
E, Delta t       rounds, interval      -> Rounds.rounds, Rounds.store_every
t_j              retained rounds       -> 1, 1 + Delta t, 1 + 2 Delta t, ...
M^{t_j}          global model          -> Round.start
U_k              update of client k    -> Round.models[k] - Round.start
r                calibration ratio     -> Rounds.calibration

A uniform P-subset takes part in every round.  When participants leave, training is
reconstructed from the initial model: the first retained round is averaged anew without
them and without training; in every later one the participants who stay train for r times
the round's epochs, which gives updates V_k, and the model moves by the mean of
||U_k|| V_k / ||V_k||.  The norm is that of a client's whole update, as in the paper; the
published reproduction takes it layer by layer of the mean update.

What was retained is replaced by what was calibrated, so that a later leave finds nothing
that the departed had a part in.  A leave of somebody who took no part changes nothing.  The
method has no join: a newcomer is a client from then on and is trained when training begins
anew, which happens when no participant is left.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from torch import Tensor

from testbed.editing.clients import Change, Client
from testbed.editing.coupling import enough
from testbed.editing.fsosa import Diagnostics, Parameters
from testbed.editing.orders import Tune, Work
from testbed.editing.rounds import Round, Rounds, average, begin, learned, without
from testbed.fusion.fsosa import Fused
from testbed.learning.blocks import State as Model


@dataclass(frozen=True, eq=False)
class State:
    """The coordinator's complete state.

    Attributes
    ----------
    population, subset : tuple of Client
        Sorted; the subset takes part in the rounds.
    stored : tuple of Round
        The retained rounds, with the models of the subset and of nobody else.
    fused : Fused
        The released model.
    """

    population: tuple[Client, ...]
    subset: tuple[Client, ...]
    stored: tuple[Round, ...]
    fused: Fused


def init(
    population: Sequence[Client], parameters: Parameters, rng: np.random.Generator
) -> Work[State]:
    """Train T rounds on a uniform subset and store every Delta t-th of them."""
    rounds = parameters.rounds
    retained = rounds.all[:: rounds.store_every]
    everyone, course = yield from begin(population, parameters.size, rounds, rng, retained)
    enough(everyone, parameters.size, parameters.below)
    state = State(everyone, course.members, course.stored, Fused(course.model, {}))
    if course.tainted:
        return (yield from _reconstruct(state, parameters, rng))
    return state


def apply(
    state: State, change: Change, parameters: Parameters, rng: np.random.Generator
) -> Work[tuple[State, Diagnostics]]:
    """Reconstruct the model if participants leave."""
    population = change.applied(state.population)
    enough(population, parameters.size, parameters.below)
    after = _left(state, population, change.departures)
    if after.subset != state.subset:
        after = yield from _reconstruct(after, parameters, rng)
    return after, Diagnostics.between(state.subset, after.subset)


def _left(state: State, population: tuple[Client, ...], gone: Sequence[Client]) -> State:
    """Take who is gone out of everything but the model."""
    absent = set(gone)
    subset = tuple(client for client in state.subset if client not in absent)
    return State(population, subset, without(state.stored, absent), state.fused)


def _reconstruct(state: State, parameters: Parameters, rng: np.random.Generator) -> Work[State]:
    """Replay the retained rounds; who is refused leaves, and all is replayed without them."""
    while state.subset:
        replayed, refused = yield from _replay(state, parameters.rounds)
        if not refused:
            return replayed
        population = Change.of(departures=refused).applied(state.population)
        enough(population, parameters.size, parameters.below)
        state = _left(state, population, refused)
    return (yield from init(state.population, parameters, rng))


def _replay(state: State, rounds: Rounds) -> Work[tuple[State, tuple[Client, ...]]]:
    """Return the reconstructed state, or the state as it was and who was refused."""
    members = state.subset
    first, *later = state.stored
    model = average(members, first.models)
    renewed = [first]
    for old in later:
        epochs = rounds.calibration_of(old.number)
        trained: dict[Client, Model] = yield Tune(members, model, epochs, old.number)
        refused = tuple(client for client in members if client not in trained)
        if refused:
            return state, refused
        assert old.start is not None  # only the first round starts from the initial model
        calibrated = {
            client: calibrate(old.start, old.models[client], model, trained[client])
            for client in members
        }
        renewed.append(Round(old.number, model, calibrated))
        model = average(members, calibrated)
    return State(state.population, members, tuple(renewed), Fused(model, {})), ()


def calibrate(old_start: Model, old: Model, start: Model, new: Model) -> dict[str, Tensor]:
    """Return `start` moved as far as the old update went, in the new update's direction.

    Running statistics and counts of normalisation layers are the new model's.

    Parameters
    ----------
    old_start, old : mapping of str to Tensor
        The old update is ``old - old_start``.
    start, new : mapping of str to Tensor
        The new update is ``new - start``; if it is zero, nothing moves.
    """
    names = learned(start)
    length, now = _norm(old_start, old, names), _norm(start, new, names)
    scale = length / now if now else 0.0
    moved = {
        name: (start[name].double() + scale * (new[name].double() - start[name].double())).to(
            start[name].dtype
        )
        for name in names
    }
    return {**new, **moved}


def _norm(start: Model, end: Model, names: Sequence[str]) -> float:
    squares = ((end[name].double() - start[name].double()).square().sum() for name in names)
    return sqrt(sum(map(float, squares)))
