"""``testbed scenario``: traffic scenarios and traces."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from testbed.cli import scenario_files
from testbed.cli.generating import generate
from testbed.cli.inspecting import inspect
from testbed.cli.options import configured

app = typer.Typer(
    no_args_is_help=True, help="List, build and inspect traffic scenarios; make traces."
)


@app.command("list")
def list_scenarios() -> None:
    """List the scenarios that can be called by name."""
    from testbed.mobility.scenarios import find, known

    table = Table("name", "what it is", "default density", "warm-up", "roadside unit")
    for name in known():
        scenario = find(name)
        generator, rsu = scenario.generator, scenario.rsu
        table.add_row(
            name,
            scenario.title,
            f"{generator.density:g} s" if generator else "fixed",
            f"{scenario.warmup:g} s" if scenario.warmup is not None else "25 %",
            f"({rsu[0]:g}, {rsu[1]:g}), {rsu[2]:g} m" if rsu else "none",
        )
    Console().print(table)


@app.command()
def build(
    name: Annotated[str, typer.Argument(help="A scenario's name.")],
    density: Annotated[float, typer.Option(min=0.001, help="Seconds between departures.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the routes; default: the user's cache.")
    ] = None,
) -> None:
    """Make the routes of a generated scenario for another density."""
    from testbed.mobility.building import build as build_routes
    from testbed.mobility.building import cached_routes
    from testbed.mobility.scenarios import find

    configured(None, density=density)
    scenario = find(name)
    typer.echo(build_routes(name, density, out) if out else cached_routes(scenario, density))


app.command()(inspect)
app.command()(scenario_files.record)
app.command("import")(scenario_files.import_)
app.command()(generate)
