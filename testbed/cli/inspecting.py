"""``testbed scenario inspect``: what traffic offers, before any learning."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from testbed.cli import options
from testbed.errors import ConfigError, ScenarioError

if TYPE_CHECKING:
    from testbed.config.schema import MobilityConfig
    from testbed.mobility import MobilityEvent, Provenance
    from testbed.mobility.statistics import Proposal, Summary
    from testbed.streams import Streams

_TRACES = (".csv", ".parquet")
_PICTURES = (".png", ".pdf")


@dataclass(frozen=True)
class _Traffic:
    """The events of all vehicles and what was said about them."""

    events: "list[MobilityEvent]"
    counts: dict[str, int]
    facts: "Provenance"
    begin: float
    warmup: float
    end: float


def inspect(
    path: Annotated[str, typer.Argument(help="A scenario's name, a .sumocfg, or a trace file.")],
    seed: options.Seed = 0,
    density: options.Density = None,
    membership: options.Membership = None,
    x: options.X = None,
    y: options.Y = None,
    radius: options.Radius = None,
    participation: Annotated[
        float, typer.Option(min=0.0001, max=1, help="Share of vehicles that take part.")
    ] = 1.0,
    warmup: options.Warmup = None,
    end: options.End = None,
    step_length: options.StepLength = None,
    backend: options.Backend = None,
    settings: options.Settings = None,
    requests: Annotated[int, typer.Option(min=1, help="Joins and leaves to time.")] = 31,
    clients: Annotated[
        int | None, typer.Option(min=1, help="Propose how to begin with so many clients.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw it, as .png or .pdf.", dir_okay=False)
    ] = None,
) -> None:
    """Say what the traffic of a scenario or a trace offers to an experiment."""
    from testbed.mobility.statistics import propose, summarise
    from testbed.streams import Streams

    if figure is not None and figure.suffix not in _PICTURES:
        raise ConfigError(f"--figure {figure}: call it *.png or *.pdf")
    values: dict[str, Any] = {"warmup": warmup, "end": end}
    if path.endswith(_TRACES):
        live = options.given(
            density=density, membership=membership, x=x, y=y, radius=radius,
            step_length=step_length, backend=backend,
        )  # fmt: skip
        if live:
            name = next(iter(live)).replace("_", "-")
            raise ConfigError(
                f"--{name} is for live traffic and {path} is a trace; leave it out, what was "
                "recorded cannot change"
            )
        values |= {"source": "trace", "trace": path}
    elif path.endswith((".xml", ".xml.gz")):
        raise ConfigError(
            f"{path} is neither a .sumocfg nor a trace; make a trace of SUMO's FCD output with: "
            f"testbed scenario import {path} --out trace.parquet"
        )
    else:
        values |= {
            "scenario": path,
            "density": density,
            "membership": membership,
            "rsu": options.given(x=x, y=y, radius=radius),
            "step_length": step_length,
            "backend": backend,
        }
    traffic = _follow(options.configured(settings, **values), seed, path)
    streams = Streams(seed)
    events = _taking_part(traffic, streams, participation)
    found = summarise(events, traffic.warmup, traffic.end, requests)
    console = Console()
    console.print(_table(path, seed, participation, requests, traffic, found))
    if clients is not None:
        proposal = propose(
            traffic.events,
            clients,
            traffic.begin,
            traffic.end,
            lambda vehicle: streams.uniform("participation", vehicle),
        )
        for line in _advice(clients, requests, traffic, streams, proposal):
            console.print(line, highlight=False, soft_wrap=True)
    if figure is not None:
        from testbed.files import write_bytes
        from testbed.reporting.style import render
        from testbed.reporting.traffic import traffic as draw

        picture = draw(events, traffic.begin, traffic.warmup, traffic.end)
        write_bytes(
            figure,
            render(picture, figure.suffix.removeprefix(".")),
            advice="choose a writable folder with --figure",
        )
        console.print(f"figure: {figure}", highlight=False, soft_wrap=True)


def _follow(config: "MobilityConfig", seed: int, path: str) -> _Traffic:
    """Play the traffic to its end, without anybody who learns."""
    from testbed.mobility import MobilityEvent, open_source

    events: list[MobilityEvent] = []
    with open_source(config, seed) as source:
        reached = 0.0
        for step in source.steps():
            reached = step.time + config.step_length
            events += step.events
        counts, facts, warmup = dict(source.counts()), source.provenance, source.warmup
        end = reached if config.source == "sumo" else source.end
    if end <= warmup:
        raise ScenarioError(
            f"{path}: the traffic is over at {end:g} s, before the warm-up ends at "
            f"{warmup:g} s; lower --warmup or give the scenario vehicles"
        )
    begin = facts.get("begin")
    return _Traffic(
        events=events,
        counts=counts,
        facts=facts,
        begin=float(begin) if isinstance(begin, int | float) else 0.0,
        warmup=warmup,
        end=end,
    )


def _taking_part(traffic: _Traffic, streams: "Streams", rate: float) -> "list[MobilityEvent]":
    from testbed.mobility import participates

    return [event for event in traffic.events if participates(streams, event.vehicle, rate)]


def _table(
    path: str,
    seed: int,
    participation: float,
    requests: int,
    traffic: _Traffic,
    found: "Summary",
) -> Table:
    facts = traffic.facts
    made = [f"{traffic.begin:g} to {traffic.end:g} s"]
    made += [f"SUMO {facts['sumo']}"] if facts.get("sumo") else []
    made += [str(facts["backend"])] if facts.get("source") == "sumo" else ["from a trace"]
    table = Table(
        show_header=False,
        title=f"{facts.get('scenario', path)}, seed {seed}, "
        f"{facts.get('membership', 'unknown')} membership",
    )
    table.add_row("simulated", ", ".join(made))
    for name, number in traffic.counts.items():
        table.add_row(name.replace("_", " "), str(number))
    table.add_row("vehicles that take part", f"{found.vehicles} ({100 * participation:.4g} %)")
    table.add_row("re-joins", str(found.rejoins))
    table.add_row("warm-up ends", f"at {traffic.warmup:g} s")
    table.add_row("joins / minute", f"{found.joins_per_minute:.1f}")
    table.add_row("leaves / minute", f"{found.leaves_per_minute:.1f}")
    table.add_row("members at the start, M0", str(found.population_start))
    table.add_row(
        "members min / mean / max",
        f"{found.population_min} / {found.population_mean:.1f} / {found.population_max}",
    )
    table.add_row("M0/2 <= M <= 2 M0", _held(found.violations, found.violated_share))
    stay = (
        " / ".join(f"{value:.0f}" for value in found.stay) + " s" if found.stay else "none ended"
    )
    table.add_row("stay p10 / p50 / p90", stay)
    table.add_row(f"{requests} requests", _reached(found.seconds_for_requests))
    return table


def _advice(
    clients: int,
    requests: int,
    traffic: _Traffic,
    streams: "Streams",
    proposal: "Proposal | None",
) -> list[str]:
    from testbed.mobility.statistics import population, summarise

    if proposal is None:
        most = int(population(traffic.events).members.max())
        return [
            f"{clients} clients: never so many members with a quarter of the time left (at most "
            f"{most}); give the traffic more vehicles, a longer run or a larger radius"
        ]
    events = _taking_part(traffic, streams, proposal.participation)
    found = summarise(events, proposal.warmup, traffic.end, requests)
    return [
        f"{found.population_start} clients at the start: --set mobility.participation="
        f"{proposal.participation!r} --set mobility.warmup={proposal.warmup - traffic.begin:g}",
        f"  M0/2 <= M <= 2 M0 {_held(found.violations, found.violated_share)}, "
        f"{requests} requests {_reached(found.seconds_for_requests)}; other seeds: {clients} on "
        f"average with participation {proposal.expected:.3g}",
    ]


def _held(violations: int, share: float) -> str:
    if not violations:
        return "always"
    return f"violated by {violations} changes, {100 * share:.3g} % of the time"


def _reached(seconds: float | None) -> str:
    return "not reached" if seconds is None else f"in {round(seconds, 1):g} s"
