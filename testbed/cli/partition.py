"""``testbed data partition``: who would hold which samples, before anything is trained."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from testbed.config.schema import DataConfig
    from testbed.data import IntArray

_PICTURES = (".png", ".pdf")


def partition(
    config: Annotated[
        Path | None, typer.Argument(help="YAML file of an experiment; default: all defaults.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A key, e.g. data.alpha=0.1."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the draw; default: the first of seeds.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Picture of clients x classes, *.png or *.pdf.")
    ] = None,
) -> None:
    """Divide the data set among the clients of CONFIG and say who holds what."""
    from rich.console import Console

    from testbed.config import load
    from testbed.data import counts, hold_out, load_dataset
    from testbed.data import partition as divide
    from testbed.streams import Streams

    if out is not None and out.suffix not in _PICTURES:
        raise ConfigError(f"--out {out}: call it *.png or *.pdf")
    experiment = load(config, set_ or [])
    seed = experiment.seeds[0] if seed is None else seed
    data = load_dataset(experiment.data)
    streams, pool = Streams(seed), experiment.clients.pool
    parts = divide(data.y_train, pool, experiment.data, streams, data.writers_train)
    _, held_out = hold_out(parts, experiment.data.holdout, streams)
    table = counts(data.y_train, parts, len(data.classes))
    console = Console()
    console.print(f"{data.name}, {_form(experiment.data)}, seed {seed}", highlight=False)
    console.print(_summary(table, [len(part) for part in held_out]))
    if out is not None:
        from testbed.files import write_bytes
        from testbed.reporting.partition import partition_figure
        from testbed.reporting.style import render

        picture = partition_figure(table, data.classes)
        write_bytes(out, render(picture, out.suffix[1:]), advice="choose another --out")
        console.print(f"figure: {out}", markup=False, highlight=False, soft_wrap=True)


def _form(chosen: "DataConfig") -> str:
    """Return the partition's name and the one number it depends on."""
    number = {"shards": f", {chosen.shards} a client", "iid": "", "writers": ""}
    return (
        f"partition {chosen.partition}{number.get(chosen.partition, f', alpha {chosen.alpha:g}')}"
    )


def _summary(table: "IntArray", held_out: list[int]) -> "Table":
    """Return what a client of the partition looks like: least, median, most."""
    import numpy as np
    from rich.table import Table

    summary = Table(f"{len(table)} clients", "least", "median", "most")
    sizes = table.sum(axis=1)
    shares = -np.sort(-table, axis=1).cumsum(axis=1) / sizes[:, None]
    for label, values in (
        ("samples", sizes),
        ("held out of them", held_out),
        ("classes", (table > 0).sum(axis=1)),
        ("classes of nine tenths", (shares < 0.9).sum(axis=1) + 1),
    ):
        summary.add_row(label, *(f"{value:g}" for value in np.quantile(values, [0, 0.5, 1])))
    return summary
