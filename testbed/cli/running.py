"""What ``testbed run`` and ``testbed plot`` show."""

from pathlib import Path

from rich.console import Console

from testbed.cli.panel import Watcher, show_summary
from testbed.config import Experiment
from testbed.experiments.lock import exclusive
from testbed.experiments.run import run
from testbed.reporting.comparison import load as load_runs
from testbed.reporting.comparison import notes
from testbed.reporting.figures import draw
from testbed.reporting.html import write_report
from testbed.reporting.names import label
from testbed.reporting.table import summarise, write_summary


def run_experiment(experiment: Experiment, out: Path, force: bool) -> None:
    """Run, watch, then draw the comparison of everything the folder holds."""
    console = Console()
    fresh = False
    with exclusive(out):
        with Watcher(console) as watcher:
            for done in run(experiment, out, force, watcher):
                folder = done.cell.folder
                if done.skipped:
                    console.print(
                        f"{folder}: already finished; --force runs it again", soft_wrap=True
                    )
                # A run may have been finished by a command that was stopped before it drew.
                if not done.skipped or not (folder / "report.html").is_file():
                    fresh = True
                    draw(folder)
                    write_report(folder)
        publish(out, redraw=fresh)


def publish(folder: Path, redraw: bool = True) -> None:
    """Draw figures, tables and report of a results folder; print the table."""
    console = Console()
    runs = load_runs(folder)
    if redraw or not (folder / "report.html").is_file():
        draw(folder)
        write_summary(folder)
        write_report(folder)
    show_summary(console, summarise(runs))
    for note in notes(runs):
        console.print(f"note: {note}", soft_wrap=True)
    for run_ in runs:
        for warning in run_.manifest["warnings"]:
            whose = f"{label(run_.method)}, seed {run_.seed}"
            console.print(f"note: {whose}: {warning}", soft_wrap=True)
    console.print(f"figures: {folder / 'figures'}", soft_wrap=True)
    console.print(f"report:  {folder / 'report.html'}", soft_wrap=True)
