"""``testbed data``: which data sets can be learned from, and whether they are here."""

from typing import get_args

import typer

from testbed.errors import DataError

app = typer.Typer(help="Data sets.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keep ``list`` a command of its own, though it is the only one."""


@app.command("list")
def list_datasets() -> None:
    """List the data sets, where each is read from, and its size if it is there."""
    from rich.console import Console
    from rich.table import Table

    from testbed.config.schema import DataConfig
    from testbed.data import load_dataset, origin

    table = Table("data.name", "found", "train + test", "shape")
    table.add_column("read from", overflow="fold")
    missing = []
    for name in get_args(DataConfig.model_fields["name"].annotation):
        config = DataConfig(name=name)
        source = origin(config) or "the folder data.path"
        try:
            data = load_dataset(config)
        except DataError as error:
            table.add_row(name, "no", "", "", source)
            missing.append(str(error))
            continue
        sizes = f"{len(data.y_train)} + {len(data.y_test)}"
        shape = "x".join(map(str, data.x_train.shape[1:]))
        table.add_row(name, "yes", sizes, shape, source)
    console = Console()
    console.print(table)
    for line in missing:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
