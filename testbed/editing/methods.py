"""The editing methods by name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from testbed.editing import finetune, fsosa, retrain
from testbed.editing.clients import Change, Client
from testbed.editing.fsosa import Diagnostics, Parameters
from testbed.editing.orders import Work
from testbed.fusion.fsosa import Fused


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
    """An editing method: two generator functions."""

    init: Callable[[Sequence[Client], Parameters, np.random.Generator], Work[Any]]
    apply: Callable[[Any, Change, Parameters, np.random.Generator], Work[tuple[Any, Diagnostics]]]


METHODS: Mapping[str, Method] = {
    "fsosa": Method(fsosa.init, fsosa.apply),
    "retrain": Method(retrain.init, retrain.apply),
    "finetune": Method(finetune.init, finetune.apply),
}
