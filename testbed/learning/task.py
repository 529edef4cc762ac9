"""What clients of a run learn, in whatever form the data have.

A contribution is a pure function of (run seed, data partition): the initial model, the
partition, the order of batches and the sampled labels all come from named streams.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from testbed.learning.blocks import State
from testbed.learning.compression import FULL, Upload
from testbed.learning.conditioning import AS_COMPUTED, Conditioning
from testbed.learning.devices import CPU
from testbed.learning.evaluation import Score
from testbed.learning.factors import Factor, Kind
from testbed.learning.fisher import Estimator
from testbed.learning.models import Shape
from testbed.streams import Streams


@dataclass(frozen=True)
class Session:
    """Which training of a client is meant; the default is the one of its contribution.

    Attributes
    ----------
    epochs : int or None
        None for the recipe's.
    round : int
        The training round of methods that have several: another order of batches.
    optimiser : {"sgd", "curvature"}
        ``sgd`` stands for the recipe's own.
    """

    epochs: int | None = None
    round: int = 0
    optimiser: Literal["sgd", "curvature"] = "sgd"

    def stream(self, part: int) -> tuple[str | int, ...]:
        """Name the stream that orders a partition's batches."""
        names = ("client", part, "batches")
        return names if self.round == 0 else (*names, self.round)


ONE_SHOT = Session()


@dataclass(frozen=True, eq=False, kw_only=True)
class Task(ABC):
    """Everything that client training in one run depends on.

    Attributes
    ----------
    parts : sequence of array
        Sample indices of each data partition, to train on.
    holdouts : sequence of array
        Sample indices that each partition's client never trains on.
    model : Module
        Scratch network; its weights are meaningless between calls.
    initial : mapping of str to Tensor
        W0, the common initial model.
    kind : {"kfac", "diagonal"}
    estimator : {"exact", "sampled", "empirical"}
    streams : Streams
    conditioning : Conditioning
        What a client does to its Fisher blocks before it sends them.
    upload : Upload
        The form in which the Fisher is sent.
    device : device
        Where clients compute.
    """

    parts: Sequence[np.ndarray]
    model: nn.Module
    initial: State
    kind: Kind
    estimator: Estimator
    streams: Streams
    conditioning: Conditioning = AS_COMPUTED
    upload: Upload = FULL
    holdouts: Sequence[np.ndarray] = ()
    device: torch.device = CPU

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """Channels, height and width of a picture."""

    @property
    @abstractmethod
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""

    @property
    @abstractmethod
    def epochs(self) -> int:
        """Epochs of the recipe."""

    @abstractmethod
    def train(
        self, part: int, start: State, session: Session = ONE_SHOT
    ) -> dict[str, torch.Tensor]:
        """Train a partition's client from `start` and return its state dict."""

    @abstractmethod
    def information(
        self, part: int, state: State, kind: Kind, estimator: Estimator
    ) -> dict[str, Factor]:
        """Compute a partition's Fisher as it is, on the task's device."""

    @abstractmethod
    def score(self, state: State) -> Score:
        """Evaluate `state` on the test set."""

    @abstractmethod
    def few(self) -> "Task":
        """Return a task of one client with one batch that learns nothing, to warm up with."""

    def show(self, state: State) -> list[Mapping[str, Any]]:
        """Return what `state` makes of a few test samples, to draw; nothing if undrawn."""
        return []

    def remarks(self) -> tuple[str, ...]:
        """Say what a reader of the results should know of the data, one sentence each."""
        return ()

    @abstractmethod
    def described(self) -> Mapping[str, Any]:
        """Say what the data are, for a run's manifest."""
