"""``testbed scenario record`` and ``import``: traffic into trace files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from testbed.cli.options import (
    Backend,
    Density,
    End,
    Membership,
    Radius,
    Seed,
    Settings,
    StepLength,
    Warmup,
    X,
    Y,
    configured,
    given,
)
from testbed.errors import ConfigError

_Out = Annotated[Path, typer.Option(help="Trace to write, .csv or .parquet.")]


def record(
    scenario: Annotated[str, typer.Argument(help="A scenario's name or a .sumocfg.")],
    out: _Out,
    seed: Seed = 0,
    density: Density = None,
    membership: Membership = None,
    x: X = None,
    y: Y = None,
    radius: Radius = None,
    warmup: Warmup = None,
    end: End = None,
    step_length: StepLength = None,
    backend: Backend = None,
    settings: Settings = None,
) -> None:
    """Run a scenario's traffic alone and write who comes and goes, and where they are."""
    config = configured(
        settings,
        scenario=scenario,
        membership=membership,
        rsu=given(x=x, y=y, radius=radius),
        density=density,
        warmup=warmup,
        end=end,
        step_length=step_length,
        backend=backend,
    )
    _check_name(out)
    from testbed.mobility.recording import record as write

    _tell(out, write(config, seed, out))


def import_(
    file: Annotated[
        Path,
        typer.Argument(help="SUMO's FCD output (.xml, .csv, also .gz; .parquet), or a list."),
    ],
    out: _Out,
    membership: Membership = None,
    scenario: Annotated[
        str | None, typer.Option(help="Scenario whose roadside unit is the default.")
    ] = None,
    x: X = None,
    y: Y = None,
    radius: Radius = None,
    warmup: Warmup = None,
    bridge_gaps: Annotated[
        bool, typer.Option("--bridge-gaps", help="Keep members while timesteps are missing.")
    ] = False,
    settings: Settings = None,
) -> None:
    """Turn SUMO's FCD output, or a list of time,vehicle,kind, into a trace."""
    config = configured(
        settings, membership=membership, rsu=given(x=x, y=y, radius=radius), warmup=warmup
    )
    _check_name(out)
    from testbed.mobility.recording import import_file

    _tell(out, import_file(file, config, out, scenario, bridge_gaps))


def _tell(out: Path, header: Mapping[str, object]) -> None:
    typer.echo(out)
    for key in sorted(header):
        if header[key] is not None:
            typer.echo(f"  {key}: {header[key]}")


def _check_name(out: Path) -> None:
    if out.suffix not in (".csv", ".parquet"):
        raise ConfigError(f"--out {out} should be called *.csv or *.parquet")
