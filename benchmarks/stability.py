"""How stable F-SOSA is (arXiv 2610.35212, section V-A): exact total variation distances.

Nothing here is drawn or estimated.  For few clients, the laws of the subset before and after
an edit, and how often the code's coupling changes it, come from walking through all outcomes;
the law of the *released model* from training everybody on scikit-learn's digits, fusing every
subset and comparing models byte by byte.  For many clients there is the closed form.  All of
it stands beside the bounds of the analysis: rho for one change of a population that has not
shrunk, min(1, 2 rho k) for k changes of one that has not shrunk below half.

Usage: python benchmarks/stability.py [--out DIR]

--out  writes the figure theory-stability.png there
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.config import load, subset_size
from testbed.editing.clients import Change, Client
from testbed.editing.coupling import couple
from testbed.files import write_bytes
from testbed.fusion.fsosa import Projection, fuse
from testbed.learning.blocks import blocks
from testbed.learning.client import inform, prepare
from testbed.learning.contribution import Contribution, serialise_model
from testbed.learning.task import Task
from testbed.reporting.style import PAGE, Look, new_figure, render, styled
from testbed.verification.changes import fleet
from testbed.verification.enumeration import outcomes
from testbed.verification.exact import Law, uniform
from testbed.verification.variation import bound, distance, subset_distance

M, P = 6, 3
CHANGES = ((1, 0), (0, 1), (1, 1), (2, 1), (1, 2), (2, 2), (3, 0))  # leaves and joins
LARGE, RHOS = (50, 500, 5000), (0.1, 0.25, 0.5)
BATCH_POPULATION, BATCH_RHO = 50, 0.1
BATCHES = range(1, 26)
LOOKS = (
    Look("#0072B2", "-", "o"),
    Look("#D55E00", (0, (4, 1.5)), "s"),
    Look("#009E73", (0, (5, 1.5, 1, 1.5)), "^"),
    Look("#CC79A7", (0, (7, 2)), "D"),
)
LEARNING = (
    "clients.pool=20",
    "learning.model=mlp",
    "learning.width=16",
    "learning.epochs=3",
    "learning.lr=0.1",
    "learning.batch=16",
    "learning.device=cpu",
)


def released(
    task: Task, sent: Mapping[int, Contribution], population: Sequence[Client], size: int
) -> dict[bytes, Fraction]:
    """Return the law of the released model's bytes: one fusion per subset."""
    law = defaultdict[bytes, Fraction](Fraction)
    for subset, mass in uniform(tuple(population), size).items():
        contributions = [sent[client.partition] for client in subset]
        law[serialise_model(fuse(contributions, blocks(task.model), Projection()).model)] += mass
    return law


def enumerated(population: int, size: int, leaves: int, joins: int) -> tuple[Fraction, Fraction]:
    """Return TV of the subset's laws before and after, and how often the coupling changes it.

    The production coupling goes through every outcome of its random numbers, from every
    subset.
    """
    everyone = fleet(population + joins)
    present, change = everyone[:population], Change.of(everyone[:leaves], everyone[population:])
    before, changed = uniform(present, size), Fraction(0)
    after: Law = defaultdict(Fraction)
    for subset, mass in before.items():
        for probability, result in outcomes(partial(couple, present, subset, change, size)):
            after[result] += mass * probability
            changed += mass * probability * (result != subset)
    return distance(before, after), changed


def small() -> None:
    """Print the distances of few clients, of subsets and of models."""
    task = prepare(load(None, LEARNING), 0)
    everyone = fleet(M + max(joins for _, joins in CHANGES))
    sent = {k: inform(task, k, task.train(k, task.initial)) for k in range(len(everyone))}
    before, rows = released(task, sent, everyone[:M], P), []
    for leaves, joins in CHANGES:
        subset, changed = enumerated(M, P, leaves, joins)
        model = distance(before, released(task, sent, everyone[leaves : M + joins], P))
        closed = subset_distance(M, P, leaves, joins)
        limit = Fraction(P, M) if leaves + joins == 1 else bound(Fraction(P, M), leaves + joins)
        rows.append([leaves, joins, model, subset, changed, closed, limit])
    head = ("leaves", "joins", "TV, model", "TV, subset", "Pr[change]", "closed form", "bound")
    table(f"M = {M}, P = {P}", head, rows)


def large() -> None:
    """Print the closed form for one change of many clients."""
    rows: list[Sequence[object]] = []
    for initial in LARGE:
        for rho in RHOS:
            size, half = subset_size(rho, initial), initial // 2
            found = (
                subset_distance(initial, size, departures=1),
                subset_distance(initial, size, arrivals=1),
                subset_distance(half, size, arrivals=1),
            )
            rows.append([initial, rho, size, *(f"{float(each):.4f}" for each in found)])
    table("One change", ("M0", "rho", "P", "leave of M0", "join to M0", "join to M0 / 2"), rows)


def batches() -> dict[str, list[Fraction]]:
    """Return the closed form for batches of k changes, by what they are."""
    M0 = BATCH_POPULATION
    size, half = subset_size(BATCH_RHO, M0), M0 // 2
    return {
        "k leaves of M0": [subset_distance(M0, size, departures=k) for k in BATCHES],
        "k joins to M0": [subset_distance(M0, size, arrivals=k) for k in BATCHES],
        "half of each, at M0": [subset_distance(M0, size, -(-k // 2), k // 2) for k in BATCHES],
        "k joins to M0 / 2": [subset_distance(half, size, arrivals=k) for k in BATCHES],
    }


def draw() -> Figure:
    """Draw distances and bounds, for one change and for batches."""
    M0, half = BATCH_POPULATION, BATCH_POPULATION // 2
    sizes = range(1, half + 1)
    single = {
        "leave of M0": [subset_distance(M0, size, departures=1) for size in sizes],
        "leave down to M0 / 2": [subset_distance(half + 1, size, departures=1) for size in sizes],
    }
    with styled():
        figure = new_figure(PAGE, 2.8)
        left, right = figure.subplots(1, 2)
        rhos = [size / M0 for size in sizes]
        for look, (name, values) in zip(LOOKS, single.items(), strict=False):
            plot(left, rhos, values, look, name)
        small = [(size / M, enumerated(M, size, 1, 0)[0]) for size in range(1, M // 2 + 1)]
        left.plot(*zip(*small, strict=True), "k*", markersize=8, label=f"M0 = {M}, enumerated")
        left.plot(rhos, rhos, "k-", linewidth=0.7, label="bound ρ")
        left.plot(rhos, [2 * rho for rho in rhos], "k:", label="2 ρ")
        left.set(
            title=f"one change, M0 = {M0}", xlabel="sampling ratio ρ", ylabel="total variation"
        )
        for look, (name, values) in zip(LOOKS, batches().items(), strict=True):
            plot(right, BATCHES, values, look, name)
        limits = [bound(Fraction(repr(BATCH_RHO)), k) for k in BATCHES]
        right.plot(BATCHES, limits, "k-", linewidth=0.7, label="bound min(1, 2 ρ k)")
        right.set(
            title=f"batch, M0 = {M0}, ρ = {BATCH_RHO}",
            xlabel="changes k",
            ylabel="total variation",
        )
        for axes in (left, right):
            axes.legend()
    return figure


def plot(axes: Axes, x: Sequence[float], y: Sequence[Fraction], look: Look, name: str) -> None:
    """Draw a line that is told from the others without colour, too."""
    axes.plot(
        x,
        [float(each) for each in y],
        color=look.color,
        linestyle=look.dashes,
        marker=look.marker,
        markevery=4,
        label=name,
    )


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a Markdown table."""
    print(f"\n{title}\n\n| {' | '.join(head)} |\n|{'---:|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")


def main() -> None:
    """Print the tables; draw the figure where it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, help="folder for the figure")
    options = parser.parse_args()
    torch.set_num_threads(1)
    begin = time.process_time()
    small()
    large()
    table(
        f"k changes at once, M0 = {BATCH_POPULATION}, rho = {BATCH_RHO}",
        ("k", *batches(), "bound"),
        [
            (
                k,
                *(f"{float(values[k - 1]):.3f}" for values in batches().values()),
                f"{float(bound(Fraction(repr(BATCH_RHO)), k)):.3f}",
            )
            for k in (1, 2, 3, 5, 10, 20, 25)
        ],
    )
    if options.out:
        write_bytes(options.out / "theory-stability.png", render(draw(), "png"))
    print(f"\n{time.process_time() - begin:.0f} s of processor time")


if __name__ == "__main__":
    main()
