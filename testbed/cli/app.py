"""Commands of ``testbed``, and how mistakes and interruptions end."""

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from testbed import __version__
from testbed.cli import auditing, data, plotting, reproducing, scenario, storing, sweeping
from testbed.cli.output import OutputClosedError, complain, guarded, unfinished
from testbed.errors import TestbedError, shortage

_USER_ERROR = 2
# Of Typer's own errors only those below this one have a public name.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]
# A shell reports a program that a signal ended as this plus the signal's number.
_SIGNALLED = 128
_KEPT = "what is done is kept, run the same command again to go on"
_STOPS = (signal.SIGINT, signal.SIGTERM)

app = typer.Typer(
    name="testbed",
    help="SUMO traffic in, exact edits of a one-shot federated model, every second and byte out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(scenario.app, name="scenario", help="Traffic: scenarios, inspection, traces.")
app.add_typer(data.app, name="data", help="Data sets: list, check, show.")
app.add_typer(storing.app, name="store", help="Clients' work: info, verify, prune.")
app.command()(plotting.plot)
app.command()(plotting.table)
app.command()(sweeping.sweep)
app.command()(sweeping.plan)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"testbed {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    pass


@app.command()
def run(
    config: Annotated[Path, typer.Argument(help="YAML file that describes the experiment.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a key, e.g. editing.rho=0.3."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Results folder; default results/<experiment>.")
    ] = None,
    force: Annotated[bool, typer.Option(help="Run finished runs again.")] = False,
) -> None:
    """Run every method of CONFIG for every seed, draw the figures and print the table."""
    from testbed.cli.running import run_experiment
    from testbed.config import load

    experiment = load(config, set_ or [])
    with unfinished(_KEPT):
        run_experiment(experiment, out or Path("results") / experiment.name, force)


@app.command()
def verify(
    config: Annotated[
        Path | None, typer.Argument(help="YAML file; default: a small built-in task.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the certificate.")] = Path(
        "results/certificate"
    ),
) -> None:
    """Prove that edits are exact and write the certificate."""
    from testbed.cli.verify import verify as check

    with unfinished("the same command verifies again"):
        passed = check(config, set_ or [], out)
    raise typer.Exit(0 if passed else 1)


app.command()(auditing.audit)
app.command()(reproducing.reproduce)


@app.command()
def doctor(
    fix: Annotated[
        bool, typer.Option("--fix", help="As root on Debian or Ubuntu, install what is missing.")
    ] = False,
) -> None:
    """Check the installation and name exactly what is missing."""
    from testbed.cli.doctor import doctor as check

    raise typer.Exit(0 if check(fix) else 1)


def main() -> None:
    """Run the command line; a user's mistake is one line and exit code 2."""
    heard = [number for number in _STOPS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heard:
        signal.signal(number, _stop)
    try:
        with guarded():
            _run_app()
    finally:
        # While the interpreter shuts down nobody catches what `_stop` raises.
        for number in heard:
            signal.signal(number, signal.SIG_DFL)


def _run_app() -> None:
    try:
        # Otherwise Typer would print a mistake itself, in four lines.
        sys.exit(app(standalone_mode=False, prog_name=app.info.name))
    except _UsageError as error:
        _complain_of_usage(error)
        sys.exit(_USER_ERROR)
    except OutputClosedError as error:
        if str(error):
            complain(str(error))
        sys.exit(_SIGNALLED + signal.SIGPIPE)
    except TestbedError as error:
        # Some libraries' messages, which end some of ours, have several lines.
        complain(f"error: {' '.join(str(error).split())}")
        sys.exit(_USER_ERROR)
    except (MemoryError, RuntimeError) as error:
        # Where no room has said which work it was.
        found = shortage(error)
        if found is None:
            raise
        complain(
            f"error: {found}; lower learning.batch, detection.image_size or execution.workers, "
            "or free some, and run the same command again"
        )
        sys.exit(_USER_ERROR)
    except OSError as error:
        # A folder that vanished or cannot be used, where no room has said it better.
        where = f"{error.filename}: " if error.filename else ""
        complain(
            f"error: {where}{error.strerror or error}; see that it is there and can be used, and "
            "run the same command again"
        )
        sys.exit(_USER_ERROR)
    except SystemExit as ending:
        if ending.code in [_SIGNALLED + number for number in _STOPS]:
            complain(f"stopped; {_KEPT}")
        raise


def _complain_of_usage(error: Any) -> None:
    """Say what is wrong with a command's arguments; where there are none, show its help."""
    message = error.format_message()
    if "\n" in message:
        complain(message)
    else:
        command = error.ctx.command_path if error.ctx else app.info.name
        complain(f"error: {message.rstrip('.')}; see '{command} --help'")


def _stop(number: int, frame: FrameType | None) -> None:
    """Leave through the clean-up code."""
    sys.exit(_SIGNALLED + number)
