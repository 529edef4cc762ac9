"""Cost ratio of a sweep: its wall time over that of its unique trainings and fusions.

Five methods at three values of rho and two densities of city traffic, on Fashion-MNIST where
Debian's package is installed and else on handwritten digits: 30 runs in two worker processes,
SUMO, planning, evaluations and the start of the workers included.  The same command again then
finds everything finished, and another grid everything trained.
Usage: python benchmarks/sweep.py
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from testbed.data.sources import DEBIAN_FASHION
from testbed.experiments.grid import Grid, read_grid
from testbed.experiments.plan import asks, trainings
from testbed.experiments.sweep import Cost, sweep

CONFIG = Path(__file__).resolve().parents[1] / "configs" / "sweeps" / "rho-density.yaml"
AXES = ("rho=0.3,0.5,0.7", "density=7.2,3.6")
LATER = ("rho=0.4,0.6", "density=7.2,3.6")
SIZE = (
    "clients.pool=60",
    "data.limit=6000",
    "data.test_limit=1000",
    "learning.epochs=10",
    "editing.requests=6",
    "rounds.rounds=2",
    "execution.workers=2",
)
DIGITS = ("data.name=digits", "learning.model=small-cnn", "data.limit=1300", "data.test_limit=400")
GOAL = 1.15

T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return what some work returns and the wall-clock seconds that it took."""
    begin = time.perf_counter()
    return work(), time.perf_counter() - begin


def grid_of(axes: Sequence[str]) -> Grid:
    """Read the sweep."""
    here = SIZE if DEBIAN_FASHION.is_dir() else (*SIZE, *DIGITS)
    return read_grid(CONFIG, axes, here, seeds="0:1")


def one_by_one(grid: Grid, out: Path) -> int:
    """Return how many clients would train if every run was done on its own."""
    return sum(
        len(trainings(ask.experiment, ask.cell.seed, ask.cell.method)) for ask in asks(grid, out)
    )


def told(cost: Cost) -> str:
    """Say what a sweep took."""
    assert cost.ratio is not None
    return (
        f"{cost.runs} runs, {cost.trained} clients trained, {cost.reused} had trained: "
        f"{cost.wall_s:.1f} s for {cost.unique_s:.1f} s of unique work "
        f"(trainings {cost.trainings_s:.1f}, training on {cost.tunings_s:.1f}, "
        f"fusions {cost.fusions_s:.1f}), evaluations {cost.releases_s:.1f}: "
        f"ratio {cost.ratio:.2f}"
    )


def main() -> None:
    """Print what three sweeps took and the ratio of the first."""
    with tempfile.TemporaryDirectory() as name:
        out, grid = Path(name) / "sweep", grid_of(AXES)
        print(f"data set                {grid.points[0].experiment.data.name}")
        first, _ = timed(lambda: sweep(grid, out))
        print(f"sweep                   {told(first.cost)}")
        again, seconds = timed(lambda: sweep(grid, out))
        print(f"the same again          {again.skipped} runs finished before, {seconds:.1f} s")
        later, _ = timed(lambda: sweep(grid_of(LATER), out))
        print(f"other values of rho     {told(later.cost)}")
        alone = one_by_one(grid, out)
        print(f"each run on its own     {alone} clients would train, {first.cost.trained} did")
        assert not first.failed
        assert not later.failed
        print(f"ratio {first.cost.ratio:.2f} on {first.cost.workers} workers (goal {GOAL})")


if __name__ == "__main__":
    main()
