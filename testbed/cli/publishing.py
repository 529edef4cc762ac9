"""What ``testbed run`` and ``testbed plot`` show of a comparison."""

from pathlib import Path

from rich.console import Console

from testbed.cli.panel import show_summary
from testbed.reporting.comparison import load, notes
from testbed.reporting.figures import draw
from testbed.reporting.html import write_report
from testbed.reporting.names import label
from testbed.reporting.table import summarise, write_summary


def publish(folder: Path, redraw: bool = True) -> None:
    """Draw figures, tables and report of a results folder; print the table."""
    if redraw or not (folder / "report.html").is_file():
        draw(folder)
        describe(folder)
    show(folder)


def describe(folder: Path) -> None:
    """Write table and report of a results folder."""
    write_summary(folder)
    write_report(folder)


def show(folder: Path) -> None:
    """Print the table of a results folder, and what to know of its runs."""
    console = Console()
    runs = load(folder)
    show_summary(console, summarise(runs))
    for note in notes(runs):
        console.print(f"note: {note}", soft_wrap=True)
    for run in runs:
        for warning in run.manifest["warnings"]:
            whose = f"{label(run.method)}, seed {run.seed}"
            console.print(f"note: {whose}: {warning}", soft_wrap=True)
    console.print(f"figures: {folder / 'figures'}", soft_wrap=True)
    console.print(f"report:  {folder / 'report.html'}", soft_wrap=True)
