"""What 50 to 5,000 clients ask of the coordinator: memory, and time of an edit.

LeNet on pictures of 28x28, preset robust, one thread.  An edit is `fsosa.apply` with the
inspection of what clients send and the real fusion; their training is not counted.  The first
--trained contributions are real ones, of 60 of scikit-learn's digits each, enlarged, 5
epochs.  All others are made up: A of one client, G of another and the mean of their weights
(of a diagonal Fisher, too, the mean), so that they have the shapes, ranks and spectra of real
ones and no two are equal.

Each line is measured in a process of its own: `held` is what it grew by when the state was
there, `peak` the highest mark during a triggered edit.  Times are processor seconds.  A line
that would need more than --limit is projected by the straight line through the two largest
that were measured, and marked with ~.

Usage: python benchmarks/scale.py [--kinds kfac diagonal] [--limit 4] [--trained 100] [--out DIR]

--limit  memory in GiB
--out    writes the figures scale-memory.png and scale-time.png there
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch.nn import functional

from testbed.config.schema import DataConfig, FusionConfig
from testbed.data import load_dataset
from testbed.editing import fsosa
from testbed.editing.clients import Client, normal_form
from testbed.editing.fsosa import Parameters, State
from testbed.editing.orders import Train, Work
from testbed.editing.storage import storage_bytes
from testbed.files import write_bytes
from testbed.fusion.fsosa import Projection, fuse
from testbed.learning.acceptance import inspect
from testbed.learning.blocks import blocks
from testbed.learning.classification import Classification
from testbed.learning.client import inform
from testbed.learning.conditioning import Conditioning
from testbed.learning.contribution import (
    Contribution,
    contribution_bytes,
    deserialise,
    serialise,
    serialise_model,
)
from testbed.learning.factors import Diagonal, Factor, Kind, Kronecker
from testbed.learning.models import build
from testbed.learning.training import Recipe
from testbed.reporting.style import PAGE, Look, legend_above, new_figure, render, styled
from testbed.streams import Streams
from testbed.verification.changes import fleet

SHAPE, CLASSES, SAMPLES = (1, 28, 28), 10, 60
HALF = (
    (50, 25),
    (100, 50),
    (200, 100),
    (500, 250),
    (1000, 500),
    (2000, 1000),
    (5000, 2500),
)  # M, P
FIXED = ((500, 25), (5000, 25))
UNTRIGGERED = 200  # edits to time, at most half of those outside the subset
GIB, MIB = 2**30, 2**20
NAMES: Mapping[Kind, str] = {"kfac": "K-FAC", "diagonal": "diagonal"}
LOOKS = (
    Look("#0072B2", "-", "o"),
    Look("#D55E00", (0, (4, 1.5)), "s"),
    Look("#009E73", (0, (1, 1)), "^"),
    Look("#CC79A7", (0, (5, 1.5, 1, 1.5)), "D"),
)


@dataclass(frozen=True)
class Line:
    """What a population and a subset size cost; memory in bytes, times in seconds."""

    M: int
    P: int
    state: float
    held: float
    peak: float
    untriggered: float
    triggered: float
    iterations: float
    measured: bool = True


def stock(kind: Kind, count: int, folder: Path) -> None:
    """Train clients and store what they send."""
    data, streams = load_dataset(DataConfig()), Streams(0)
    pictures = functional.interpolate(torch.from_numpy(data.x_train), SHAPE[1:], mode="bilinear")
    parts = []
    for number in range(count):
        rng = streams.rng("samples", number)
        shares = rng.dirichlet(np.full(CLASSES, 0.5))[data.y_train]
        parts.append(rng.choice(len(shares), SAMPLES, p=shares / shares.sum()))
    model = build("lenet", SHAPE, CLASSES, 0)
    task = Classification(
        dataset=replace(data, x_train=pictures.numpy()),
        parts=parts,
        model=model,
        initial={name: value.clone() for name, value in model.state_dict().items()},
        recipe=Recipe(epochs=5, lr=0.01, batch=16, momentum=0.9),
        kind=kind,
        estimator="exact",
        streams=streams,
        conditioning=Conditioning.from_config(FusionConfig()),
    )
    for number in range(count):
        sent = inform(task, number, task.train(number, task.initial))
        write_bytes(folder / f"{number}.safetensors", serialise(sent))


def contribution(number: int, folder: Path, stocked: int) -> Contribution:
    """Return what a client sends: stored, or made up of what two others sent."""
    one = deserialise((folder / f"{number % stocked}.safetensors").read_bytes())
    if number < stocked:
        return one
    offset = 1 + (number // stocked - 1) % (stocked - 1)
    partner = (number + offset) % stocked
    other = deserialise((folder / f"{partner}.safetensors").read_bytes())
    return Contribution(
        one.samples,
        {name: (value + other.model[name]) / 2 for name, value in one.model.items()},
        {name: mixed(factor, other.fisher[name]) for name, factor in one.fisher.items()},
    )


def mixed(one: Factor, other: Factor) -> Factor:
    """Make up a factor of two of a kind."""
    if isinstance(one, Diagonal):
        assert isinstance(other, Diagonal)
        return Diagonal((one.f + other.f) / 2)
    assert isinstance(other, Kronecker)
    return Kronecker(a=one.a, g=other.g)


def resident(mark: str) -> int:
    """Return a memory mark of this process in bytes: VmRSS, now, or VmHWM, the highest."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(mark):
            return 1024 * int(line.split()[1])
    raise OSError(f"/proc/self/status has no {mark}")


def measure(kind: Kind, M: int, P: int, folder: Path, stocked: int) -> Line:
    """Build the state, then edit it with and without touching the subset."""
    torch.set_num_threads(1)
    model = build("lenet", SHAPE, CLASSES, 0)
    layers, initial = blocks(model), model.state_dict()

    def driven(work: Work[Any]) -> tuple[Any, float]:
        """Return a method's result and the seconds it took at the coordinator."""
        answer: Any = None
        spent = 0.0
        while True:
            begin = time.process_time()
            try:
                order = work.send(answer)
            except StopIteration as finished:
                return finished.value, spent + time.process_time() - begin
            spent += time.process_time() - begin
            if isinstance(order, Train):
                answer = {c: contribution(c.partition, folder, stocked) for c in order.clients}
            begin = time.process_time()
            if isinstance(order, Train):
                assert not any(inspect(sent, layers, initial, kind) for sent in answer.values())
            else:
                answer = fuse(order.contributions, layers, Projection())
            spent += time.process_time() - begin

    def left(state: State, client: Client) -> tuple[State, float]:
        """Return the state without a client, and the seconds that took."""
        begin = time.process_time()
        change = normal_form(state.population, [("leave", client)]).change
        asked = time.process_time() - begin
        (state, _), spent = driven(fsosa.apply(state, change, parameters, rng))
        return state, asked + spent

    parameters, rng = Parameters(P), Streams(0).rng("subsets", M, P)
    # Libraries that a first fusion loads are no part of the state.
    fuse([contribution(k, folder, stocked) for k in range(2)], layers, Projection())
    before = resident("VmRSS")
    state, _ = driven(fsosa.init(fleet(M), parameters, rng))
    held = resident("VmRSS") - before
    outside = sorted(set(state.population) - set(state.subset))
    some = outside[: min(UNTRIGGERED, len(outside) // 2)]
    untriggered = 0.0
    for client in some:
        state, seconds = left(state, client)
        untriggered += seconds / len(some)
    Path("/proc/self/clear_refs").write_text("5")  # the highest mark starts anew
    state, triggered = left(state, state.subset[0])
    return Line(
        M=M,
        P=P,
        state=storage_bytes(state),
        held=held,
        peak=resident("VmHWM") - before,
        untriggered=untriggered,
        triggered=triggered,
        iterations=max(solve.iterations for solve in state.fused.solves.values()),
    )


def projected(M: int, P: int, known: Sequence[Line]) -> Line:
    """Continue the straight line in P through the last two lines that are known."""
    one, other = known[-2:]
    share = (P - one.P) / (other.P - one.P)

    def at(name: str) -> float:
        start, end = getattr(one, name), getattr(other, name)
        return float(start + share * (end - start))

    names = [field.name for field in fields(Line) if field.type is float]
    return Line(M, P, **{name: at(name) for name in names}, measured=False)


def lines(kind: Kind, trained: int, limit: float) -> tuple[list[Line], list[Line]]:
    """Measure what fits into the limit, in bytes; return lines with P = M / 2 and with 25."""
    with TemporaryDirectory() as folder:
        stock(kind, trained, Path(folder))

        def line(M: int, P: int) -> Line:
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                return pool.submit(measure, kind, M, P, Path(folder), trained).result()

        half = [line(*size) for size in HALF[:2]]
        for size in HALF[2:]:
            expected = projected(*size, half)
            half.append(line(*size) if expected.peak <= limit else expected)
        return half, [half[0], *(line(*size) for size in FIXED)]


def draw_memory(found: Mapping[Kind, Sequence[Line]]) -> Figure:
    """Draw memory over P."""
    with styled():
        figure = new_figure(PAGE, 2.9)
        for axes, (kind, half) in zip(
            figure.subplots(1, 2, sharey=True), found.items(), strict=False
        ):
            for look, name in zip(LOOKS, ("peak", "held", "state"), strict=False):
                draw_line(
                    axes, half, "P", [getattr(each, name) / MIB for each in half], look, name
                )
            axes.set(title=NAMES[kind], xlabel="members of the subset, P", ylabel="MiB")
        legend_above(figure, figure.axes[0])
    return figure


def draw_time(half: Mapping[Kind, Sequence[Line]], fixed: Mapping[Kind, Sequence[Line]]) -> Figure:
    """Draw the time of edits over P and over M."""
    with styled():
        figure = new_figure(PAGE, 2.9)
        left, right = figure.subplots(1, 2)
        for look, (kind, several) in zip(LOOKS, half.items(), strict=False):
            name = NAMES[kind]
            draw_line(left, several, "P", [each.triggered for each in several], look, name)
            draw_line(
                right,
                several,
                "M",
                [1000 * each.untriggered for each in several],
                look,
                f"{name}, P = M / 2",
            )
        for look, (kind, several) in zip(LOOKS[2:], fixed.items(), strict=False):
            draw_line(
                right,
                several,
                "M",
                [1000 * each.untriggered for each in several],
                look,
                f"{NAMES[kind]}, P = 25",
            )
        left.set(title="subset changed", xlabel="members of the subset, P", ylabel="seconds")
        right.set(title="subset untouched", xlabel="clients, M", ylabel="milliseconds")
        left.legend()
        right.legend()
    return figure


def draw_line(
    axes: Axes,
    several: Sequence[Line],
    across: str,
    values: Sequence[float],
    look: Look,
    name: str,
) -> None:
    """Draw values over P or M; what is projected has open marks."""
    xs = [getattr(each, across) for each in several]
    axes.plot(xs, values, color=look.color, linestyle=look.dashes, label=name)
    for x, y, each in zip(xs, values, several, strict=True):
        axes.plot(
            x,
            y,
            look.marker,
            color=look.color,
            markerfacecolor=look.color if each.measured else "white",
        )
    axes.set(xscale="log", yscale="log")


def print_table(kind: Kind, several: Sequence[Line]) -> None:
    """Print lines as a Markdown table."""
    head = (
        "M",
        "P",
        "state MiB",
        "held MiB",
        "peak MiB",
        "untouched ms",
        "changed s",
        "iterations",
    )
    print(f"\n{NAMES[kind]}\n\n| {' | '.join(head)} |\n|{'---:|' * len(head)}")
    for each in several:
        mark = "" if each.measured else "~"
        memory = (f"{value / MIB:.0f}" for value in (each.state, each.held, each.peak))
        times = (f"{1000 * each.untriggered:.3f}", f"{each.triggered:.2f}")
        cells = " | ".join(mark + cell for cell in (*memory, *times))
        iterations = f"{each.iterations:.0f}" if each.measured else ""
        print(f"| {each.M} | {each.P} | {cells} | {iterations} |")


def print_messages(kinds: Sequence[Kind]) -> None:
    """Print what a request sends."""
    model = build("lenet", SHAPE, CLASSES, 0)
    state = model.state_dict()
    down = len(serialise_model(state))
    print(f"\nThe model is {down / 1024:.0f} KiB; sent to everybody it is")
    for M in dict.fromkeys(M for M, _ in HALF):
        print(f"* {M * down / MIB:.0f} MiB for {M} clients")
    for kind in kinds:
        up = contribution_bytes(state, blocks(model), kind)
        print(f"A contribution with {NAMES[kind]} is {up / 1024:.0f} KiB")


def main() -> None:
    """Print a table for each kind of Fisher; draw the figures where they are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kinds", nargs="+", choices=list(NAMES), default=list(NAMES))
    parser.add_argument("--limit", type=float, default=4.0)
    parser.add_argument("--trained", type=int, default=100)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    half, fixed = {}, {}
    for kind in options.kinds:
        half[kind], fixed[kind] = lines(kind, options.trained, options.limit * GIB)
        print_table(kind, [*half[kind], *fixed[kind][1:]])
    print_messages(options.kinds)
    if options.out:
        write_bytes(options.out / "scale-memory.png", render(draw_memory(half), "png"))
        write_bytes(options.out / "scale-time.png", render(draw_time(half, fixed), "png"))


if __name__ == "__main__":
    main()
