"""A bank of models: who was in each, and how confident each is of every picture."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from testbed.editing.clients import Client
from testbed.learning.classification import Classification
from testbed.privacy.federation import Federation
from testbed.privacy.pictures import Pictures, confidence, predict
from testbed.privacy.roc import Bools, Floats

# Told what is being done, and how much of how much is done.
Observer = Callable[[str, int, int], None]


def ignore(what: str, done: int, wanted: int) -> None:
    """Watch nothing."""


@dataclass(frozen=True, eq=False)
class Bank:
    """Models of one method and population, each of a subset of its own.

    Attributes
    ----------
    inside : array of bool, shape (models, clients)
        Who is in which subset.
    confidence : array of float32, shape (models, pictures)
        See `testbed.privacy.pictures.confidence`.
    predicted : tuple of Tensor
        Log-probabilities of the models of which they were asked for, the first ones.
    """

    inside: Bools
    confidence: npt.NDArray[np.float32]
    predicted: tuple[Tensor, ...]

    def of_clients(self, pictures: Pictures) -> Floats:
        """Return every model's mean confidence in each client's training pictures."""
        return pictures.means(self.confidence.astype(float))


def stock(
    federation: Federation,
    task: Classification,
    clients: Sequence[Client],
    pictures: Pictures,
    models: int,
    keep: int,
    observer: Observer,
) -> Bank:
    """Make a bank of `models` shadow models; `keep` log-probabilities of the first so many."""
    inside = np.zeros((models, len(clients)), dtype=bool)
    values = np.zeros((models, len(pictures.y)), dtype=np.float32)
    predicted = []
    for number in range(models):
        observer("shadow models", number, models)
        state, members = federation.release(clients, "shadow", number)
        inside[number] = [client in members for client in clients]
        said = predict(task, state.fused.model, pictures)
        values[number] = confidence(said, pictures.y)
        if number < keep:
            predicted.append(said)
    return Bank(inside, values, tuple(predicted))
