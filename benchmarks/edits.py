"""Cost of an edit in the number of clients: coupling and state, without training and fusion.

The contributions are empty ones, so nothing is timed but what the coordinator does with who
takes part.  The unit is one real projection of P LeNet contributions in the same run.
Usage: python benchmarks/edits.py
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from testbed.editing import fsosa
from testbed.editing.clients import Client, Request, normal_form
from testbed.editing.coupling import couple, draw
from testbed.editing.fsosa import Parameters, State
from testbed.editing.orders import Train, Work
from testbed.fusion.fsosa import Fused, Projection, fuse
from testbed.learning.blocks import blocks
from testbed.learning.contribution import Contribution
from testbed.learning.factors import Kronecker
from testbed.learning.models import build
from testbed.streams import Streams

P = 25
SIZES = (50, 500, 5_000)
EDITS = 2_000
LONG = 100_000
SAMPLES = 200


def requests(initial: int, count: int, rng: np.random.Generator) -> list[Request]:
    """Draw `count` leaves and joins in turn: everybody comes back before anybody leaves twice."""
    order = [Client(f"veh{number:05d}", number) for number in rng.permutation(initial)]
    return [
        ("join" if number % 2 else "leave", order[number // 2 % initial])
        for number in range(count)
    ]


def answered(work: Work[Any]) -> Any:
    """Drive a method with empty contributions and an empty model."""
    answer: Any = None
    try:
        while True:
            order = work.send(answer)
            if isinstance(order, Train):
                answer = {client: Contribution(1, {}, {}) for client in order.clients}
            else:
                answer = Fused({}, {})
    except StopIteration as finished:
        return finished.value


def edits(initial: int, count: int) -> tuple[float, int]:
    """Seconds per edit of the whole state, and how many edits changed the subset."""
    rng = Streams(0).rng("edits", initial)
    population = [Client(f"veh{number:05d}", number) for number in range(initial)]
    asked = requests(initial, count, rng)
    parameters = Parameters(P)
    state: State = answered(fsosa.init(population, parameters, rng))
    changed = 0
    begin = time.perf_counter()
    for request in asked:
        change = normal_form(state.population, [request]).change
        state, done = answered(fsosa.apply(state, change, parameters, rng))
        changed += bool(done.admitted)
    return (time.perf_counter() - begin) / count, changed


def coupling(initial: int, count: int) -> float:
    """Edits per second of the bare coupling, population included."""
    rng = Streams(0).rng("coupling", initial)
    population = tuple(Client(f"veh{number:05d}", number) for number in range(initial))
    subset = draw(population, P, rng)
    asked = requests(initial, count, rng)
    begin = time.perf_counter()
    for request in asked:
        change = normal_form(population, [request]).change
        subset = couple(population, subset, change, P, rng)
        population = change.applied(population)
    return count / (time.perf_counter() - begin)


def projection() -> float:
    """Seconds of one projection of P LeNet contributions with random factors."""
    model = build("lenet", (1, 28, 28), 10, seed=0)
    layers = blocks(model)
    generator = torch.Generator().manual_seed(0)

    def factor(size: int) -> torch.Tensor:
        rows = torch.randn(SAMPLES, size, generator=generator)
        # The spectrum of real factors falls off over several decades.
        rows *= torch.logspace(0, -3, size)
        return rows.T @ rows / SAMPLES

    contributions = [
        Contribution(
            SAMPLES,
            {
                name: value + 0.1 * torch.randn(value.shape, generator=generator)
                for name, value in model.state_dict().items()
            },
            {each.name: Kronecker(factor(each.columns), factor(each.rows)) for each in layers},
        )
        for _ in range(P)
    ]
    return best(lambda: fuse(contributions, layers, Projection()))


def best(work: Callable[[], Any]) -> float:
    """Seconds of the fastest of three runs."""
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def main() -> None:
    """Print the cost of an edit by population size, and the speed of the bare coupling."""
    torch.set_num_threads(1)
    unit = projection()
    print(f"one projection of P = {P} LeNet contributions: {1000 * unit:.0f} ms")
    print(f"{'M':>6} {'edit':>10} {'of a projection':>17} {'subset changed':>15}")
    costs = {}
    for initial in SIZES:
        costs[initial], changed = edits(initial, EDITS)
        print(
            f"{initial:>6} {1e6 * costs[initial]:>7.0f} µs {costs[initial] / unit:>16.5%} "
            f"{changed / EDITS:>14.1%}"
        )
    print(f"M = {SIZES[-1]} against M = {SIZES[0]}: {costs[SIZES[-1]] / costs[SIZES[0]]:.2f} x")
    print(f"bare coupling, M = {SIZES[-1]}, {LONG} requests: {coupling(SIZES[-1], LONG):.0f} /s")


if __name__ == "__main__":
    main()
