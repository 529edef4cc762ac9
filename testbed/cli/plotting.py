"""``testbed plot`` and ``testbed table``: from run folders alone, without torch."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from testbed.cli.output import unfinished

Folder = Annotated[Path, typer.Argument(help="Results folder, or one run directory.")]
Where = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="Only runs with this value, e.g. rho=0.5."),
]


def plot(
    folder: Folder,
    figure: Annotated[
        str | None, typer.Option(metavar="NAME", help="One figure; default: all.")
    ] = None,
    width: Annotated[
        Literal["single", "double"] | None,
        typer.Option(help="Columns of a journal; default: what suits the figure."),
    ] = None,
    where: Where = None,
    out: Annotated[Path | None, typer.Option(help="Default: figures/ in FOLDER.")] = None,
) -> None:
    """Draw the figures that the runs below FOLDER support, as PDF and PNG.

    Runs of one experiment get their table and their report again, too.
    """
    from testbed.cli.publishing import describe, show
    from testbed.reporting.paper.catalogue import WIDTHS, draw_all, draw_one
    from testbed.reporting.settings import read, varying

    console = Console()
    inches = WIDTHS[width] if width else None
    target = out or folder / "figures"
    with unfinished("the same command draws what is missing"):
        runs = read(folder, where or ())
        if figure is not None:
            for path in draw_one(runs, figure, target, inches):
                console.print(str(path), soft_wrap=True)
            return
        for drawn in draw_all(runs, target, inches):
            told = ", ".join(map(str, drawn.files)) or f"skipped: {drawn.reason}"
            console.print(f"{drawn.name}: {told}", markup=False, soft_wrap=True)
        alike = not varying(runs)
        del runs  # they are read again, and long ones take much memory
        if out is None and not where and alike:
            describe(folder)
            show(folder)


def table(
    folder: Folder,
    latex: Annotated[bool, typer.Option("--latex", help="For a paper, with booktabs.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Full precision.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="The default.")] = False,
    where: Where = None,
) -> None:
    """Print the table of the runs below FOLDER: mean ± half of the 95 % interval."""
    from testbed.reporting.paper.table import tabulate
    from testbed.reporting.paper.writing import to_csv, to_latex, to_markdown
    from testbed.reporting.settings import read

    if latex + csv + markdown > 1:
        raise typer.BadParameter("name one of --latex, --csv and --markdown")
    write = to_latex if latex else to_csv if csv else to_markdown
    typer.echo(write(tabulate(read(folder, where or ()))), nl=False)
