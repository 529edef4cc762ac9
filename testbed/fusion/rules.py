"""The fusion rules by name: pure functions of the contributions.

No rule may look at test data.  One that chooses by held-out pictures finds them among its
contributions (statistic ``holdout``), sent and billed like everything else.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from testbed.config.schema import FisherConfig, FusionConfig
from testbed.fusion import (
    dense,
    fedavg,
    fedfisher,
    fedlpa,
    fisher_merging,
    fsosa,
    maecho,
    otfusion,
    pfnm,
    regmean,
)
from testbed.fusion.fsosa import Fused, Projection
from testbed.fusion.network import Network as Network
from testbed.learning.blocks import blocks
from testbed.learning.contribution import Contribution
from testbed.learning.flops import solve_flops
from testbed.learning.task import Task

Fuser = Callable[[Sequence[Contribution], Network, np.random.Generator], Fused]


@dataclass(frozen=True)
class Rule:
    """A fusion rule.

    Attributes
    ----------
    fuse : callable
        (contributions in canonical order, network, rng) -> Fused; the generator is the same
        for the same run seed, whatever was fused before.
    statistic : str
        What clients upload for it, see `testbed.learning.statistics`.
    flops : callable
        (network, contributions) -> floating-point operations at the coordinator.
    """

    fuse: Fuser
    statistic: str
    flops: Callable[[Network, int], int]


RULES: Mapping[str, Rule] = {
    "fedavg": Rule(fedavg.fuse, "model", fedavg.flops),
    "fisher-merging": Rule(fisher_merging.fuse, "diagonal", fisher_merging.flops),
    "fedfisher": Rule(fedfisher.fuse, "kfac+holdout", fedfisher.flops),
    "fedfisher-diagonal": Rule(fedfisher.fuse, "diagonal+holdout", fedfisher.diagonal_flops),
    "regmean": Rule(regmean.fuse, "gram+holdout", regmean.flops),
    "fedlpa": Rule(fedlpa.fuse, "empirical+holdout", fedlpa.flops),
    "ma-echo": Rule(maecho.fuse, "projector+classes", maecho.flops),
    "otfusion": Rule(otfusion.fuse, "model+holdout", otfusion.flops),
    "pfnm": Rule(pfnm.fuse, "model+classes", pfnm.flops),
    "dense": Rule(dense.fuse, "model", dense.flops),
}


def network_of(task: Task) -> Network:
    """Return what the coordinator knows of a task's network."""
    return Network(task.model, blocks(task.model), task.shape, len(task.classes))


def rule(
    name: str,
    config: FusionConfig,
    fisher: FisherConfig,
    iterations: int,
    distillation: int = dense.DEFAULT.epochs,
) -> Rule:
    """Return a rule by its name; the configuration is F-SOSA's.

    Parameters
    ----------
    name : str
        ``"fsosa"`` or one of `RULES`.
    config : FusionConfig
    fisher : FisherConfig
    iterations : int
        Solver steps that the coordinator is charged for.
    distillation : int
        DENSE's epochs.
    """
    if name == "dense":
        by = replace(dense.DEFAULT, epochs=distillation)
        return Rule(partial(dense.fuse, by=by), "model", partial(dense.flops, by=by))
    if name != "fsosa":
        return RULES[name]
    projection = Projection.from_config(config)
    return Rule(
        fuse=lambda contributions, network, rng: fsosa.fuse(
            contributions, network.blocks, projection
        ),
        statistic="fisher",
        flops=lambda network, members: (
            solve_flops(network.model, 1, fisher.kind, iterations) * members
        ),
    )
