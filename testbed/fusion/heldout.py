"""Choosing among models by the pictures that clients held out; never by test data."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from testbed.errors import FusionError
from testbed.learning.blocks import State
from testbed.learning.contribution import Contribution
from testbed.learning.evaluation import evaluate


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The pictures that came with contributions of statistic ``holdout``.

    Attributes
    ----------
    pictures : Tensor, shape (n, c, h, w)
    labels : Tensor of int64, shape (n,)
    """

    pictures: Tensor
    labels: Tensor

    @classmethod
    def of(cls, contributions: Sequence[Contribution]) -> "HeldOut":
        """Pool what clients sent.

        Raises
        ------
        FusionError
            If nobody sent a picture.
        """
        x = torch.cat([each.extra["holdout/x"] for each in contributions])
        y = torch.cat([each.extra["holdout/y"] for each in contributions])
        if not len(y):
            raise FusionError(
                "this method chooses by held-out pictures and the clients sent none; "
                "raise data.holdout"
            )
        return cls(x.float() / 255, y.long())

    def accuracy(self, model: nn.Module, state: State) -> float:
        """Return the share of correct answers; `model` is overwritten."""
        return evaluate(model, state, self.pictures, self.labels).accuracy

    def best(self, model: nn.Module, candidates: Iterable[State]) -> State:
        """Return the candidate with the most correct answers, the first of equals."""
        return max(candidates, key=lambda state: self.accuracy(model, state))
