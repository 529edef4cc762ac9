"""``testbed audit``: what a run's model tells of its members, and whether leaving it helps."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.output import unfinished
from testbed.errors import ConfigError, ResultsError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from testbed.privacy.audit import Audit

_LEAST = 8  # models of a kind that statistics take


def audit(
    run_dir: Annotated[Path, typer.Argument(help="Run directory, .../<method>-<hash>/seed=<k>.")],
    beside: Annotated[
        list[str] | None,
        typer.Option(metavar="METHOD", help="Another method whose forgetting is tested too."),
    ] = None,
    shadows: Annotated[
        int | None, typer.Option(min=2 * _LEAST, help="Shadow models that attacks learn from.")
    ] = None,
    releases: Annotated[
        int | None, typer.Option(min=_LEAST, help="Fresh models of the same law to attack.")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(min=_LEAST, help="Withdrawals of each client.")
    ] = None,
    clients: Annotated[int | None, typer.Option(min=1, help="Clients that withdraw.")] = None,
    store: Annotated[
        Path | None,
        typer.Option(help="Store of contributions; default: the run's, if it had one."),
    ] = None,
) -> None:
    """Attack the model in RUN_DIR and test whether its method forgets; exit code 1 if not."""
    from rich.console import Console

    from testbed.privacy.report import sentence, write
    from testbed.reporting.roc import draw_roc

    given = {"shadows": shadows, "releases": releases, "repeats": repeats, "clients": clients}
    console = Console()
    with unfinished("the same command audits again"):
        found = _audited(
            console,
            run_dir,
            beside or [],
            {name: value for name, value in given.items() if value is not None},
            store,
        )
        write(run_dir, found)
        picture, *_ = draw_roc(run_dir)
        console.print(_table(found))
        for remark in found.findings.remarks:
            _say(console, f"note: {remark}")
        for name, verdict in found.verdicts.items():
            _say(console, sentence(name, verdict))
        _say(console, f"audit:  {run_dir / 'audit.md'}")
        _say(console, f"figure: {picture}")
    own = next(iter(found.verdicts.values()))
    raise typer.Exit(0 if own.finding == "indistinguishable" else 1)


def _audited(
    console: "Console",
    run_dir: Path,
    beside: Iterable[str],
    sizes: dict[str, int],
    store: Path | None,
) -> "Audit":
    from dataclasses import replace

    import torch

    from testbed.config import Experiment
    from testbed.editing.methods import METHODS
    from testbed.execution import open_executor
    from testbed.experiments.rundir import read_run
    from testbed.learning.client import prepare
    from testbed.privacy.audit import IN_ROUNDS, ONE_SHOT
    from testbed.privacy.audit import audit as attack
    from testbed.privacy.subject import auditable, subject

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
    with console.status("preparing the clients") as status:
        task = prepare(experiment, run.seed)
        with open_executor(experiment, run.seed, task) as executor:
            who = subject(experiment, task, executor, run_dir, run.manifest, run.metrics)
            found = attack(
                who,
                executor,
                methods,
                replace(usual, **sizes),
                lambda what, done, wanted: status.update(f"{what}: {done} of {wanted}"),
            )
    if executor.counts is not None:
        _say(console, f"store:  {executor.counts.hits} found, {executor.counts.misses} made")
        for remark in executor.counts.remarks():
            _say(console, f"note: {remark}")
    return found


def _check_place(run_dir: Path) -> None:
    """Refuse a folder that is no run directory, and name one below it if there is one.

    Raises
    ------
    ResultsError
    """
    from testbed.experiments.rundir import MANIFEST

    if not (run_dir / MANIFEST).is_file():
        below = sorted(run_dir.glob(f"**/seed=*/{MANIFEST}"))
        advice = f"such as {below[0].parent}" if below else "that `testbed run` made"
        raise ResultsError(f"{run_dir}: not a run directory; name one {advice}")


def _table(found: "Audit") -> "Table":
    """Return what the attacks achieve, shortened to what a terminal shows."""
    from rich import box
    from rich.table import Table

    from testbed.privacy.report import attacked, interval

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1))
    for column in ("models", "level", "attack", "AUC", "TPR at 1 % FPR"):
        table.add_column(column, overflow="fold")
    for (model, who, level, attack), of in attacked(found.findings.rows).items():
        values = interval(of["auc"], 2), interval(of["tpr_at_fpr_0.01"], 2)
        table.add_row(model if who == "members" else who, level, attack, *values)
    return table


def _say(console: "Console", line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
