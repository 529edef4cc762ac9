"""Commands that run a grid of experiments, or say what that would take."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.output import unfinished

if TYPE_CHECKING:
    from testbed.experiments.grid import Grid

_KEPT = "what is done is kept, run the same command again to go on"

Config = Annotated[Path, typer.Argument(help="YAML file that describes the experiment.")]
Axes = Annotated[
    list[str] | None,
    typer.Option(
        "--grid",
        metavar="KEY=V1,V2",
        help="Sweep over a key; short names: rho, density, alpha. Several make a grid.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key, e.g. learning.epochs=5."),
]
Seeds = Annotated[
    str | None, typer.Option(metavar="FIRST:END", help="0:3 is 0, 1, 2; default: the file's.")
]
Methods = Annotated[str | None, typer.Option(metavar="A,B", help="Default: the file's.")]
Out = Annotated[Path | None, typer.Option(help="Sweep folder; default results/sweep-<name>.")]
Yes = Annotated[bool, typer.Option("--yes", help="Allow more than 10,000 runs.")]


def sweep(
    config: Config,
    grid: Axes = None,
    set_: Settings = None,
    seeds: Seeds = None,
    methods: Methods = None,
    out: Out = None,
    yes: Yes = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would take, as 'plan' does.")
    ] = False,
) -> None:
    """Run CONFIG for every combination of the grid's values, training each client once."""
    made, folder = _grid(config, grid, set_, seeds, methods, out, yes)
    from testbed.cli.sweep_view import run_sweep, show_plan  # a mistake is told sooner

    if dry_run:
        raise typer.Exit(0 if show_plan(made, folder) else 1)
    with unfinished(_KEPT):
        fine = run_sweep(made, folder)
    raise typer.Exit(0 if fine else 1)


def plan(
    config: Config,
    grid: Axes = None,
    set_: Settings = None,
    seeds: Seeds = None,
    methods: Methods = None,
    out: Out = None,
    yes: Yes = False,
) -> None:
    """Say what a sweep would take: runs, unique trainings, time and disk; change nothing."""
    made, folder = _grid(config, grid, set_, seeds, methods, out, yes)
    from testbed.cli.sweep_view import show_plan

    raise typer.Exit(0 if show_plan(made, folder) else 1)


def _grid(
    config: Path,
    axes: list[str] | None,
    settings: list[str] | None,
    seeds: str | None,
    methods: str | None,
    out: Path | None,
    yes: bool,
) -> "tuple[Grid, Path]":
    """Return the grid that the options describe, and its folder."""
    from testbed.experiments.grid import MOST, read_grid

    grid = read_grid(config, axes or [], settings or [], seeds, methods, None if yes else MOST)
    grid = grid.spread()  # a sweep is worth the seconds that workers take to start
    return grid, out or Path("results") / f"sweep-{grid.points[0].experiment.name}"
