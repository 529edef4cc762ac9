"""``testbed scenario generate``: a trace drawn at random, without SUMO."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from testbed.cli import options


def generate(
    out: Annotated[Path, typer.Option(help="Trace file, .csv or .parquet.", dir_okay=False)],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 0,
    per_minute: Annotated[
        float | None, typer.Option(help="Vehicles that join in a minute; default 30.")
    ] = None,
    mean_stay: Annotated[
        float | None, typer.Option(help="Mean stay in seconds; default 100.")
    ] = None,
    stay: Annotated[
        Literal["exponential", "log-normal"] | None,
        typer.Option(help="Distribution of the stays; default exponential."),
    ] = None,
    sigma: Annotated[
        float | None, typer.Option(help="Deviation of a log-normal stay's logarithm; 0.8.")
    ] = None,
    warmup: options.Warmup = None,
    end: options.End = None,
) -> None:
    """Write a trace of vehicles that come at random and stay for a while."""
    from testbed.mobility.generator import GeneratedSource, expected_population
    from testbed.mobility.trace import write_trace

    config = options.configured(
        None,
        source="generated",
        arrivals=options.given(per_minute=per_minute, mean_stay=mean_stay, stay=stay, sigma=sigma),
        warmup=warmup,
        end=end,
    )
    source = GeneratedSource(config, seed)
    write_trace(out, source.trace, source.provenance)
    typer.echo(
        f"{out}: {len(source.trace.events)} events in {source.end:g} s, "
        f"{expected_population(config.arrivals):.4g} members expected"
    )
