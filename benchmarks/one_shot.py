"""Test accuracy of every one-shot fusion rule beside published figures.

Five clients train LeNet on Fashion-MNIST from a common initial model, 30 epochs of SGD with
lr 0.01, momentum 0.9 and batch 64, pictures standardised, and are fused once.  The published
figures are a third party's re-run of the code of FedFisher (AISTATS 2024): mean and standard
deviation over five seeds, of which the split of the data is not part.  The split here follows
the same rule with the same draws: each client has a class distribution from Dirichlet(alpha),
and the pictures of a class are divided in proportion.  Two things differ: rules that choose
do so on pictures that clients held out (1 % of theirs, about 500 in all), where the authors'
server has 500 training pictures; and uploads are not compressed, save as a rule itself says.

Usage
-----
python benchmarks/one_shot.py [--data DIR] [--store DIR] [--alphas 0.2 0.1 0.05] [--seeds 3]
                              [--rules fedavg regmean ...] [--epochs 30] [--limit N]
                              [--workers 2]

--data    folder of Fashion-MNIST's idx files, unless they are where Debian's package puts them
--store   keeps what clients send between calls, one safetensors file per client and statistic,
          so that rules can be run again without training
--limit   the first N training pictures only; with --epochs, a small version
"""

import argparse
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, pstdev
from tempfile import TemporaryDirectory

import numpy as np
import torch

from testbed.config.schema import DataConfig, FisherConfig, FusionConfig
from testbed.data import Dataset, IntArray, hold_out, load_dataset
from testbed.files import write_bytes
from testbed.fusion.rules import RULES, network_of, rule
from testbed.learning.classification import Classification
from testbed.learning.conditioning import Conditioning
from testbed.learning.contribution import Contribution, deserialise, serialise
from testbed.learning.models import build
from testbed.learning.statistics import chooses, contribute, statistic_bytes
from testbed.learning.training import Recipe
from testbed.streams import Streams

CLIENTS, HELD_OUT = 5, 0.01
SPLIT_SEED = 3  # the authors' np.random.seed
MEAN, DEVIATION = np.float32(0.1307), np.float32(0.3081)  # theirs for Fashion-MNIST
PUBLISHED = {  # alpha: rule: mean and standard deviation of the test accuracy in percent
    0.2: {
        "fedavg": (59.70, 4.29),
        "otfusion": (59.41, 4.85),
        "pfnm": (64.67, 3.44),
        "regmean": (72.34, 3.03),
        "dense": (72.43, 1.86),
        "fisher-merging": (59.78, 1.27),
        "fedfisher-diagonal": (62.31, 2.25),
        "fedfisher": (74.93, 3.57),
    },
    0.1: {
        "fedavg": (42.74, 5.51),
        "otfusion": (44.06, 2.77),
        "pfnm": (57.95, 4.72),
        "regmean": (58.82, 2.73),
        "dense": (49.14, 2.47),
        "fisher-merging": (56.47, 1.98),
        "fedfisher-diagonal": (56.23, 2.09),
        "fedfisher": (67.79, 4.68),
    },
    0.05: {
        "fedavg": (37.37, 2.11),
        "otfusion": (38.20, 0.99),
        "pfnm": (43.79, 4.16),
        "regmean": (54.86, 4.48),
        "dense": (42.24, 4.09),
        "fisher-merging": (45.50, 6.30),
        "fedfisher-diagonal": (45.87, 5.06),
        "fedfisher": (54.87, 3.08),
    },
}

RULE_NAMES = ["fsosa", *RULES]
HEADER = (
    "| rule | accuracy, mean ± std | published, mean ± 2 std | within | - FedAvg "
    "| published - FedAvg | seconds | MiB a client |\n|---|---:|---:|---|---:|---:|---:|---:|"
)


@dataclass(frozen=True)
class Setting:
    """What the local models depend on, beside the seed."""

    alpha: float
    epochs: int
    limit: int


@dataclass(frozen=True)
class Result:
    """One rule in one setting with one seed."""

    accuracy: float
    seconds: float
    upload: int


def published_split(labels: IntArray, alpha: float) -> tuple[IntArray, ...]:
    """Divide pictures among clients by the authors' rule and draws."""
    draws = np.random.RandomState(SPLIT_SEED)
    classes = int(labels.max()) + 1
    weights = np.stack([draws.dirichlet(np.full(classes, alpha)) for _ in range(CLIENTS)])
    owned: list[list[IntArray]] = [[] for _ in range(CLIENTS)]
    for label in range(classes):
        order = np.flatnonzero(labels == label)
        draws.shuffle(order)
        shares = weights[:, label] / weights[:, label].sum()
        cuts = (shares.cumsum() * len(order)).astype(int)[:-1]
        for client, part in enumerate(np.split(order, cuts)):
            owned[client].append(part)
    return tuple(np.sort(np.concatenate(parts)) for parts in owned)


def prepare(setting: Setting, seed: int, data: Path | None) -> Classification:
    """Set up the clients of one cell."""
    full = load_dataset(DataConfig.model_validate({"name": "fashion-mnist", "path": data}))
    chosen = slice(0, setting.limit or None)
    dataset = Dataset(
        full.name,
        (full.x_train[chosen] - MEAN) / DEVIATION,
        full.y_train[chosen],
        (full.x_test - MEAN) / DEVIATION,
        full.y_test,
        full.classes,
        full.fingerprint,
    )
    streams = Streams(seed)
    parts, holdouts = hold_out(
        published_split(dataset.y_train, setting.alpha), HELD_OUT, Streams(SPLIT_SEED)
    )
    model = build("lenet", (1, 28, 28), len(dataset.classes), streams.integer("model"))
    return Classification(
        dataset=dataset,
        parts=parts,
        holdouts=holdouts,
        model=model,
        initial={name: value.detach().clone() for name, value in model.state_dict().items()},
        recipe=Recipe(setting.epochs, lr=0.01, batch=64, momentum=0.9),
        kind="kfac",
        estimator="exact",
        streams=streams,
        conditioning=Conditioning.from_config(FusionConfig()),
    )


def sent(task: Classification, part: int, statistic: str, folder: Path) -> Contribution:
    """Return what a client sends, part by part of the statistic, each from the store."""
    pieces = [_piece(task, part, each, folder / f"client-{part}") for each in statistic.split("+")]
    fisher = {name: factor for each in pieces for name, factor in each.fisher.items()}
    extra = {name: value for each in pieces for name, value in each.extra.items()}
    return replace(pieces[0], fisher=fisher, extra=extra)


def _piece(task: Classification, part: int, statistic: str, folder: Path) -> Contribution:
    path = folder / f"{statistic}.safetensors"
    if path.is_file():
        return deserialise(path.read_bytes())
    if statistic == "model":
        state = task.train(part, task.initial)
    else:
        state = dict(_piece(task, part, "model", folder).model)
    contribution = contribute(task, part, state, statistic)
    if statistic == "holdout":
        # Standardised pictures do not fit into bytes; the coordinator divides by 255.
        held = task.holdouts[part][: len(contribution.extra["holdout/y"])]
        pictures = 255 * torch.from_numpy(task.dataset.x_train[held])
        contribution = replace(contribution, extra={**contribution.extra, "holdout/x": pictures})
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(path, serialise(contribution))
    return contribution


def cell(
    setting: Setting, seed: int, names: Sequence[str], data: Path | None, store: Path
) -> dict[str, Result]:
    """Train the clients, and fuse and test them by every rule."""
    torch.set_num_threads(1)
    task = prepare(setting, seed, data)
    network, results = network_of(task), {}
    folder = store / "-".join(map(str, (*vars(setting).values(), seed)))
    for name in names:
        by = rule(name, FusionConfig(), FisherConfig(), iterations=0)
        contributions = [sent(task, part, by.statistic, folder) for part in range(CLIENTS)]
        started = time.perf_counter()
        fused = by.fuse(contributions, network, task.streams.rng("fuse"))
        results[name] = Result(
            accuracy=100 * task.score(fused.model).accuracy,
            seconds=time.perf_counter() - started,
            upload=max(map(statistic_bytes(task, by.statistic), range(CLIENTS))),
        )
    return results


def statistic(name: str) -> str:
    """Return what clients send for a rule."""
    return rule(name, FusionConfig(), FisherConfig(), iterations=0).statistic


def row(name: str, alpha: float, found: dict[str, list[Result]]) -> str:
    """Return one rule's line of the table."""
    ours = [each.accuracy for each in found[name]]
    cells = [name, f"{mean(ours):.2f} ± {pstdev(ours):.2f}"]
    average = [each.accuracy for each in found["fedavg"]]
    gain = f"{mean(ours) - mean(average):+.2f}"
    if name in PUBLISHED.get(alpha, {}):
        theirs, deviation = PUBLISHED[alpha][name]
        inside = abs(mean(ours) - theirs) <= 2 * deviation
        cells += [f"{theirs:.2f} ± {2 * deviation:.2f}", "yes" if inside else "no", gain]
        cells.append(f"{theirs - PUBLISHED[alpha]['fedavg'][0]:+.2f}")
    else:
        cells += ["", "", gain, ""]
    seconds, upload = (
        mean(getattr(each, key) for each in found[name]) for key in ("seconds", "upload")
    )
    return "| " + " | ".join([*cells, f"{seconds:.1f}", f"{upload / 2**20:.2f}"]) + " |"


def main() -> None:
    """Print a table per alpha."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--alphas", type=float, nargs="+", default=list(PUBLISHED))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rules", nargs="+", choices=RULE_NAMES, default=RULE_NAMES)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    names = list(dict.fromkeys(["fedavg", *options.rules]))
    choosing = [name for name in names if chooses(statistic(name))]
    print(
        f"By held-out pictures choose: {', '.join(choosing) or 'none'}.  They are about "
        f"{HELD_OUT:.0%} of the clients' pictures, which no client trained on."
    )
    with (
        TemporaryDirectory() as temporary,
        ProcessPoolExecutor(options.workers, get_context("spawn")) as pool,
    ):
        store = options.store or Path(temporary)
        jobs = {
            alpha: [
                pool.submit(
                    cell,
                    Setting(alpha, options.epochs, options.limit),
                    seed,
                    names,
                    options.data,
                    store,
                )
                for seed in range(options.seeds)
            ]
            for alpha in options.alphas
        }
        for alpha, cells in jobs.items():
            results = [job.result() for job in cells]
            print(f"\nalpha {alpha}\n\n{HEADER}")
            for name in names:
                print(row(name, alpha, {key: [each[key] for each in results] for key in names}))
            print(end="", flush=True)


if __name__ == "__main__":
    main()
