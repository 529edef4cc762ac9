"""What the methods that train in several rounds share: the budget, FedAvg, its average.

A round sends the current model to its members, who train for a few epochs and send theirs
back; the plain mean is the next model.  F-SOSA's clients train once, for all the epochs of
the recipe.  Here the same epochs are spread over T rounds of P clients each, so that every
method does the same local work: P clients times the recipe's epochs.

FedAvg: McMahan et al., AISTATS 2017, arXiv 1602.05629.  Clients have equal weights, as in
F-SOSA's mean, because a weight by samples would depend on who else takes part.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from testbed.config.schema import RoundsConfig
from testbed.editing.clients import Change, Client
from testbed.editing.coupling import draw
from testbed.editing.orders import Order, Train, Tune, Work
from testbed.errors import ConfigError, EditError
from testbed.learning.blocks import State as Model

_STATISTICS = ("running_mean", "running_var")


@dataclass(frozen=True)
class Rounds:
    """How training is split into rounds, which are numbered from 1.

    Attributes
    ----------
    rounds : int
        T.
    epochs : int
        Of all rounds together: the recipe's.
    store_every : int
        FedEraser: Delta t, rounds between two whose local models are stored.
    calibration : float
        FedEraser: share of a round's epochs that a calibration takes.
    retraining : int
        FedRR: rounds of a rapid retraining.
    """

    rounds: int = 10
    epochs: int = 30
    store_every: int = 2
    calibration: float = 0.5
    retraining: int = 5

    @classmethod
    def from_config(cls, config: RoundsConfig, epochs: int) -> "Rounds":
        """Take the section `rounds` and `learning.epochs`."""
        return cls(
            rounds=config.rounds,
            epochs=epochs,
            store_every=config.store_every,
            calibration=config.calibration,
            retraining=config.retraining,
        )

    @property
    def all(self) -> range:
        """The numbers of the T rounds."""
        return range(1, self.rounds + 1)

    def check(self) -> None:
        """Refuse a split that leaves a round without an epoch.

        Raises
        ------
        ConfigError
        """
        if self.epochs < self.rounds:
            raise ConfigError(
                f"learning.epochs = {self.epochs} cannot be spread over rounds.rounds = "
                f"{self.rounds}, which needs an epoch each; raise learning.epochs or lower "
                "rounds.rounds"
            )

    def epochs_of(self, number: int) -> int:
        """Return the epochs of a round; the first ones take what does not divide evenly.

        A round after the T-th is as long as that.

        Raises
        ------
        ConfigError
            If there are fewer epochs than rounds.
        """
        self.check()
        whole, left = divmod(self.epochs, self.rounds)
        return whole + (number <= left)

    def calibration_of(self, number: int) -> int:
        """Return the epochs of a calibration in a round, rounded up."""
        # 0.7 times 10 epochs are 7 and not the 8 that binary fractions would give.
        return max(1, ceil(round(self.calibration * self.epochs_of(number), 6)))

    def budget(self, size: int) -> str:
        """Say in one sentence what the initial training costs next to F-SOSA's.

        Examples
        --------
        >>> Rounds(rounds=4, epochs=10).budget(25)
        '4 rounds of 25 clients, 3+3+2+2 epochs: 250 client epochs, as many as F-SOSA'
        """
        lengths = [self.epochs_of(number) for number in self.all]
        return (
            f"{self.rounds} rounds of {size} clients, {'+'.join(map(str, lengths))} epochs: "
            f"{size * sum(lengths)} client epochs, as many as F-SOSA"
        )


def work(orders: Iterable[Order], epochs: int) -> int:
    """Count the local work of orders, in epochs of one client.

    Somebody who stands several times in a round trains once.

    Parameters
    ----------
    orders : iterable of Order
    epochs : int
        The recipe's.
    """
    total = 0
    for order in orders:
        if isinstance(order, Train):
            total += epochs * len(order.clients)
        elif isinstance(order, Tune):
            length = epochs if order.epochs is None else order.epochs
            total += length * len(set(order.clients))
    return total


def average(members: Iterable[Client], models: Mapping[Client, Model]) -> dict[str, Tensor]:
    """Return the mean model of members; who stands several times counts as often.

    Sums are taken in float64, in sorted order of the clients.  Of whole numbers, as counts of
    batches are, the largest is taken.
    """
    times = Counter(members)
    present = sorted(times)
    total = sum(times.values())
    mean: dict[str, Tensor] = {}
    for name, like in models[present[0]].items():
        if like.is_floating_point():
            value = torch.zeros_like(like, dtype=torch.float64)
            for client in present:
                value.add_(models[client][name].double(), alpha=times[client])
            mean[name] = (value / total).to(like.dtype)
        else:
            mean[name] = torch.stack([models[client][name] for client in present]).amax(dim=0)
    return mean


def learned(model: Model) -> tuple[str, ...]:
    """Return the names of what training learns: no counts, no running statistics."""
    return tuple(
        name
        for name, value in model.items()
        if value.is_floating_point() and name.rpartition(".")[2] not in _STATISTICS
    )


@dataclass(frozen=True, eq=False)
class Round:
    """A round that was stored.

    Attributes
    ----------
    number : int
    start : mapping of str to Tensor, or None
        The model it started from; None for the common initial model.
    models : mapping of Client to state dict
        What its members sent.
    """

    number: int
    start: Model | None
    models: Mapping[Client, Model]


@dataclass(frozen=True, eq=False)
class Course:
    """How a training in rounds went.

    Attributes
    ----------
    members : tuple of Client
        Who was there to the end; empty if nobody was, and then there is no model.
    lost : tuple of Client
        Whose model was refused in some round.
    tainted : bool
        Somebody was lost after models of theirs had been averaged in.
    model : mapping of str to Tensor
    stored : tuple of Round
        The rounds asked for, without those who were lost.
    """

    members: tuple[Client, ...]
    lost: tuple[Client, ...]
    tainted: bool
    model: Model
    stored: tuple[Round, ...]


def fedavg(
    members: tuple[Client, ...],
    numbers: Sequence[int],
    rounds: Rounds,
    optimiser: Literal["sgd", "curvature"] = "sgd",
    store: Sequence[int] = (),
) -> Work[Course]:
    """Train from the common initial model; who is refused is left out from then on.

    Parameters
    ----------
    members : tuple of Client
        Sorted.
    numbers : sequence of int
        The rounds, in order.
    rounds : Rounds
    optimiser : {"sgd", "curvature"}
    store : sequence of int
        The rounds to return.
    """
    present, tainted = members, False
    start: Model | None = None
    stored: list[Round] = []
    for number in numbers:
        models: dict[Client, Model] = yield Tune(
            present, start, rounds.epochs_of(number), number, optimiser
        )
        left = tuple(client for client in present if client in models)
        tainted = tainted or (left != present and number != numbers[0])
        present = left
        if not present:
            return Course((), members, tainted, {}, ())
        if number in store:
            stored.append(Round(number, start, models))
        start = average(present, models)
    lost = tuple(client for client in members if client not in present)
    assert start is not None
    return Course(present, lost, tainted, start, without(stored, lost))


def begin(
    population: Sequence[Client],
    size: int,
    rounds: Rounds,
    rng: np.random.Generator,
    store: Sequence[int] = (),
) -> Work[tuple[tuple[Client, ...], Course]]:
    """Train T rounds on a uniform subset; if all of it is refused, on another one.

    Returns
    -------
    population : tuple of Client
        Without those who were refused; sorted.
    course : Course

    Raises
    ------
    ConfigError
        If there are fewer epochs than rounds.
    EditError
        If nobody is left.
    """
    everyone = tuple(sorted(population))
    while everyone:
        members = draw(everyone, size, rng)
        course = yield from fedavg(members, rounds.all, rounds, store=store)
        everyone = Change.of(departures=course.lost).applied(everyone)
        if course.members:
            return everyone, course
    raise EditError("no client delivered a usable model")


def without(stored: Iterable[Round], gone: Iterable[Client]) -> tuple[Round, ...]:
    """Erase clients from stored rounds."""
    absent = frozenset(gone)
    return tuple(
        Round(
            each.number,
            each.start,
            {client: model for client, model in each.models.items() if client not in absent},
        )
        for each in stored
    )
