"""F-SOSA with its exact edits F-SOSA-U (leave), F-SOSA-I (join) and the batch.

Source: "One-Shot Federated Model Editing for Device Dynamics at the Edge"
(arXiv 2610.35212), sections IV-A and IV-B.

Notation (paper -> here)
------------------------
S_t, M_t    population               -> State.population
X_t         uniform P-subset of S_t  -> State.subset
P           floor(rho M0)            -> Parameters.size
(n, W, F)   client's contribution    -> State.contributions
W*          fused model              -> State.model

An edit couples X_t to the new population; only if it changes do the new members train, are
the old ones' contributions erased, and is one projection solved.  The state after an edit
is, bit for bit, the state built from scratch for the same population and subset: sums are
taken anew in sorted client order and the solver never starts from an earlier model.

A client whose contribution is refused is missing from the answer to `Train`: it departs, by
the same coupling, and whoever takes its place trains next.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from testbed.editing.clients import Change, Client
from testbed.editing.coupling import BelowSubset, couple, draw
from testbed.editing.orders import Fuse, Train, Work
from testbed.editing.rounds import Rounds
from testbed.errors import EditError
from testbed.fusion.fsosa import Fused
from testbed.learning.contribution import Contribution

ROUNDS = Rounds()


@dataclass(frozen=True)
class Parameters:
    """Parameters of the method.

    Attributes
    ----------
    size : int
        P, fixed for the whole run.
    below : {"strict", "shrink"}
        What to do when the population falls below P.
    rounds : Rounds
        Of the methods that train in rounds.
    """

    size: int
    below: BelowSubset = "shrink"
    rounds: Rounds = ROUNDS


@dataclass(frozen=True, eq=False)
class State:
    """The coordinator's complete state.

    Attributes
    ----------
    population, subset : tuple of Client
        Sorted.
    contributions : mapping of Client to Contribution
        Of the subset's members and of nobody else, in sorted order.
    fused : Fused
        The released model and how its projection went.
    """

    population: tuple[Client, ...]
    subset: tuple[Client, ...]
    contributions: Mapping[Client, Contribution]
    fused: Fused


@dataclass(frozen=True)
class Diagnostics:
    """What an edit did.

    Attributes
    ----------
    evicted, admitted : tuple of Client
        Members that left the subset, and that entered it.
    """

    evicted: tuple[Client, ...] = ()
    admitted: tuple[Client, ...] = ()

    @classmethod
    def between(cls, before: Sequence[Client], after: Sequence[Client]) -> "Diagnostics":
        """Compare two subsets."""
        old, new = set(before), set(after)
        return cls(tuple(sorted(old - new)), tuple(sorted(new - old)))


def init(
    population: Sequence[Client], parameters: Parameters, rng: np.random.Generator
) -> Work[State]:
    """Train the one-shot model on a uniform subset."""
    everyone = tuple(sorted(population))
    subset = draw(everyone, parameters.size, rng)
    everyone, subset, trained = yield from settle(everyone, subset, {}, parameters, rng)
    return (yield from build(everyone, subset, trained))


def apply(
    state: State, change: Change, parameters: Parameters, rng: np.random.Generator
) -> Work[tuple[State, Diagnostics]]:
    """Edit the state; an untouched subset costs nothing and keeps the model."""
    population = change.applied(state.population)
    subset = couple(state.population, state.subset, change, parameters.size, rng, parameters.below)
    population, subset, known = yield from settle(
        population, subset, state.contributions, parameters, rng
    )
    diagnostics = Diagnostics.between(state.subset, subset)
    if subset == state.subset:
        return State(population, subset, state.contributions, state.fused), diagnostics
    return (yield from build(population, subset, known)), diagnostics


def settle(
    population: tuple[Client, ...],
    subset: tuple[Client, ...],
    known: Mapping[Client, Contribution],
    parameters: Parameters,
    rng: np.random.Generator,
) -> Work[tuple[tuple[Client, ...], tuple[Client, ...], Mapping[Client, Contribution]]]:
    """Train the members not `known`, until all are; who is refused departs and is replaced.

    Returns
    -------
    population, subset : tuple of Client
        Without those who were refused.
    known : mapping of Client to Contribution
        Of at least the members.

    Raises
    ------
    EditError
        If nobody is left, or fewer than P in strict mode.
    """
    while new := tuple(client for client in subset if client not in known):
        trained: dict[Client, Contribution] = yield Train(new)
        known = {**known, **trained}
        refused = Change.of(departures=(client for client in new if client not in trained))
        subset = couple(population, subset, refused, parameters.size, rng, parameters.below)
        population = refused.applied(population)
        if not subset:
            raise EditError("no client delivered a usable contribution")
    return population, subset, known


def build(
    population: Sequence[Client],
    subset: tuple[Client, ...],
    known: Mapping[Client, Contribution],
) -> Work[State]:
    """Build the state of a subset, training the members that are not `known`."""
    new = tuple(client for client in subset if client not in known)
    trained: dict[Client, Contribution] = (yield Train(new)) if new else {}
    contributions = {
        client: known[client] if client in known else trained[client] for client in subset
    }
    fused: Fused = yield Fuse(tuple(contributions.values()))
    return State(tuple(sorted(population)), subset, contributions, fused)
