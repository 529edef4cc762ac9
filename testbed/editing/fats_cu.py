"""FATS-CU: training in rounds that is stable under a change of clients, and its edits.

Source: Tao et al., "Communication Efficient and Provable Federated Unlearning",
PVLDB 17(5), 2024, client-level unlearning.

Notation (paper -> here)
------------------------
M          number of clients            -> len(population)
K          clients drawn in a round     -> Parameters.size
R          rounds                       -> Rounds.rounds
P^{(r)}    clients drawn in round r     -> State.lists[r - 1]
theta^{(r)} model at its start          -> State.starts[r - 2]; round 1 has the initial model

Every round draws K clients uniformly *with replacement*; the mean of their models, each
counted as often as it was drawn, is the next model.  The lists and the models at the start
of the rounds are stored.

leave
    If the departing client is in no list, nothing happens.  Else training goes back to the
    first round whose list it is in, and goes on from there with fresh draws.
join
    Each draw becomes the newcomer with probability 1/(M + 1), independently, and training
    is repeated from the first round in which one did.  The paper has leaves only; this is
    the insertion of Ullah et al. (COLT 2021, arXiv 2102.13179) for draws with replacement.

Given that a list lacks the departed, it is uniform over the others; with the flips above it
is uniform over one more.  So the lists always have the law of a fresh training.  A change of
one client touches them with probability 1 - (1 - 1/M)^(K R), M counting that client.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testbed.editing.clients import Change, Client
from testbed.editing.coupling import enough
from testbed.editing.fsosa import Diagnostics, Parameters
from testbed.editing.orders import Tune, Work
from testbed.editing.rounds import average
from testbed.errors import EditError
from testbed.fusion.fsosa import Fused
from testbed.learning.blocks import State as Model

Lists = tuple[tuple[Client, ...], ...]


@dataclass(frozen=True, eq=False)
class State:
    """The coordinator's complete state.

    Attributes
    ----------
    population : tuple of Client
        Sorted.
    lists : tuple of tuple of Client
        Who was drawn in each round, with repetitions; sorted.
    starts : tuple of state dict
        The model at the start of rounds 2, 3, ..., T.
    fused : Fused
        The released model.
    """

    population: tuple[Client, ...]
    lists: Lists
    starts: tuple[Model, ...]
    fused: Fused

    @property
    def subset(self) -> tuple[Client, ...]:
        """Who was drawn in some round."""
        return tuple(sorted({client for drawn in self.lists for client in drawn}))


def init(
    population: Sequence[Client], parameters: Parameters, rng: np.random.Generator
) -> Work[State]:
    """Draw the lists of all rounds and train."""
    parameters.rounds.check()
    everyone = tuple(sorted(population))
    if not everyone:
        raise EditError("no client is left to train")
    lists = _draw(everyone, parameters.size, parameters.rounds.rounds, rng)
    return (yield from _train(everyone, lists, (), 1, parameters, rng))


def apply(
    state: State, change: Change, parameters: Parameters, rng: np.random.Generator
) -> Work[tuple[State, Diagnostics]]:
    """Carry the lists over to the new population and train from the first that changed."""
    population = change.applied(state.population)
    enough(population, parameters.size, parameters.below)
    survivors = Change.of(departures=change.departures).applied(state.population)
    if survivors:
        lists, first = couple(state.lists, survivors, change, rng)
        if first > len(lists):
            return State(population, lists, state.starts, state.fused), Diagnostics()
        after = yield from _train(population, lists, state.starts, first, parameters, rng)
    else:
        after = yield from init(population, parameters, rng)
    return after, Diagnostics.between(state.subset, after.subset)


def couple(
    lists: Lists, survivors: tuple[Client, ...], change: Change, rng: np.random.Generator
) -> tuple[Lists, int]:
    """Carry the lists of all rounds over to a new population: first leaves, then joins.

    Parameters
    ----------
    lists : tuple of tuple of Client
        Independent uniform draws with replacement from the old population.
    survivors : tuple of Client
        The old population without the departures; sorted, not empty.
    change : Change
    rng : Generator

    Returns
    -------
    lists : tuple of tuple of Client
        Independent uniform draws from the new population.
    first : int
        The first round whose list changed; one more than there are rounds if none did.
    """
    after, gone = list(lists), set(change.departures)
    size, count = len(lists[0]), len(lists)
    left = next((r for r, drawn in enumerate(lists) if not gone.isdisjoint(drawn)), count)
    after[left:] = _draw(survivors, size, count - left, rng)
    joined = count
    for present, newcomer in enumerate(change.arrivals, start=len(survivors) + 1):
        for index, drawn in enumerate(after):
            taken = rng.integers(present, size=size) == 0
            if taken.any():
                joined = min(joined, index)
                both = zip(drawn, taken, strict=True)
                after[index] = tuple(sorted(newcomer if hit else one for one, hit in both))
    return tuple(after), min(left, joined) + 1


def _draw(population: Sequence[Client], size: int, count: int, rng: np.random.Generator) -> Lists:
    """Draw `count` lists of `size` clients with replacement, each sorted."""
    places = rng.integers(len(population), size=(count, size))
    return tuple(tuple(sorted(population[place] for place in row)) for row in places)


def _train(
    population: tuple[Client, ...],
    lists: Lists,
    starts: tuple[Model, ...],
    first: int,
    parameters: Parameters,
    rng: np.random.Generator,
) -> Work[State]:
    """Train from round `first` on; who is refused leaves as in `apply`.

    Raises
    ------
    EditError
        If nobody is left, or fewer than P in strict mode.
    """
    models = list(starts[: first - 1])  # at the start of round 2, 3, ...
    number = first
    while number <= len(lists):
        drawn = lists[number - 1]
        start = models[-1] if models else None
        epochs = parameters.rounds.epochs_of(number)
        trained: dict[Client, Model] = yield Tune(drawn, start, epochs, number)
        refused = Change.of(departures=(client for client in drawn if client not in trained))
        if refused.departures:
            population = refused.applied(population)
            enough(population, parameters.size, parameters.below)
            if not population:
                raise EditError("no client delivered a usable model")
            lists, number = couple(lists, population, refused, rng)
            del models[number - 1 :]
        else:
            models.append(average(drawn, trained))
            number += 1
    return State(population, lists, tuple(models[:-1]), Fused(models[-1], {}))
