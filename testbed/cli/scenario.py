"""``testbed scenario``: list, build and inspect traffic scenarios."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from testbed.config.schema import MobilityConfig

app = typer.Typer(no_args_is_help=True, help="List, build and inspect traffic scenarios.")

Membership = Literal["network", "rsu"]
Backend = Literal["libsumo", "traci"]


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

    _configured(density=density)
    scenario = find(name)
    typer.echo(build_routes(name, density, out) if out else cached_routes(scenario, density))


@app.command()
def inspect(
    scenario: Annotated[str, typer.Argument(help="A scenario's name or a .sumocfg.")],
    seed: Annotated[int, typer.Option(min=0, help="SUMO's seed.")] = 0,
    density: Annotated[
        float | None, typer.Option(min=0.001, help="Seconds between departures.")
    ] = None,
    membership: Annotated[Membership, typer.Option(help="Who is a member.")] = "network",
    x: Annotated[float | None, typer.Option(help="Roadside unit's x, m.")] = None,
    y: Annotated[float | None, typer.Option(help="Roadside unit's y, m.")] = None,
    radius: Annotated[float | None, typer.Option(min=0.001, help="Its radius, m.")] = None,
    participation: Annotated[
        float, typer.Option(min=0.0001, max=1, help="Share of vehicles that take part.")
    ] = 1.0,
    warmup: Annotated[float | None, typer.Option(min=0, help="Seconds.")] = None,
    end: Annotated[float | None, typer.Option(min=0.001, help="Simulated second.")] = None,
    step_length: Annotated[float, typer.Option(min=0.001, help="SUMO step, s.")] = 1.0,
    backend: Annotated[Backend, typer.Option(help="How SUMO is run.")] = "libsumo",
    requests: Annotated[int, typer.Option(min=1, help="Joins and leaves to time.")] = 31,
) -> None:
    """Run a scenario's traffic alone and say what it offers to an experiment."""
    from testbed.errors import ScenarioError
    from testbed.mobility import MobilityEvent, open_source, participates
    from testbed.mobility.statistics import summarise
    from testbed.streams import Streams

    config = _configured(
        scenario=scenario,
        membership=membership,
        rsu=_given(x=x, y=y, radius=radius),
        participation=participation,
        step_length=step_length,
        backend=backend,
        **_given(density=density, warmup=warmup, end=end),
    )
    streams = Streams(seed)
    events: list[MobilityEvent] = []
    reached = 0.0
    with open_source(config, seed) as source:
        for step in source.steps():
            reached = step.time + step_length
            events += (
                event
                for event in step.events
                if participates(streams, event.vehicle, participation)
            )
        counts, start, facts = source.counts(), source.warmup, source.provenance
    if reached <= start:
        raise ScenarioError(
            f"{scenario}: the traffic is over at {reached:g} s, before the warm-up ends at "
            f"{start:g} s; lower --warmup or give the scenario vehicles"
        )
    found = summarise(events, start, reached, requests)
    table = Table(
        show_header=False, title=f"{facts['scenario']}, seed {seed}, {membership} membership"
    )
    table.add_row("simulated", f"{reached:g} s with SUMO {facts['sumo']}, {backend}")
    for name, number in counts.items():
        table.add_row(name, str(number))
    table.add_row("vehicles that take part", f"{100 * participation:.4g} %")
    table.add_row("warm-up ends", f"at {start:g} s")
    table.add_row("joins / minute", f"{found.joins_per_minute:.1f}")
    table.add_row("leaves / minute", f"{found.leaves_per_minute:.1f}")
    table.add_row("members at the start", str(found.population_start))
    table.add_row(
        "members min / mean / max",
        f"{found.population_min} / {found.population_mean:.1f} / {found.population_max}",
    )
    stay = (
        " / ".join(f"{value:.0f}" for value in found.stay) + " s" if found.stay else "none ended"
    )
    table.add_row("stay p10 / p50 / p90", stay)
    wait = found.seconds_for_requests
    table.add_row(f"{requests} requests", "not reached" if wait is None else f"in {wait:g} s")
    Console().print(table)


def _configured(**values: Any) -> "MobilityConfig":
    """Check options by the rules of the configuration."""
    from testbed.config import load

    return load(None, [f"mobility={json.dumps(values)}"]).mobility


def _given(**values: float | None) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
