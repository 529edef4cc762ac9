"""Running an experiment: every method and seed it names, one run directory each."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from testbed.config import Experiment, spec_hash
from testbed.config.schema import MobilityConfig
from testbed.config.spec import differences
from testbed.errors import ResultsError
from testbed.execution import Blueprint, Clients, Crew, Executor, open_executor, task_of
from testbed.execution.store import Counts
from testbed.experiments.lock import exclusive
from testbed.experiments.resume import LASTING, journalled, tidy, with_store, without_store
from testbed.experiments.rundir import MANIFEST, read_manifest
from testbed.experiments.writing import conclude, pages, whole, write_models
from testbed.files import new_folder, remove_empty, remove_mark, to_json, write_text
from testbed.learning.task import Task
from testbed.mobility import MobilitySource, open_source
from testbed.simulation.learning import Learning, Real
from testbed.simulation.outline import outline
from testbed.simulation.placeholder import Placeholder
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
    experiment: Experiment,
    out: Path,
    force: bool = False,
    observer: Observer = ignore,
    crew: Crew | None = None,
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
    crew : Crew, optional
        Does the clients' work; by default what the experiment names.

    Raises
    ------
    TestbedError
        If the folder belongs to another experiment, cannot be written or is being written by
        another process, or a run fails.
    """
    # Results must not depend on how many cores the machine has.
    torch.set_num_threads(1)
    with exclusive(out):
        for seed in experiment.seeds:
            wanted = [cell for cell in cells(experiment, out) if cell.seed == seed]
            with claimed(experiment, out):
                yield from _run_seed(experiment, wanted, force, observer, crew)
        without_store(out)


def _run_seed(
    experiment: Experiment,
    wanted: Sequence[Cell],
    force: bool,
    observer: Observer,
    crew: Crew | None,
) -> Iterator[Done]:
    """Run the cells of one seed, which share a task and an executor."""
    with ExitStack() as stack:
        task: Task | None = None
        executor: Executor | None = None
        for cell in wanted:
            if not force and finished(cell):
                yield Done(cell, skipped=True)
                continue
            if experiment.fidelity == "cost":
                task = outline(experiment, cell.seed)
                run_cell(experiment, cell, task, Placeholder(task), observer)
            else:
                if task is None or executor is None:
                    task = task_of(Blueprint.of(experiment, cell.seed))
                    stored = with_store(experiment, cell.folder.parents[1])
                    executor = stack.enter_context(open_executor(stored, cell.seed, task, crew))
                try:
                    run_cell(experiment, cell, task, executor, observer)
                except LASTING:
                    without_store(cell.folder.parents[1])
                    raise
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
    if not is_marked(experiment, out):
        write_text(out / SPEC, to_json(_shared(experiment)))
    tidy(experiment, out)
    try:
        yield
    finally:
        remove_empty({cell.folder.parent for cell in cells(experiment, out)})
        remove_mark(out / SPEC)


def is_marked(experiment: Experiment, out: Path) -> bool:
    """Whether the folder `out` is this experiment's already, and not free to become it.

    Raises
    ------
    ResultsError
        If the folder belongs to another experiment or to something else.
    """
    entries = [entry.name for entry in out.iterdir()]
    if SPEC not in entries and any(not name.startswith(".") for name in entries):
        raise ResultsError(
            f"{out}: not empty and not a results folder of this testbed; name another with --out"
        )
    return SPEC in entries and not _differs(out, _shared(experiment))


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
    if changed and any(out.glob(f"*/[!.]*/{MANIFEST}")):
        raise ResultsError(
            f"{out} holds results of another spec ({'; '.join(changed)}); "
            "name another folder with --out"
        )
    return bool(changed)


def finished(cell: Cell) -> bool:
    """Whether a run is finished.

    Raises
    ------
    ResultsError
        If its manifest is unreadable or another run's.
    """
    if not (cell.folder / MANIFEST).is_file():
        return False
    manifest = read_manifest(cell.folder)
    expected = cell.folder.parent.name.removeprefix(f"{cell.method}-")
    if manifest.get("hash") != expected or manifest.get("seed") != cell.seed:
        raise ResultsError(
            f"{cell.folder}: its manifest belongs to another spec "
            f"({manifest.get('hash')}, expected {expected}); use --force to run it again"
        )
    return manifest.get("status") == "finished" and whole(cell.folder, manifest)


def run_cell(
    experiment: Experiment,
    cell: Cell,
    task: Task,
    executor: Executor | Learning,
    observer: Observer = ignore,
    open_source: Callable[[MobilityConfig, int], MobilitySource] = open_source,
) -> Outcome:
    """Do one run and write its folder.

    Parameters
    ----------
    experiment : Experiment
    cell : Cell
    task : Task
        The `outline` for a run without learning.
    executor : Executor or Learning
        As for a `World`.
    observer : callable
        Told about progress.
    open_source : callable
        Opens the traffic.

    Raises
    ------
    TestbedError
        If the run fails, or its folder cannot be written.
    """
    learns = experiment.fidelity == "train"
    begin = time.perf_counter()
    asked = _asked(executor)
    with (
        journalled(experiment, cell.method, cell.folder, task, executor) as (answers, journal),
        new_folder(cell.folder) as folder,
    ):
        with (
            open_source(experiment.mobility, cell.seed) as source,
            pages(folder, source, safe=learns) as written,
        ):
            outcome = World(
                experiment, cell.method, task, answers, source, observer, written.books
            ).run()
            mobility = dict(source.provenance)
            written.finish(outcome.covered, mobility)
        if learns:
            write_models(folder, task, outcome)
        facts: dict[str, Any] = {"mobility": mobility}
        if journal is not None:
            facts["resumed"] = journal.read
            facts["warnings"] = [*outcome.warnings, *journal.remarks]
        if asked is not None and (now := _asked(executor)) is not None:
            facts["store"] = asdict(now - asked)
        facts["wall_s"] = round(time.perf_counter() - begin, 3)
        conclude(folder, experiment, cell.method, task, outcome, facts, learns)
    return outcome


def _asked(executor: Executor | Learning) -> Counts | None:
    """Return what the store of an executor was asked so far, where it has one."""
    clients = executor.executor if isinstance(executor, Real) else executor
    return clients.counts if isinstance(clients, Clients) else None
