"""``testbed audit``: what a run's model tells of its members, and whether leaving it helps."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.output import unfinished

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
        typer.Option(help="Store of contributions; default: that of the run or of its sweep."),
    ] = None,
    train: Annotated[
        bool,
        typer.Option("--train", help="Have clients train whose contributions are not in it."),
    ] = False,
) -> None:
    """Attack the model in RUN_DIR and test whether its method forgets; exit code 1 if not."""
    from rich.console import Console

    from testbed.privacy.report import sentence
    from testbed.reporting.roc import draw_roc
    from testbed.verification.audited import audit_run

    given = {"shadows": shadows, "releases": releases, "repeats": repeats, "clients": clients}
    console = Console()
    with unfinished("the same command audits again"):
        with console.status("preparing the clients") as status:
            done = audit_run(
                run_dir,
                beside or [],
                {name: value for name, value in given.items() if value is not None},
                store,
                lambda what, done, wanted: status.update(f"{what}: {done} of {wanted}"),
                train,
                lambda line: _say(console, f"note: {line}"),
            )
        found = done.audit
        had = done.clients - done.made
        _say(
            console,
            f"store:  {done.store or 'none'}: {had} of {done.clients} clients' "
            f"contributions found, {done.made} made",
        )
        for remark in done.counts.remarks():
            _say(console, f"note: {remark}")
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


def _table(found: "Audit") -> "Table":
    """Return what the attacks achieve, shortened to what a terminal shows."""
    from rich import box
    from rich.table import Table

    from testbed.privacy.report import attacked, interval

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1))
    for column in ("models", "level", "attack", "AUC", "TPR at 1 % FPR"):
        table.add_column(column, overflow="fold")
    for (model, who, level, attack), of in attacked(found.findings.rows).items():
        values = interval(of["auc"], 2), interval(of["tpr_at_fpr_0.01"])
        table.add_row(model if who == "members" else who, level, attack, *values)
    return table


def _say(console: "Console", line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
