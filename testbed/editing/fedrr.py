"""FedRR, rapid retraining: begin again from the initial model, with second-order steps.

Source: Liu et al., "The Right to be Forgotten in Federated Learning: An Efficient
Realization with Rapid Retraining", INFOCOM 2022, arXiv 2203.07320.

A uniform P-subset trains in T rounds by FedAvg and plain SGD.  When participants leave, the
model is set back to the initial one and those who stay train it again, in fewer rounds, with
steps scaled by the diagonal of the curvature (`testbed.learning.curvature`).  The departed
have no part in that, so nothing else has to be stored.

A leave of somebody who took no part changes nothing.  The method has no join: a newcomer is
a client from then on and is trained when training begins anew, which happens when no
participant is left.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testbed.editing.clients import Change, Client
from testbed.editing.coupling import enough
from testbed.editing.fsosa import Diagnostics, Parameters
from testbed.editing.orders import Work
from testbed.editing.rounds import begin, fedavg
from testbed.fusion.fsosa import Fused


@dataclass(frozen=True, eq=False)
class State:
    """The coordinator's complete state: who takes part, and the released model."""

    population: tuple[Client, ...]
    subset: tuple[Client, ...]
    fused: Fused


def init(
    population: Sequence[Client], parameters: Parameters, rng: np.random.Generator
) -> Work[State]:
    """Train T rounds on a uniform subset."""
    everyone, course = yield from begin(population, parameters.size, parameters.rounds, rng)
    enough(everyone, parameters.size, parameters.below)
    state = State(everyone, course.members, Fused(course.model, {}))
    if course.tainted:
        return (yield from _retrain(everyone, course.members, parameters, rng))
    return state


def apply(
    state: State, change: Change, parameters: Parameters, rng: np.random.Generator
) -> Work[tuple[State, Diagnostics]]:
    """Retrain rapidly if participants leave."""
    population = change.applied(state.population)
    enough(population, parameters.size, parameters.below)
    absent = set(change.departures)
    members = tuple(client for client in state.subset if client not in absent)
    if members == state.subset:
        return State(population, members, state.fused), Diagnostics()
    after = yield from _retrain(population, members, parameters, rng)
    return after, Diagnostics.between(state.subset, after.subset)


def _retrain(
    population: tuple[Client, ...],
    members: tuple[Client, ...],
    parameters: Parameters,
    rng: np.random.Generator,
) -> Work[State]:
    """Retrain on `members`; again, if one of them is lost after the first round."""
    rounds = parameters.rounds
    while members:
        numbers = range(1, rounds.retraining + 1)
        course = yield from fedavg(members, numbers, rounds, "curvature")
        population = Change.of(departures=course.lost).applied(population)
        enough(population, parameters.size, parameters.below)
        members = course.members
        if members and not course.tainted:
            return State(population, members, Fused(course.model, {}))
    return (yield from init(population, parameters, rng))
