"""What the analysis says of F-SOSA's learning (arXiv 2610.35212, section V-B), measured.

risk  empirical risk of the fused model against width and local steps
gap   generalisation gap against rho N, beside a line that falls as 1 / sqrt(rho N)

The pictures are scikit-learn's digits.  Two networks learn them: that of the analysis
(`testbed.verification.two_layer`), which tells digits from 5 on from the others, with full
batches, squared loss and a projection without approximation; and the testbed's own,
learning.model=mlp, with ten classes, cross-entropy, both layers trained, and the training,
Fisher and fusion of every run.  Intervals are 95 % over seeds, which draw the pictures, the
partition, the subset and the initial weights.  What section V-A says of stability needs no
seeds: see `stability.py`.

Usage: python benchmarks/theory.py [--parts risk gap] [--seeds 5] [--out DIR]

--out  writes the figures theory-<part>.png there
"""

import argparse
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import floor, log10
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from torch import Tensor

from testbed.config import load, subset_size
from testbed.config.schema import DataConfig, FusionConfig
from testbed.data import Dataset, load_dataset, partition
from testbed.editing.coupling import draw
from testbed.files import write_bytes
from testbed.fusion.averaging import plain_mean
from testbed.fusion.fsosa import Projection, fuse
from testbed.learning.blocks import Block, State, blocks
from testbed.learning.classification import Classification, prepare
from testbed.learning.client import inform
from testbed.learning.conditioning import Conditioning, condition
from testbed.learning.contribution import Contribution
from testbed.learning.evaluation import evaluate
from testbed.reporting import intervals
from testbed.reporting.intervals import Interval
from testbed.reporting.paper.writing import number
from testbed.reporting.style import PAGE, Look, new_figure, render, styled
from testbed.streams import Streams
from testbed.verification.changes import fleet
from testbed.verification.two_layer import TwoLayer, limit_gram

DATA = DataConfig(test_share=0.5)  # Dirichlet, alpha 0.5
EVEN = DATA.model_copy(update={"partition": "iid"})
CLIENTS, RHO, SAMPLES = 20, 0.5, 200  # SAMPLES: of all clients, for the risk
WIDTHS, MANY_STEPS = (16, 64, 256, 1024, 4096, 16384), 300
WIDE, STEPS = 4096, (1, 3, 10, 30, 100, 300, 1000)
MLP_WIDTHS, MANY_EPOCHS = (16, 32, 64, 128, 256), 100
MLP_WIDE, MLP_EPOCHS = 256, (3, 10, 30, 100, 300)
SIZES, RHOS = (100, 200, 400, 800), (0.1, 0.25, 0.5, 1.0)  # N and rho, for the gap
GAP_WIDTH, MLP_GAP_WIDTH, MLP_GAP_EPOCHS = 1024, 64, 30

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

Curve = Mapping[float, Interval]
Gap = Callable[[Dataset, int, int], dict[float, float]]

ROBUST, PAPER = {"preset": "robust"}, {"preset": "paper"}
MLP_FUSIONS: Mapping[str, Mapping[str, object]] = {
    "K-FAC, preset robust": ROBUST,
    "K-FAC, preset paper": PAPER,
    "K-FAC, paper, c = 0.01": PAPER | {"damping": 0.01, "output_damping": 0.01},
}

_STYLES = (
    Look("#0072B2", "-", "o"),
    Look("#D55E00", (0, (4, 1.5)), "s"),
    Look("#009E73", (0, (1, 1)), "^"),
    Look("#CC79A7", (0, (5, 1.5, 1, 1.5)), "D"),
    Look("#000000", (0, (1, 2.5)), "X"),
    Look("#56B4E9", "-", "v"),
    Look("#E69F00", (0, (7, 2)), "P"),
    Look("#999999", (0, (3, 1, 1, 1, 1, 1)), "*"),
)
_FUSIONS = ("full Fisher", "K-FAC", "diagonal", "plain mean", "local models")
LOOKS = dict(zip((*_FUSIONS, *MLP_FUSIONS), _STYLES, strict=True)) | dict(
    zip([f"rho = {rho:g}" for rho in RHOS], _STYLES, strict=False)
)


def divide(
    dataset: Dataset, samples: int, streams: Streams, by: DataConfig = DATA
) -> list[np.ndarray]:
    """Draw N training pictures and divide them among the clients."""
    chosen = streams.rng("pictures").permutation(len(dataset.y_train))[:samples]
    parts = partition(dataset.y_train[chosen], CLIENTS, by, streams)
    return [chosen[part] for part in parts]


def members(rho: float, streams: Streams) -> list[int]:
    """Draw the subset; return the partitions of its members."""
    size = subset_size(rho, CLIENTS)
    return [each.partition for each in draw(fleet(CLIENTS), size, streams.rng("subset", size))]


# The network of the analysis.


def signed(x: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
    """Return pictures of norm 1 (n, d) and labels +-1."""
    flat = torch.from_numpy(x).double().flatten(1)
    return flat / flat.norm(dim=1, keepdim=True), torch.from_numpy(np.where(y >= 5, 1.0, -1.0))


def fusions(network: TwoLayer, ws: Sequence[Tensor], xs: Sequence[Tensor]) -> dict[str, Tensor]:
    """Fuse the clients' weights in every way."""
    layer = Block("hidden", tuple(network.start.shape), bias=False)
    sent = [
        Contribution(len(x), {"hidden.weight": w}, {"hidden": network.diagonal(w, x)})
        for w, x in zip(ws, xs, strict=True)
    ]
    return {
        "full Fisher": network.project(ws, xs, "full"),
        "K-FAC": network.project(ws, xs, "kfac"),
        "diagonal": fuse(sent, [layer], Projection(0.0, 0.0)).model["hidden.weight"],
        "plain mean": plain_mean(sent)["hidden.weight"],
    }


def analysed_risk(
    dataset: Dataset, width: int, steps: Sequence[int], seed: int
) -> list[dict[str, float]]:
    """Return the risk on the members' samples after so many local steps, by fusion."""
    streams = Streams(seed)
    parts = divide(dataset, SAMPLES, streams)
    data = [
        signed(dataset.x_train[parts[k]], dataset.y_train[parts[k]]) for k in members(RHO, streams)
    ]
    xs = [x for x, _ in data]
    x, y = torch.cat(xs), torch.cat([y for _, y in data])
    network = TwoLayer.drawn(width, x.shape[1], streams.rng("weights", width))
    rows = []
    for ws in zip(*(network.train(*each, steps) for each in data), strict=True):
        row = {name: network.loss(w, x, y) for name, w in fusions(network, ws, xs).items()}
        local = [network.loss(w, *each) for w, each in zip(ws, data, strict=True)]
        rows.append(row | {"local models": float(np.mean(local))})
    return rows


def analysed_gap(dataset: Dataset, samples: int, seed: int) -> dict[float, float]:
    """Return test risk less empirical risk with the full Fisher, by rho."""
    streams = Streams(seed)
    parts = divide(dataset, samples, streams)
    data = [signed(dataset.x_train[part], dataset.y_train[part]) for part in parts]
    test = signed(dataset.x_test, dataset.y_test)
    network = TwoLayer.drawn(GAP_WIDTH, test[0].shape[1], streams.rng("weights", GAP_WIDTH))
    ws = [next(network.train(*each, (MANY_STEPS,))) for each in data]
    gaps = {}
    for rho in RHOS:
        chosen = members(rho, streams)
        x, y = (torch.cat(each) for each in zip(*(data[k] for k in chosen), strict=True))
        fused = network.project([ws[k] for k in chosen], [data[k][0] for k in chosen], "full")
        gaps[rho] = network.loss(fused, *test) - network.loss(fused, x, y)
    return gaps


def assumption(dataset: Dataset, samples: int) -> list[str]:
    """Return N, lambda_0 and sqrt(2 y' H^-1 y / N), the bound's term of the target."""
    x, y = signed(dataset.x_train[:samples], dataset.y_train[:samples])
    gram = limit_gram(x)
    term = (2 * float(y @ torch.linalg.solve(gram, y)) / samples) ** 0.5
    return [str(samples), f"{float(torch.linalg.eigvalsh(gram)[0]):.4f}", f"{term:.2f}"]


# The testbed's network.


@dataclass(frozen=True, eq=False)
class Trained:
    """Clients of the testbed's network by partition, with K-FAC as it is computed."""

    task: Classification
    sent: Mapping[int, Contribution]

    def fused(self, chosen: Sequence[int], settings: Mapping[str, object]) -> State:
        """Fuse a subset as runs do whose section fusion has these settings."""
        config = FusionConfig.model_validate(settings)
        by = Conditioning.from_config(config)
        sent = [self.sent[part] for part in chosen]
        sent = [replace(one, fisher=condition(one.fisher, one.samples, by)) for one in sent]
        return fuse(sent, blocks(self.task.model), Projection.from_config(config)).model

    def loss(self, state: State, chosen: Sequence[int]) -> float:
        """Return the cross-entropy on a subset's samples."""
        x, y = (torch.cat(each) for each in zip(*map(self.task.samples, chosen), strict=True))
        return evaluate(self.task.model, state, x, y).loss


def trained(
    dataset: Dataset,
    samples: int,
    width: int,
    epochs: int,
    seed: int,
    chosen: Iterable[int],
    by: DataConfig = DATA,
) -> Trained:
    """Train `chosen` clients of the testbed's network."""
    settings = {
        "clients.pool": CLIENTS,
        "learning.model": "mlp",
        "learning.width": width,
        "learning.epochs": epochs,
        "learning.lr": 0.1,
        "learning.batch": 16,
        "learning.momentum": 0,
        "learning.device": "cpu",
        "fusion.preset": "paper",
    }
    task = replace(
        prepare(load(None, [f"{key}={value}" for key, value in settings.items()]), seed),
        dataset=dataset,
        parts=divide(dataset, samples, Streams(seed), by),
    )
    return Trained(task, {k: inform(task, k, task.train(k, task.initial)) for k in chosen})


def mlp_risk(dataset: Dataset, width: int, epochs: int, seed: int) -> dict[str, float]:
    """Return the risk on the members' samples, by fusion."""
    chosen = members(RHO, Streams(seed))
    clients = trained(dataset, SAMPLES, width, epochs, seed, chosen)
    local = [clients.loss(one.model, [part]) for part, one in clients.sent.items()]
    return {
        **{
            name: clients.loss(clients.fused(chosen, settings), chosen)
            for name, settings in MLP_FUSIONS.items()
        },
        "plain mean": clients.loss(plain_mean(list(clients.sent.values())), chosen),
        "local models": float(np.mean(local)),
    }


def mlp_gap(
    dataset: Dataset, samples: int, seed: int, by: DataConfig = DATA
) -> dict[float, float]:
    """Return test risk less empirical risk in the preset robust, by rho."""
    clients = trained(dataset, samples, MLP_GAP_WIDTH, MLP_GAP_EPOCHS, seed, range(CLIENTS), by)
    gaps = {}
    for rho in RHOS:
        chosen = members(rho, Streams(seed))
        fused = clients.fused(chosen, ROBUST)
        gaps[rho] = clients.task.score(fused).loss - clients.loss(fused, chosen)
    return gaps


# The parts.


def averaged(
    xs: Sequence[float], rows: Sequence[Sequence[Mapping[str, float]]]
) -> dict[str, Curve]:
    """Average curves over seeds; `rows` has a row per x for each seed."""
    return {
        name: {
            x: intervals.mean([of_seed[place][name] for of_seed in rows])
            for place, x in enumerate(xs)
        }
        for name in rows[0][0]
    }


def risk(seeds: int) -> Figure:
    """Measure, print and draw the empirical risk."""
    dataset, every = load_dataset(DATA), range(seeds)
    wide, mlp = "network of the analysis", "learning.model=mlp"
    by_width = [[analysed_risk(dataset, m, (MANY_STEPS,), s)[0] for m in WIDTHS] for s in every]
    by_steps = [analysed_risk(dataset, WIDE, STEPS, s) for s in every]
    by_mlp_width = [[mlp_risk(dataset, m, MANY_EPOCHS, s) for m in MLP_WIDTHS] for s in every]
    by_epochs = [[mlp_risk(dataset, MLP_WIDE, e, s) for e in MLP_EPOCHS] for s in every]
    panels = (
        (f"{wide}, {MANY_STEPS} local steps", "width", averaged(WIDTHS, by_width)),
        (f"{wide}, width {WIDE}", "local steps", averaged(STEPS, by_steps)),
        (f"{mlp}, {MANY_EPOCHS} local epochs", "width", averaged(MLP_WIDTHS, by_mlp_width)),
        (f"{mlp}, width {MLP_WIDE}", "local epochs", averaged(MLP_EPOCHS, by_epochs)),
    )
    with styled():
        figure = new_figure(PAGE, 5.6)
        for axes, (title, x, curves) in zip(figure.subplots(2, 2).flat, panels, strict=True):
            loss = "cross-entropy" if title.startswith(mlp) else "squared error"
            columns = zip(*(curve.values() for curve in curves.values()), strict=True)
            xs = next(iter(curves.values()))
            table(
                f"Empirical risk ({loss}), {title}",
                [x, *curves],
                [[f"{at:g}", *map(shown, row)] for at, row in zip(xs, columns, strict=True)],
            )
            draw_panel(axes, title, x, f"empirical risk ({loss})", curves)
            axes.set_xticks(list(xs), [f"{at:g}" for at in xs])
        legend(figure)
    return figure


def gap(seeds: int) -> Figure:
    """Measure, print and draw the generalisation gap."""
    dataset = load_dataset(DATA)
    premises = [assumption(dataset, N) for N in SIZES]
    table("The analysis's premise", ["N", "lambda_0", "sqrt(2 y' H^-1 y / N)"], premises)
    cases: tuple[tuple[str, str, Gap], ...] = (
        (f"analysis, width {GAP_WIDTH}, Dirichlet", "squared error", analysed_gap),
        (f"mlp, width {MLP_GAP_WIDTH}, Dirichlet", "cross-entropy", mlp_gap),
        (f"mlp, width {MLP_GAP_WIDTH}, i.i.d.", "cross-entropy", partial(mlp_gap, by=EVEN)),
    )
    with styled():
        figure = new_figure(PAGE, 2.9)
        for axes, (title, loss, measure) in zip(figure.subplots(1, 3), cases, strict=True):
            rows = {N: [measure(dataset, N, seed) for seed in range(seeds)] for N in SIZES}
            curves = {
                f"rho = {rho:g}": {
                    rho * N: intervals.mean([row[rho] for row in rows[N]]) for N in SIZES
                }
                for rho in RHOS
            }
            cells = [[name, *map(shown, curve.values())] for name, curve in curves.items()]
            table(
                f"Generalisation gap ({loss}), {title}", ["", *(f"N = {N}" for N in SIZES)], cells
            )
            points = sorted(
                (x, float(y.mean)) for curve in curves.values() for x, y in curve.items()
            )
            slope = np.polyfit(*np.log(np.array(points).T), 1)[0]
            print(f"\nslope of log gap over log rho N: {slope:.2f}; the reference line's: -0.50")
            draw_panel(axes, title, "rho N", f"gap ({loss})", curves)
            xs = np.array([points[0][0], points[-1][0]])
            axes.plot(xs, points[0][1] * (xs[0] / xs) ** 0.5, "0.5", label="1 / sqrt(rho N)")
        legend(figure)
    return figure


def draw_panel(axes: Axes, title: str, x: str, y: str, curves: Mapping[str, Curve]) -> None:
    """Draw curves with their intervals over logarithmic axes."""
    for name, curve in curves.items():
        look = LOOKS[name]
        intervals = [(y.mean, y.low, y.high) for y in curve.values()]
        means, low, high = np.array(intervals, dtype=float).T
        axes.errorbar(list(curve), means, (means - low, high - means), elinewidth=0.8, label=name,
                      color=look.color, linestyle=look.dashes, marker=look.marker)  # fmt: skip
    axes.set(xscale="log", yscale="log", title=title, xlabel=x, ylabel=y)
    axes.xaxis.set_minor_formatter(NullFormatter())


def legend(figure: Figure) -> None:
    """Put one legend above all axes."""
    entries = {
        name: handle
        for axes in figure.axes
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    columns = 5 if len(entries) == 5 else 4  # no row of a single entry
    figure.legend(entries.values(), entries.keys(), loc="outside upper center", ncols=columns)


def shown(value: Interval) -> str:
    """Write a mean and half of its interval, with as many digits as that says something of."""
    if not value.half:
        return f"{float(value.mean):.3g} ± 0"
    if (power := floor(log10(float(value.mean))) if value.mean > 0 else 0) >= -4:
        return number(value)
    return f"({number(value, 10.0**power)}) × 10{str(power).translate(RAISED)}"


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table."""
    print(f"\n{title}\n\n| {' | '.join(head)} |\n|{'---:|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


PARTS = {"risk": risk, "gap": gap}


def main() -> None:
    """Print tables, and draw what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="folder for the figures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.parts:
        begin = time.process_time()
        figure = PARTS[name](options.seeds)
        print(f"\n{name}: {time.process_time() - begin:.0f} s of processor time", flush=True)
        if options.out:
            write_bytes(options.out / f"theory-{name}.png", render(figure, "png"))


if __name__ == "__main__":
    main()
