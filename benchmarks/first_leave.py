"""What FedEraser and FedRR make of the first leave, by what they spend on it.

The quickstart's clients and recipe, seeds 0, 1 and 2: 9 of 18 clients train in ten rounds,
then the first of them leaves.  Accuracy is on the test pictures; work is in epochs of one
client, of which one with curvature costs about three plain ones.
Usage: python benchmarks/first_leave.py
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from testbed.config import Experiment, load, subset_size
from testbed.editing import federaser, fedrr
from testbed.editing.clients import Change, Client
from testbed.editing.fsosa import Parameters
from testbed.editing.orders import Order, Tune, Work
from testbed.editing.rounds import Rounds, work
from testbed.learning.blocks import State
from testbed.learning.client import prepare
from testbed.learning.task import Session, Task

QUICKSTART = Path(__file__).parents[1] / "configs" / "quickstart.yaml"
SEEDS = (0, 1, 2)


def answered(orders: Work[Any], task: Task) -> tuple[Any, list[Order]]:
    """Drive a method; return its result and the orders it gave."""
    given: list[Order] = []
    answer: Any = None
    try:
        while True:
            order = orders.send(answer)
            assert isinstance(order, Tune)
            given.append(order)
            answer = {client: _trained(task, client, order) for client in order.clients}
    except StopIteration as finished:
        return finished.value, given


def _trained(task: Task, client: Client, order: Tune) -> State:
    start = task.initial if order.start is None else order.start
    session = Session(order.epochs, order.round, order.optimiser)
    return task.train(client.partition, start, session)


def leave(method: Any, task: Task, rounds: Rounds, experiment: Experiment) -> list[float]:
    """Accuracy before and after the first leave, and the epochs it took."""
    initial = experiment.clients.initial
    assert initial is not None
    population = [Client(f"veh{number:02d}", number) for number in range(initial)]
    parameters = Parameters(subset_size(experiment.editing.rho, initial), rounds=rounds)
    rng = task.streams.rng("coordinator")
    state, _ = answered(method.init(population, parameters, rng), task)
    change = Change.of(state.subset[:1])
    (after, _), given = answered(method.apply(state, change, parameters, rng), task)
    models = (state.fused.model, after.fused.model)
    return [*(task.score(model).accuracy for model in models), work(given, rounds.epochs)]


def main() -> None:
    """Print accuracy and work for several settings of both methods."""
    torch.set_num_threads(1)
    experiment = load(QUICKSTART)
    common = Rounds.from_config(experiment.rounds, experiment.learning.epochs)
    settings = [
        (f"FedEraser, store_every {every}, calibration {share}", federaser,
         replace(common, store_every=every, calibration=share))
        for every, share in ((2, 0.5), (1, 0.5), (1, 1.0))
    ] + [
        (f"FedRR, retraining {count}", fedrr, replace(common, retraining=count))
        for count in (5, 10, 20)
    ]  # fmt: skip
    tasks = [prepare(experiment, seed) for seed in SEEDS]
    print(f"{'':42} {'before':>8} {'after':>14} {'epochs':>7}")
    for name, method, rounds in settings:
        rows = np.array([leave(method, task, rounds, experiment) for task in tasks])
        before, after, spent = rows.T
        print(
            f"{name:42} {before.mean():>8.1%} {after.mean():>7.1%} ± {after.std(ddof=1):.1%} "
            f"{spent.mean():>7.0f}"
        )


if __name__ == "__main__":
    main()
