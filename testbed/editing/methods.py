"""The editing methods by name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from testbed.editing import fats_cu, federaser, fedrr, finetune, fsosa, retrain
from testbed.editing.clients import Change, Client
from testbed.editing.fsosa import Diagnostics, Parameters
from testbed.editing.orders import Work
from testbed.fusion.fsosa import Fused
from testbed.fusion.rules import RULES


class EditState(Protocol):
    """What the simulation reads of any method's state."""

    @property
    def population(self) -> tuple[Client, ...]:
        """Current clients, sorted."""

    @property
    def subset(self) -> tuple[Client, ...]:
        """Clients whose contributions are kept, sorted."""

    @property
    def fused(self) -> Fused:
        """The released model."""


@dataclass(frozen=True)
class Method:
    """An editing method: two generator functions, and how contributions are fused.

    Attributes
    ----------
    init, apply : callable
    rule : str
        See `testbed.fusion.rules`; it also says what clients upload.
    in_rounds : bool
        Clients train in several rounds, see `testbed.editing.rounds`.
    """

    init: Callable[[Sequence[Client], Parameters, np.random.Generator], Work[Any]]
    apply: Callable[[Any, Change, Parameters, np.random.Generator], Work[tuple[Any, Diagnostics]]]
    rule: str = "fsosa"
    in_rounds: bool = False


METHODS: Mapping[str, Method] = {
    "fsosa": Method(fsosa.init, fsosa.apply),
    "retrain": Method(retrain.init, retrain.apply),
    "finetune": Method(finetune.init, finetune.apply),
    "federaser": Method(federaser.init, federaser.apply, in_rounds=True),
    "fedrr": Method(fedrr.init, fedrr.apply, in_rounds=True),
    "fats-cu": Method(fats_cu.init, fats_cu.apply, in_rounds=True),
    # The one-shot baselines answer a request as Retrain does, with a fusion of their own.
    **{name: Method(retrain.init, retrain.apply, name) for name in RULES},
}
