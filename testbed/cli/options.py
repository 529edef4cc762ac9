"""Options that several ``testbed scenario`` commands share."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from testbed.errors import ConfigError

if TYPE_CHECKING:
    from testbed.config.schema import MobilityConfig

_SECTION = "mobility."

Seed = Annotated[int, typer.Option(min=0, help="Seed of the traffic and of who takes part.")]
Density = Annotated[
    float | None, typer.Option(min=0.001, help="Seconds between departures, if generated.")
]
Membership = Annotated[
    Literal["network", "rsu", "multi_rsu"] | None,
    typer.Option(help="Who is a member; default network."),
]
X = Annotated[float | None, typer.Option(help="Roadside unit's x, m; default the scenario's.")]
Y = Annotated[float | None, typer.Option(help="Roadside unit's y, m.")]
Radius = Annotated[float | None, typer.Option(min=0.001, help="Its radius, m.")]
Warmup = Annotated[float | None, typer.Option(min=0, help="Seconds until clients are counted.")]
End = Annotated[float | None, typer.Option(min=0.001, help="Simulated second.")]
StepLength = Annotated[
    float | None, typer.Option(min=0.001, help="SUMO's step in seconds; default 1.")
]
Backend = Annotated[
    Literal["libsumo", "traci"] | None, typer.Option(help="How SUMO is run; default libsumo.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Another key, e.g. mobility.scale=0.5."),
]


def configured(settings: Sequence[str] | None, **values: Any) -> "MobilityConfig":
    """Check options, and the ``--set`` values that win over them, as a configuration.

    Options that were not given, None or a section of such, take their defaults.

    Raises
    ------
    ConfigError
        If a value is not allowed, or a setting is not of the section ``mobility``.
    """
    from testbed.config import load

    for setting in settings or ():
        if not setting.startswith(_SECTION):
            raise ConfigError(f"--set {setting!r}: only keys of {_SECTION}* matter here")
    return load(None, [f"mobility={json.dumps(given(**values))}", *(settings or ())]).mobility


def given(**values: Any) -> dict[str, Any]:
    """Return those of the `values` that are not None."""
    return {name: value for name, value in values.items() if value is not None}
