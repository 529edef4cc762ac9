"""Runs without learning: sweep points in a minute on two cores, and the memory of long runs.

A point is one method, one seed and one setting of 31 requests among 50 of 100 clients, with its
run folder: six editing methods, values of rho, three seeds.  Two processes share them.  Beside
the wall-clock stands what processor time alone would allow, for a machine with other work.

A long run is one of `fsosa` among about 20 of 100 clients, whose traffic is drawn at random.  It
is done in a process of its own, whose memory is taken when all is imported and a short run done,
and at its peak during the long one.  Its totals are then added up from its ledger in another.

Usage: python benchmarks/cost.py [--points N] [--requests N,N,...]
"""

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from testbed.config import Experiment
from testbed.experiments.run import Cell, cells, run, run_cell
from testbed.experiments.tables import Stored
from testbed.ledger import LedgerRow, add_up, in_order
from testbed.simulation.outline import outline
from testbed.simulation.placeholder import Placeholder

METHODS = ("fsosa", "retrain", "finetune", "federaser", "fedrr", "fats-cu")
SEEDS = (0, 1, 2)
CORES = 2
GOAL = 1000  # points a minute
MEGA = 1e6

Point = tuple[Experiment, Cell]


def setting(**sections: Any) -> Experiment:
    """Return an experiment without learning, on the digits that come with scikit-learn."""
    base = {
        "fidelity": "cost",
        "mobility": {
            "source": "schedule",
            "schedule": {"vehicles": 50, "changes": 31, "kind": "mixed", "interval": 600},
        },
        "clients": {"initial": 50, "pool": 100},
        "learning": {"model": "small-cnn"},
    }
    return Experiment.model_validate({**base, **sections})


def points(count: int, out: Path) -> list[Point]:
    """Return `count` points of a sweep over rho, methods and seeds."""
    several = -(-count // (len(METHODS) * len(SEEDS)))
    found = []
    for number in range(several):
        editing = {"rho": round(0.1 + 0.8 * number / several, 4), "methods": METHODS}
        experiment = setting(editing=editing, seeds=SEEDS)
        folder = out / f"rho={editing['rho']}"
        found += [(experiment, cell) for cell in cells(experiment, folder)]
    return found[:count]


def perform(some: Sequence[Point]) -> float:
    """Do points; return the processor time that they took."""
    torch.set_num_threads(1)
    begin = time.process_time()
    for experiment, cell in some:
        task = outline(experiment, cell.seed)
        run_cell(experiment, cell, task, Placeholder(task))
    return time.process_time() - begin


def rate(count: int) -> None:
    """Measure points in a minute."""
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, spawn.Pool(CORES) as pool:
        wanted = points(count, Path(folder) / "points")
        pool.map(perform, [[point] for point in points(CORES, Path(folder) / "first")], 1)
        begin = time.perf_counter()
        # Dealt in small hands, so that both have as much of every method.
        hands = [wanted[start : start + 6] for start in range(0, len(wanted), 6)]
        spent = sum(pool.imap_unordered(perform, hands))
        took = time.perf_counter() - begin
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    print(f"{len(wanted)} points, {size / len(wanted) / 1e3:.0f} kB each, in {took:.1f} s")
    print(f"  {60 * len(wanted) / took:.0f} points a minute by the clock (goal {GOAL})")
    print(f"  {60 * CORES * len(wanted) / spent:.0f} by processor time, {CORES} cores")


def speed(epochs: int = 10) -> None:
    """Compare one small run with and without learning, by processor time."""
    torch.set_num_threads(1)
    spent = {}
    with tempfile.TemporaryDirectory() as folder:
        for fidelity in ("cost", "train", "cost", "train"):
            experiment = setting(
                fidelity=fidelity,
                editing={"methods": ("fsosa",)},
                learning={"model": "small-cnn", "epochs": epochs, "batch": 16},
            )
            begin = time.process_time()
            list(run(experiment, Path(folder) / fidelity, force=True))
            spent[fidelity] = time.process_time() - begin
    print(
        f"the smallest real run, {epochs} epochs of 8x8 pixels, takes "
        f"{spent['train'] / spent['cost']:.0f} times as long as the same run without learning"
    )


def peak() -> float:
    """Return the most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEGA


def go(requests: int, out: Path) -> tuple[float, float, float]:
    """Do a long run; return memory before and after, and the processor time."""
    torch.set_num_threads(1)

    def one(number: int, folder: Path) -> None:
        # 20 members on average; a join and a leave in two minutes.
        arrivals = {"per_minute": 0.5, "mean_stay": 2400}
        experiment = setting(
            mobility={"source": "generated", "arrivals": arrivals, "end": 63.0 * (number + 100)},
            clients={"initial": 10, "pool": 100},
            editing={"requests": number, "methods": ("fsosa",)},
        )
        list(run(experiment, folder))

    one(100, out / "short")
    before, begin = peak(), time.process_time()
    one(requests, out / "long")
    return before, peak(), time.process_time() - begin


def total(out: Path) -> tuple[float, float, int]:
    """Add up a ledger; return memory before and after, and the requests."""
    (path,) = out.glob("long/*/*/ledger.parquet")
    before = peak()
    requests = add_up(in_order(Stored(path, LedgerRow))).requests
    return before, peak(), requests


def apart(work: Callable[..., Any], *arguments: Any) -> Any:
    """Do some work in a new process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def memory(requests: int) -> None:
    """Measure a long run, and the adding up of its ledger."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        before, after, spent = apart(go, requests, out)
        start, end, counted = apart(total, out)
        size = sum(path.stat().st_size for path in (out / "long").rglob("*") if path.is_file())
    print(
        f"{requests:>9,} requests: {before:.0f} MB, +{after - before:.0f} MB; "
        f"{1e3 * spent / requests:.2f} ms each; {size / MEGA:.0f} MB on disk; "
        f"totals of {counted:,}: {start:.0f} MB, +{end - start:.0f} MB"
    )


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description="Measure runs without learning.")
    parser.add_argument("--points", type=int, default=720)
    parser.add_argument("--requests", default="10000,100000", help="lengths of long runs")
    given = parser.parse_args()
    if given.points:
        rate(given.points)
        speed()
    for number in filter(None, given.requests.split(",")):
        memory(int(number))


if __name__ == "__main__":
    main()
