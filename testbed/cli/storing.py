"""``testbed store``: what is kept of clients' work, and whether it is sound."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Look after a store of clients' work.")

_Folder = Annotated[Path, typer.Argument(help="The folder of execution.store.")]


@app.command()
def info(folder: _Folder) -> None:
    """Say how much each version of the code has in FOLDER."""
    from rich.console import Console
    from rich.table import Table

    from testbed.execution import Store
    from testbed.execution.upkeep import contents
    from testbed.reporting.units import bytes_text

    store = Store(folder)
    found = contents(store)
    table = Table("version of the code", "entries", "size", "last used")
    for each in found:
        mark = " (this one)" if each.version == store.version else ""
        used = f"{datetime.fromtimestamp(each.used):%Y-%m-%d %H:%M}" if each.entries else ""
        table.add_row(f"{each.version}{mark}", str(each.entries), bytes_text(each.bytes), used)
    if found:
        Console().print(table)
    entries, size = sum(each.entries for each in found), sum(each.bytes for each in found)
    strange = sum(each.foreign for each in found)
    typer.echo(f"entries: {entries}, {bytes_text(size)}{_foreign(strange)}")


@app.command()
def verify(folder: _Folder) -> None:
    """Check every entry in FOLDER and remove damaged ones; exit status 1 if there are any."""
    from testbed.execution import Store, upkeep
    from testbed.execution.store import Counts

    found = upkeep.verify(Store(folder))
    for key in found.damaged:
        typer.echo(f"damaged and removed: {key}")
    again = "; runs make them again" if found.damaged else ""
    strange = _foreign(found.foreign)
    typer.echo(f"entries: {found.entries}, damaged: {len(found.damaged)}{again}{strange}")
    for remark in Counts(other_code=found.others).remarks():
        typer.echo(f"note: {remark}")
    raise typer.Exit(1 if found.damaged else 0)


@app.command()
def prune(
    folder: _Folder,
    limit_gb: Annotated[
        float | None,
        typer.Option(help="Also remove what was not used for longest beyond this size."),
    ] = None,
) -> None:
    """Remove from FOLDER what nobody needs.

    That is what other versions of the code have made, and leftovers of killed runs.
    """
    from testbed.config import load
    from testbed.execution import Store, upkeep
    from testbed.reporting.units import bytes_text

    limit = None
    if limit_gb is not None:
        limit = load(None, [f"execution.store_limit_gb={limit_gb}"]).execution.store_limit_bytes
    gone = upkeep.prune(Store(folder, limit))
    typer.echo(f"entries removed: {gone.entries}, {bytes_text(gone.bytes)}")


def _foreign(count: int) -> str:
    return f"; not the store's and left alone: {count}" if count else ""
