"""Retrain: the reference every edit is compared with.

At every request a fresh uniform subset of the new population trains from the initial model
and the model is fused anew (arXiv 2610.35212, section VI-A).  State and parameters are
F-SOSA's; only the coupling differs: there is none.
"""

from collections.abc import Sequence

import numpy as np

from testbed.editing import fsosa
from testbed.editing.clients import Change, Client
from testbed.editing.coupling import draw, enough
from testbed.editing.fsosa import Diagnostics, Parameters, State
from testbed.editing.orders import Work


def init(
    population: Sequence[Client], parameters: Parameters, rng: np.random.Generator
) -> Work[State]:
    """Train the one-shot model on a uniform subset."""
    return (yield from fsosa.init(population, parameters, rng))


def apply(
    state: State, change: Change, parameters: Parameters, rng: np.random.Generator
) -> Work[tuple[State, Diagnostics]]:
    """Forget everything and train a fresh uniform subset of the new population."""
    population = change.applied(state.population)
    enough(population, parameters.size, parameters.below)
    subset = draw(population, parameters.size, rng)
    population, subset, trained = yield from fsosa.settle(population, subset, {}, parameters, rng)
    rebuilt = yield from fsosa.build(population, subset, trained)
    return rebuilt, Diagnostics.between(state.subset, subset)
