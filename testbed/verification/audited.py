"""Auditing a run directory: its model, its method's forgetting, and that of others beside it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile

import torch

from testbed.config import Experiment
from testbed.editing.methods import METHODS, Method
from testbed.errors import ConfigError, ResultsError
from testbed.execution import open_executor
from testbed.execution.layout import is_no_store
from testbed.execution.store import Counts
from testbed.experiments.rundir import MANIFEST, read_run
from testbed.experiments.sweep import STORE
from testbed.experiments.sweepdir import SWEEP
from testbed.files import to_json, write_text
from testbed.fusion.rules import rule
from testbed.learning.client import prepare
from testbed.privacy.audit import IN_ROUNDS, ONE_SHOT, Audit, audit
from testbed.privacy.bank import Observer, ignore
from testbed.privacy.report import write
from testbed.privacy.subject import auditable, subject
from testbed.privacy.supply import Supply

VERDICTS = "audit-verdicts.json"


@dataclass(frozen=True)
class Audited:
    """An audit, and where the contributions came from that it fused.

    Attributes
    ----------
    audit : Audit
    store : Path or None
        Where it looked for them.
    clients, made : int
        Clients whose contributions were needed, and those of them that had to make theirs.
    counts : Counts
        What was found of the store, entry by entry.
    """

    audit: Audit
    store: Path | None
    clients: int
    made: int
    counts: Counts


def audit_run(
    run_dir: Path,
    beside: Sequence[str] = (),
    sizes: Mapping[str, int] | None = None,
    store: Path | None = None,
    observer: Observer = ignore,
    train: bool = True,
    say: Callable[[str], None] = lambda line: None,
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
        Store of contributions; default: the run's, or that of the sweep it belongs to.
    observer : callable
        Told about progress.
    train : bool
        Whether clients train whose contributions are not in the store.
    say : callable
        Told in one line that clients train, before they do.

    Raises
    ------
    ConfigError
        If there is no such method.
    ResultsError
        If the folder is no run directory, its run cannot be audited, or contributions are missing
        and nobody may train.
    """
    unknown = [name for name in beside if name not in METHODS]
    if unknown:
        raise ConfigError(f"--beside {unknown[0]}: no such method; known: {', '.join(METHODS)}")
    _check_place(run_dir)
    _check_store(store)
    run = read_run(run_dir)
    experiment = Experiment.model_validate(run.manifest["config"])
    auditable(experiment, run_dir)
    place = store or _store_of(experiment, run_dir)
    execution = experiment.execution.model_copy(update={"store": place})
    experiment = experiment.model_copy(update={"execution": execution})
    # Results must not depend on how many cores the machine has.
    torch.set_num_threads(1)
    usual = IN_ROUNDS if METHODS[run.method].in_rounds else ONE_SHOT
    methods = {name: METHODS[name] for name in (run.method, *beside)}
    task = prepare(experiment, run.seed)
    with open_executor(experiment, run.seed, task) as clients:
        supply = Supply(clients, str(run_dir), train, say)
        who = subject(experiment, task, supply, run_dir, run.manifest, run.metrics)
        everyone = [client.partition for client in who.everyone]
        supply.require(everyone, _statistics(experiment, methods))
        found = audit(who, supply, methods, replace(usual, **(sizes or {})), observer)
    write(run_dir, found)
    verdicts = {name: asdict(verdict) for name, verdict in found.verdicts.items()}
    write_text(run_dir / VERDICTS, to_json({"sizes": asdict(found.sizes), "verdicts": verdicts}))
    return Audited(found, place, len(supply.asked), len(supply.made), supply.counts)


def audited(run_dir: Path, beside: Sequence[str], sizes: Mapping[str, int]) -> bool:
    """Whether a run directory was audited with these sizes and with these methods beside."""
    try:
        found = json.loads((run_dir / VERDICTS).read_text(encoding="utf-8"))
        same = dict(found["sizes"]).items() >= sizes.items()
        return same and dict(found["verdicts"]).keys() >= {*beside}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return False


def _check_store(store: Path | None) -> None:
    """Refuse a place that is no store, before anybody puts work into it."""
    if store and store.exists() and (not store.is_dir() or is_no_store(store)):
        raise ResultsError(f"{store}: not a store of clients' work; name another with --store")


def _store_of(experiment: Experiment, run_dir: Path) -> Path | None:
    """Return the store that a run used: its own, else that of the sweep whose folder it is in."""
    if experiment.execution.store is not None:
        return experiment.execution.store
    place = run_dir if ".." not in run_dir.parts and len(run_dir.parts) > 3 else run_dir.resolve()
    above = place.parents[2:3]  # of <sweep>/<point>/<method>-<hash>/seed=<k>
    return next((each / STORE for each in above if (each / SWEEP).is_file()), None)


def _statistics(experiment: Experiment, methods: Mapping[str, Method]) -> list[str]:
    """Return what clients send for an audit; methods in rounds beside a run ask for nothing."""
    first, *others = methods.values()
    asking = [first, *(each for each in others if not each.in_rounds)]
    iterations = experiment.server.billed_iterations
    rules = [rule(each.rule, experiment.fusion, experiment.fisher, iterations) for each in asking]
    return list(dict.fromkeys(each.statistic for each in rules))


def _check_place(run_dir: Path) -> None:
    """Refuse a folder that is no run directory, naming one below it, or cannot be written.

    Raises
    ------
    ResultsError
    """
    if not (run_dir / MANIFEST).is_file():
        below = sorted(run_dir.glob(f"**/seed=*/{MANIFEST}"))
        advice = f"such as {below[0].parent}" if below else "that `testbed run` made"
        raise ResultsError(f"{run_dir}: not a run directory; name one {advice}")
    try:
        with TemporaryFile(dir=run_dir):
            pass
    except OSError as error:
        raise ResultsError(
            f"{run_dir}: what an audit finds is written there, and it cannot be "
            f"({error.strerror}); make it writable or audit a copy"
        ) from error
