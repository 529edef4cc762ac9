"""Where joins and leaves come from."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from testbed.config.base import MOST, Coordinate, NonNegative, Positive, Section


class RsuConfig(Section):
    """Where the roadside unit stands; unset values come from the scenario."""

    x: Coordinate | None = None
    y: Coordinate | None = None
    radius: Positive | None = Field(None, description="coverage radius in metres")
    hysteresis: NonNegative = Field(0.1, description="a member leaves beyond (1 + this) x radius")
    minimum_stay: NonNegative = Field(0.0, description="seconds until a visitor is a member")
    grace: NonNegative = Field(0.0, description="gaps in seconds that a visit outlives")

    @model_validator(mode="after")
    def _both_coordinates(self) -> Self:
        if (self.x is None) != (self.y is None):
            raise ValueError("x and y must be given together")
        return self


class AreaConfig(Section):
    """One of several areas of coverage."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    x: Coordinate
    y: Coordinate
    radius: Positive


class ArrivalsConfig(Section):
    """Traffic that is drawn at random when source is generated."""

    per_minute: float = Field(30.0, gt=0, le=1e6, description="vehicles that join in a minute")
    mean_stay: float = Field(100.0, ge=1e-3, le=1e9, description="seconds")
    stay: Literal["exponential", "log-normal"] = "exponential"
    sigma: float = Field(0.8, ge=0, le=3, description="of a log-normal stay's logarithm")


class ScheduleConfig(Section):
    """Joins and leaves at even intervals when source is schedule; no traffic."""

    vehicles: int = Field(50, ge=1, le=1_000_000, description="present from the start")
    changes: int = Field(50, ge=0, le=10_000_000, description="joins and leaves that follow")
    kind: Literal["joins", "leaves", "mixed"] = Field(
        "joins", description="mixed: either with equal probability"
    )
    interval: Positive = Field(60.0, description="seconds between changes")

    @model_validator(mode="after")
    def _somebody_stays(self) -> Self:
        if self.kind == "leaves" and self.changes >= self.vehicles:
            raise ValueError(
                f"{self.changes} leaves of {self.vehicles} vehicles leave nobody; "
                "lower changes or raise vehicles"
            )
        return self


class MobilityConfig(Section):
    """Where joins and leaves come from."""

    source: Literal["sumo", "trace", "generated", "schedule"] = "sumo"
    scenario: str = Field("city_grid", description="a scenario's name or a path to a .sumocfg")
    trace: Path | None = Field(None, description="trace file to replay when source is trace")
    arrivals: ArrivalsConfig = ArrivalsConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    membership: Literal["network", "rsu", "multi_rsu"] = "network"
    rsu: RsuConfig = RsuConfig()
    rsus: tuple[AreaConfig, ...] = Field((), description="areas of coverage under multi_rsu")
    domain: Literal["one", "separate"] = Field(
        "one", description="whether all areas have the same members, or each its own"
    )
    follow: str | None = Field(None, description="area to run when separate; default: the first")
    density: float | None = Field(
        None, ge=0.001, le=MOST, description="seconds between departures of a generated scenario"
    )
    scale: float | None = Field(
        None, ge=0.001, le=1000, description="factor on the traffic of a scenario with its own"
    )
    participation: float = Field(1.0, gt=0, le=1, description="share of vehicles that take part")
    warmup: NonNegative | None = Field(None, description="seconds before the clients are counted")
    end: Positive | None = Field(None, description="latest simulated second; default: scenario's")
    step_length: Positive = Field(1.0, description="SUMO step in seconds")
    backend: Literal["libsumo", "traci"] = "libsumo"

    @model_validator(mode="after")
    def _trace_needs_a_file(self) -> Self:
        if self.source == "trace" and self.trace is None:
            raise ValueError("source 'trace' needs mobility.trace, the file to replay")
        if self.source in ("generated", "schedule") and self.membership != "network":
            raise ValueError(
                f"membership {self.membership!r} needs positions, which source "
                f"{self.source!r} has not; leave it 'network'"
            )
        return self

    @model_validator(mode="after")
    def _areas_fit(self) -> Self:
        names = [area.name for area in self.rsus]
        if len(set(names)) != len(names):
            raise ValueError("rsus must have different names")
        if self.membership == "multi_rsu":
            if not names:
                raise ValueError(
                    "membership 'multi_rsu' needs mobility.rsus, a list of name, x, y and radius"
                )
            if self.follow is not None and self.domain == "one":
                raise ValueError(
                    "follow needs domain 'separate'; one domain has no area to choose"
                )
            if self.follow is not None and self.follow not in names:
                raise ValueError(f"follow is {self.follow!r}; rsus has {', '.join(names)}")
        return self
