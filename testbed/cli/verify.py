"""What ``testbed verify`` shows."""

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from testbed.verification.certificate import NAMES, configured, parts, write
from testbed.verification.part import Part


def verify(config: Path | None, overrides: Sequence[str], out: Path) -> bool:
    """Verify the exactness of the edits, print the findings and write the certificate.

    Parameters
    ----------
    config : Path or None
        The experiment whose learning task is edited; None takes a small built-in one.
    overrides : sequence of str
        ``--set`` values.
    out : Path
        Folder for ``certificate.json`` and ``certificate.md``.

    Returns
    -------
    bool
        Whether every part passed.
    """
    experiment = configured(config, overrides)
    console = Console()
    verified: list[Part] = []
    with console.status("") as status:
        running = parts(experiment)
        for name in NAMES:
            status.update(f"verifying: {name}")
            verified.append(next(running))
    write(out, experiment, verified)
    console.print(_table(verified))
    failed = [part for part in verified if not part.passed]
    for part in failed:
        _say(console, f"failed: {part.name}: {part.sentence}")
    _say(console, f"certificate: {out / 'certificate.md'}")
    return not failed


def _table(verified: Sequence[Part]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1))
    table.add_column("part", no_wrap=True)
    table.add_column("result", no_wrap=True)
    table.add_column("finding", overflow="fold")
    for part in verified:
        table.add_row(part.name, "passed" if part.passed else "FAILED", Text(part.sentence))
    return table


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
