"""Running an experiment: every method and seed it names, one run directory each."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from testbed.config import Experiment, spec_hash
from testbed.config.spec import differences
from testbed.errors import ResultsError
from testbed.execution import Executor, open_executor
from testbed.experiments import provenance
from testbed.experiments.detection import write_detection, write_predictions
from testbed.experiments.lock import exclusive
from testbed.experiments.rundir import (
    MANIFEST,
    Metric,
    read_manifest,
    write_manifest,
    write_table,
)
from testbed.files import new_folder, remove_empty, to_json, write_bytes, write_text
from testbed.learning.client import prepare
from testbed.learning.contribution import serialise_model
from testbed.learning.task import Task
from testbed.ledger import COLUMNS
from testbed.mobility import open_source, write_trace
from testbed.simulation.progress import Observer, ignore
from testbed.simulation.world import Outcome, World

SPEC = "experiment.json"


@dataclass(frozen=True)
class Cell:
    """One run of an experiment.

    Attributes
    ----------
    method : str
    seed : int
    folder : Path
    """

    method: str
    seed: int
    folder: Path


@dataclass(frozen=True)
class Done:
    """A cell and whether it had been finished before."""

    cell: Cell
    skipped: bool


def cells(experiment: Experiment, out: Path) -> tuple[Cell, ...]:
    """List the runs of an experiment, seed by seed."""
    return tuple(
        Cell(method, seed, out / f"{method}-{spec_hash(experiment, method)}" / f"seed={seed}")
        for seed in experiment.seeds
        for method in experiment.editing.methods
    )


def run(
    experiment: Experiment, out: Path, force: bool = False, observer: Observer = ignore
) -> Iterator[Done]:
    """Run what is not finished yet; yield each cell when it is.

    Parameters
    ----------
    experiment : Experiment
    out : Path
        The experiment's results folder.
    force : bool
        Do finished runs again.
    observer : callable
        Told about progress.

    Raises
    ------
    TestbedError
        If the folder belongs to another experiment, cannot be written or is being written by
        another process, or a run fails.
    """
    with exclusive(out):
        yield from _run(experiment, out, force, observer)


def _run(experiment: Experiment, out: Path, force: bool, observer: Observer) -> Iterator[Done]:
    # Results must not depend on how many cores the machine has.
    torch.set_num_threads(1)
    for seed in experiment.seeds:
        with claimed(experiment, out), ExitStack() as stack:
            prepared: tuple[Task, Executor] | None = None
            for cell in cells(experiment, out):
                if cell.seed != seed:
                    continue
                if not force and _finished(cell):
                    yield Done(cell, skipped=True)
                    continue
                if prepared is None:
                    task = prepare(experiment, seed)
                    executor = stack.enter_context(open_executor(experiment, seed, task))
                    prepared = task, executor
                _run_cell(experiment, cell, *prepared, observer)
                yield Done(cell, skipped=False)


@contextmanager
def claimed(experiment: Experiment, out: Path) -> Iterator[None]:
    """Mark the folder `out` as this experiment's results folder, or check that it is.

    Methods and seeds may differ from call to call; everything else must be the same, since
    the figures compare all runs of the folder.  The mark goes again when the block leaves
    no run behind, so that a mistake in a configuration can be corrected and run again.

    Raises
    ------
    ResultsError
        If the folder belongs to another experiment or to something else.
    """
    spec = _shared(experiment)
    entries = [entry.name for entry in out.iterdir()]
    if SPEC not in entries and any(not name.startswith(".") for name in entries):
        raise ResultsError(
            f"{out}: not empty and not a results folder of this testbed; name another with --out"
        )
    if SPEC not in entries or _differs(out, spec):
        write_text(out / SPEC, to_json(spec))
    try:
        yield
    finally:
        remove_empty({cell.folder.parent for cell in cells(experiment, out)})
        if [entry.name for entry in out.iterdir()] == [SPEC]:
            (out / SPEC).unlink()


def _shared(experiment: Experiment) -> dict[str, Any]:
    """Dump what all runs of a results folder have in common."""
    spec = experiment.model_dump(mode="json", exclude={"seeds", "execution", "name", "scale"})
    spec["editing"].pop("methods")
    return spec


def _differs(out: Path, spec: dict[str, Any]) -> bool:
    """Whether `out` is marked for another spec; refuses if it holds finished runs of it."""
    path = out / SPEC
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        changed = differences(before, spec)
    except (OSError, ValueError, AttributeError) as error:
        raise ResultsError(f"{path}: unreadable ({error}); name another folder with --out") from (
            error
        )
    if changed and any(out.glob(f"*/*/{MANIFEST}")):
        raise ResultsError(
            f"{out} holds results of another spec ({'; '.join(changed)}); "
            "name another folder with --out"
        )
    return bool(changed)


def _finished(cell: Cell) -> bool:
    if not (cell.folder / MANIFEST).is_file():
        return False
    manifest = read_manifest(cell.folder)
    expected = cell.folder.parent.name.removeprefix(f"{cell.method}-")
    if manifest.get("hash") != expected or manifest.get("seed") != cell.seed:
        raise ResultsError(
            f"{cell.folder}: its manifest belongs to another spec "
            f"({manifest.get('hash')}, expected {expected}); use --force to run it again"
        )
    return manifest.get("status") == "finished"


def _run_cell(
    experiment: Experiment, cell: Cell, task: Task, executor: Executor, observer: Observer
) -> None:
    begin = time.perf_counter()
    with new_folder(cell.folder) as folder:
        with open_source(experiment.mobility, cell.seed) as source:
            outcome = World(experiment, cell.method, task, executor, source, observer).run()
            mobility = dict(source.provenance)
        _write(folder, experiment, cell, task, outcome, mobility, time.perf_counter() - begin)


def _write(
    folder: Path,
    experiment: Experiment,
    cell: Cell,
    task: Task,
    outcome: Outcome,
    mobility: dict[str, Any],
    wall_s: float,
) -> None:
    """Write the files of a finished run, the manifest last."""
    write_trace(folder / "trace.csv", outcome.trace, mobility)
    write_table(folder, "ledger", outcome.ledger, COLUMNS)
    write_table(folder, "metrics", outcome.metrics, tuple(Metric.__dataclass_fields__))
    if outcome.judged:
        write_detection(folder, outcome.judged)
        if outcome.before is not None:
            write_predictions(folder, task.show(outcome.before), task.show(outcome.model))
    write_bytes(folder / "model.safetensors", serialise_model(outcome.model))
    write_manifest(
        folder,
        {
            "status": "finished",
            "method": cell.method,
            "seed": cell.seed,
            "hash": spec_hash(experiment, cell.method),
            "config": experiment.model_dump(mode="json"),
            "population_initial": outcome.population_initial,
            "subset_size": outcome.subset_size,
            "counts": dict(outcome.counts),
            "contact": asdict(outcome.contact),
            "notes": [*outcome.notes, *task.remarks()],
            "warnings": list(outcome.warnings),
            "mobility": mobility,
            "data": {
                **task.described(),
                "smallest_client": min(len(part) for part in task.parts),
                "largest_client": max(len(part) for part in task.parts),
            },
            "versions": provenance.versions(),
            "commit": provenance.commit(),
            "host": provenance.host(),
            "device": str(task.device),
            "wall_s": round(wall_s, 3),
        },
    )
