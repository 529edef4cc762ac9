"""What ``testbed run`` does and shows."""

from pathlib import Path

from rich.console import Console

from testbed.cli.panel import Watcher
from testbed.cli.publishing import publish
from testbed.config import Experiment
from testbed.execution.store import Counts
from testbed.experiments.lock import exclusive
from testbed.experiments.run import run
from testbed.experiments.rundir import read_manifest
from testbed.reporting.figures import draw
from testbed.reporting.html import write_report


def run_experiment(experiment: Experiment, out: Path, force: bool) -> None:
    """Run, watch, then draw the comparison of everything the folder holds."""
    console = Console()
    fresh, asked = False, Counts()
    with exclusive(out):
        with Watcher(console) as watcher:
            for done in run(experiment, out, force, watcher):
                folder = done.cell.folder
                if done.skipped:
                    console.print(
                        f"{folder}: already finished; --force runs it again", soft_wrap=True
                    )
                else:
                    asked += Counts(**read_manifest(folder).get("store", {}))
                # A run may have been finished by a command that was stopped before it drew.
                if not done.skipped or not (folder / "report.html").is_file():
                    fresh = True
                    draw(folder)
                    write_report(folder)
        publish(out, redraw=fresh)
    for remark in asked.remarks():
        console.print(f"note: {remark}", soft_wrap=True)
