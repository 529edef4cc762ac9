"""Runs without learning beside the same runs with it."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from worlds import Ran

from testbed.config import Experiment
from testbed.mobility import open_source
from testbed.simulation.metric import Metric
from testbed.simulation.outline import outline
from testbed.simulation.placeholder import Placeholder
from testbed.simulation.world import World

# What is known of a model that was learned, and of nothing else.
LEARNED = (
    "accuracy", "loss", "map50_95", "map50", "iterations", "residual", "converged",
)  # fmt: skip


def unlearned(
    wanted: Experiment, trace: Path | None, method: str, seed: int = 0, **world: Any
) -> Ran:
    """Run one method without learning, on a recorded trace or on the traffic configured."""
    mobility = wanted.mobility
    if trace is not None:
        mobility = mobility.model_copy(update={"source": "trace", "trace": trace})
    wanted = wanted.model_copy(update={"mobility": mobility, "fidelity": "cost"})
    task = outline(wanted, seed)
    with open_source(mobility, seed) as source:
        made = World(wanted, method, task, Placeholder(task), source, **world)
        return Ran(wanted, made, made.run(), ())


def bill(ran: Ran) -> list[dict[str, Any]]:
    """Return the ledger without the column that carries the configuration's hash."""
    return [
        {field.name: getattr(row, field.name) for field in fields(row) if field.name != "run"}
        for row in ran.outcome.ledger
    ]


def known(ran: Ran) -> list[dict[str, Any]]:
    """Return the metrics but what is measured of models."""
    names = [name for name in Metric.__dataclass_fields__ if name not in LEARNED]
    return [{name: getattr(metric, name) for name in names} for metric in ran.outcome.metrics]
