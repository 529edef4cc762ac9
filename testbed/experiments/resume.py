"""What makes a run that was stopped, in whatever way, go on when it is started again.

Beside the folder of a run stands, until that is complete, its journal; in the results folder,
until all of it is complete, what clients have sent.  Whoever uses them holds the lock of the
results folder.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from testbed.config import Experiment, spec_hash
from testbed.errors import (
    ConfigError,
    DataError,
    EditError,
    FusionError,
    ScenarioError,
    TraceError,
)
from testbed.execution import Executor
from testbed.experiments import provenance
from testbed.experiments.rundir import MANIFEST
from testbed.files import remove_empty, sweep
from testbed.learning.task import Task
from testbed.simulation.journal import Journal
from testbed.simulation.journalled import Journalled
from testbed.simulation.learning import Learning, Real
from testbed.simulation.placeholder import Placeholder

# Errors that a second start would meet again: there is nothing to go on with.
LASTING = (ConfigError, DataError, EditError, FusionError, ScenarioError, TraceError)

_FORMAT = "1"
_STORE = ".store"
_SUFFIX = ".journal"
_JOURNALS = f"*/.*{_SUFFIX}"
_PACKAGE = Path(__file__).resolve().parents[1]


@contextmanager
def journalled(
    experiment: Experiment, method: str, folder: Path, task: Task, executor: Executor | Learning
) -> Iterator[tuple[Executor | Learning, Journal | None]]:
    """Yield what answers a run's orders, with a journal before it, and the journal.

    The block completes the run's `folder`.  Then the journal goes; if the block fails, it stays,
    but for an error that would come again.
    A run without learning has none: it is as quick to repeat.

    Raises
    ------
    ResultsError
        If the journal cannot be read or written.
    """
    if isinstance(executor, Placeholder):
        yield executor, None
        return
    title = {
        "format": _FORMAT,
        "spec": f"{method}-{spec_hash(experiment, method)}, seed {task.streams.seed}",
        "code": running_code(),
        "data": f"{task.described()['fingerprint']} on {task.device}",
    }
    learning = executor if isinstance(executor, Learning) else Real(task, executor)
    path = journal_of(folder)
    try:
        with Journal(path, title) as journal:
            yield Journalled(learning, journal, experiment.execution.store_limit_bytes), journal
    except LASTING:
        path.unlink(missing_ok=True)
        raise


def journal_of(folder: Path) -> Path:
    """Return where the journal of a run with this folder lies."""
    return folder.with_name(f".{folder.name}{_SUFFIX}")


def with_store(experiment: Experiment, out: Path) -> Experiment:
    """Return an experiment that names a store: one in its results folder if it named none."""
    if experiment.execution.store is not None:
        return experiment
    execution = experiment.execution.model_copy(update={"store": out / _STORE})
    return experiment.model_copy(update={"execution": execution})


def without_store(out: Path) -> None:
    """Remove the store in a results folder, unless a run that was stopped will go on from it."""
    if not any(out.glob(_JOURNALS)):
        shutil.rmtree(out / _STORE, ignore_errors=True)


def tidy(experiment: Experiment, out: Path) -> None:
    """Remove from an experiment's results folder what killed processes left and nobody needs."""
    sweep(out)
    sweep(out / _STORE)
    for journal in out.glob(_JOURNALS):
        method, _, found = journal.parent.name.rpartition("-")
        if found != spec_hash(experiment, method) or _complete(journal):
            journal.unlink(missing_ok=True)
            remove_empty([journal.parent])


def _complete(journal: Path) -> bool:
    """Whether the run was completed after the last record; it may be under way once more."""
    name = journal.name.removeprefix(".").removesuffix(_SUFFIX)
    try:
        return (journal.parent / name / MANIFEST).stat().st_mtime_ns >= journal.stat().st_mtime_ns
    except FileNotFoundError:
        return False


@cache
def running_code() -> str:
    """Name the code that runs and the packages that compute."""
    digest = hashlib.sha256(json.dumps(provenance.versions()).encode())
    for file in sorted(_PACKAGE.rglob("*.py")):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(_PACKAGE).as_posix()}:{len(content)}:".encode())
        digest.update(content)
    return digest.hexdigest()[:16]
