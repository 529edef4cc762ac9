"""Fine-tuning: newcomers continue from the current model and are averaged in.

The usual way to take in new clients, and the paper's baseline for joins.  The paper gives
no merging rule; here the current model, which stands for the M clients who stay, and those
of a newcomers give (M W + sum_new W_new) / (M + a).  Nothing is forgotten: a leave keeps the
model, so after the first leave of a member this is not a valid unlearning method.

A newcomer whose model is refused is missing from the answer to `Tune` and is no client.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from testbed.editing import fsosa
from testbed.editing.clients import Change, Client
from testbed.editing.fsosa import Diagnostics, Parameters
from testbed.editing.orders import Tune, Work
from testbed.errors import EditError
from testbed.fusion.fsosa import Fused
from testbed.learning.blocks import State as Model


@dataclass(frozen=True, eq=False)
class State:
    """The coordinator's state: the population and the current model, no contributions."""

    population: tuple[Client, ...]
    fused: Fused

    @property
    def subset(self) -> tuple[Client, ...]:
        """No subset is kept."""
        return ()


def init(
    population: Sequence[Client], parameters: Parameters, rng: np.random.Generator
) -> Work[State]:
    """Start from the same one-shot model as F-SOSA."""
    state = yield from fsosa.init(population, parameters, rng)
    return State(state.population, state.fused)


def apply(
    state: State, change: Change, parameters: Parameters, rng: np.random.Generator
) -> Work[tuple[State, Diagnostics]]:
    """Let arrivals fine-tune the current model; departures change nothing."""
    population = change.applied(state.population)
    tuned: dict[Client, Model] = {}
    if change.arrivals:
        tuned = yield Tune(change.arrivals, state.fused.model)
    refused = Change.of(departures=(client for client in change.arrivals if client not in tuned))
    population = refused.applied(population)
    if not population:
        raise EditError("no client delivered a usable model")
    if not tuned:
        return State(population, state.fused), Diagnostics()
    merged = _merge(state.fused.model, len(population) - len(tuned), list(tuned.values()))
    return State(population, Fused(merged, {})), Diagnostics()


def _merge(model: Model, weight: int, newcomers: Sequence[Model]) -> Model:
    """Average `model`, counted `weight` times, with the newcomers' models, in float64."""
    total = weight + len(newcomers)
    return {
        name: (
            (weight * value.double() + torch.stack([m[name].double() for m in newcomers]).sum(0))
            / total
        ).to(value.dtype)
        for name, value in model.items()
    }
