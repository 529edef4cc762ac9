"""Auditing a run directory: its model, its method's forgetting, and that of others beside it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from testbed.config import Experiment
from testbed.editing.methods import METHODS
from testbed.errors import ConfigError, ResultsError
from testbed.execution import open_executor
from testbed.execution.store import Counts
from testbed.experiments.rundir import MANIFEST, read_run
from testbed.files import to_json, write_text
from testbed.learning.client import prepare
from testbed.privacy.audit import IN_ROUNDS, ONE_SHOT, Audit, audit
from testbed.privacy.bank import Observer, ignore
from testbed.privacy.report import write
from testbed.privacy.subject import auditable, subject

VERDICTS = "audit-verdicts.json"


@dataclass(frozen=True)
class Audited:
    """An audit and how often what it asked of a store was there; None without a store."""

    audit: Audit
    counts: Counts | None


def audit_run(
    run_dir: Path,
    beside: Sequence[str] = (),
    sizes: Mapping[str, int] | None = None,
    store: Path | None = None,
    observer: Observer = ignore,
) -> Audited:
    """Audit a run directory and write what was found into it.

    Parameters
    ----------
    run_dir : Path
    beside : sequence of str
        Further methods whose forgetting is tested.
    sizes : mapping of str to int, optional
        Fields of `Sizes` that differ from the usual ones.
    store : Path, optional
        Store of contributions; default: the run's, if it had one.
    observer : callable
        Told about progress.

    Raises
    ------
    ConfigError
        If there is no such method.
    ResultsError
        If the folder is no run directory, or its run cannot be audited.
    """
    unknown = [name for name in beside if name not in METHODS]
    if unknown:
        raise ConfigError(f"--beside {unknown[0]}: no such method; known: {', '.join(METHODS)}")
    _check_place(run_dir)
    run = read_run(run_dir)
    experiment = Experiment.model_validate(run.manifest["config"])
    auditable(experiment, run_dir)
    if store is not None:
        execution = experiment.execution.model_copy(update={"store": store})
        experiment = experiment.model_copy(update={"execution": execution})
    # Results must not depend on how many cores the machine has.
    torch.set_num_threads(1)
    usual = IN_ROUNDS if METHODS[run.method].in_rounds else ONE_SHOT
    methods = {name: METHODS[name] for name in (run.method, *beside)}
    task = prepare(experiment, run.seed)
    with open_executor(experiment, run.seed, task) as executor:
        who = subject(experiment, task, executor, run_dir, run.manifest, run.metrics)
        found = audit(who, executor, methods, replace(usual, **(sizes or {})), observer)
    write(run_dir, found)
    verdicts = {name: asdict(verdict) for name, verdict in found.verdicts.items()}
    write_text(run_dir / VERDICTS, to_json({"sizes": asdict(found.sizes), "verdicts": verdicts}))
    return Audited(found, executor.counts)


def audited(run_dir: Path, beside: Sequence[str], sizes: Mapping[str, int]) -> bool:
    """Whether a run directory was audited with these sizes and with these methods beside."""
    try:
        found = json.loads((run_dir / VERDICTS).read_text(encoding="utf-8"))
        same = dict(found["sizes"]).items() >= sizes.items()
        return same and dict(found["verdicts"]).keys() >= {*beside}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return False


def _check_place(run_dir: Path) -> None:
    """Refuse a folder that is no run directory, and name one below it if there is one.

    Raises
    ------
    ResultsError
    """
    if not (run_dir / MANIFEST).is_file():
        below = sorted(run_dir.glob(f"**/seed=*/{MANIFEST}"))
        advice = f"such as {below[0].parent}" if below else "that `testbed run` made"
        raise ResultsError(f"{run_dir}: not a run directory; name one {advice}")
