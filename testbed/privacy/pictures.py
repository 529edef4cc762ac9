"""The pictures that attacks look at, and what a model says of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from testbed.learning.blocks import State
from testbed.learning.classification import Classification
from testbed.privacy.roc import Bools, Floats, Ints

_BATCH = 1000


@dataclass(frozen=True, eq=False)
class Pictures:
    """Clients' training pictures and hold-outs.

    Attributes
    ----------
    x : Tensor, shape (n, c, h, w)
    y : Tensor of int64, shape (n,)
    owner : array of int, shape (n,)
        Number of the client, in the order they were given.
    trained : array of bool, shape (n,)
        The owner trained on it; false for a hold-out.
    """

    x: Tensor
    y: Tensor
    owner: Ints
    trained: Bools

    def of(self, number: int) -> "Pictures":
        """Return one client's training pictures."""
        chosen = (self.owner == number) & self.trained
        mask = torch.from_numpy(chosen)
        return Pictures(self.x[mask], self.y[mask], self.owner[chosen], self.trained[chosen])

    def means(self, values: Floats, trained: bool = True) -> Floats:
        """Average over each client's training pictures, or over its hold-outs.

        Parameters
        ----------
        values : array, shape (..., n)
        trained : bool

        Returns
        -------
        array, shape (..., clients)
            NaN for a client without such a picture.
        """
        chosen = self.trained == trained
        owner = self.owner[chosen]
        sums = np.zeros((self.owner.max() + 1, len(owner)))
        sums[owner, np.arange(len(owner))] = 1
        with np.errstate(invalid="ignore"):
            return np.asarray(values[..., chosen] @ (sums / sums.sum(axis=1, keepdims=True)).T)


def gather(task: Classification, partitions: Sequence[int], most: int) -> Pictures:
    """Take up to `most` training pictures and as many hold-outs of each partition."""
    chosen, owner, trained = [], [], []
    for number, part in enumerate(partitions):
        for name, indices in (("trained", task.parts[part]), ("held", task.holdouts[part])):
            rng = task.streams.rng("audit", "pictures", name, part)
            some = np.sort(rng.permutation(indices)[:most])
            chosen.append(some)
            owner.append(np.full(len(some), number))
            trained.append(np.full(len(some), name == "trained"))
    every = np.concatenate(chosen).astype(np.int64)
    return Pictures(
        torch.from_numpy(task.dataset.x_train[every]),
        torch.from_numpy(task.dataset.y_train[every]),
        np.concatenate(owner),
        np.concatenate(trained),
    )


@torch.no_grad()
def predict(task: Classification, state: State, pictures: Pictures) -> Tensor:
    """Return a model's log-probabilities, float32, shape (n, classes)."""
    task.model.load_state_dict(dict(state))
    task.model.eval()
    logits = torch.cat([task.model(x) for x in torch.split(pictures.x, _BATCH)])
    return functional.log_softmax(logits, dim=1)


def confidence(predicted: Tensor, labels: Tensor) -> Floats:
    """Return log(p / (1 - p)) of the true label's probability p, shape (n,).

    Examples
    --------
    >>> confidence(torch.log(torch.tensor([[0.75, 0.25]])), torch.tensor([0])).round(4).tolist()
    [1.0986]
    """
    right = predicted.double().gather(1, labels[:, None])
    others = predicted.double().scatter(1, labels[:, None], -torch.inf)
    return np.asarray((right[:, 0] - torch.logsumexp(others, dim=1)).numpy())


def loss(confident: Floats) -> Floats:
    """Return the cross-entropy that belongs to a confidence: log(1 + exp(-phi))."""
    return np.logaddexp(0.0, -confident)
