"""The configuration of an experiment, section by section.

Pydantic lives at this edge only: the rest of the testbed receives these frozen values.
Ranges are checked here; what needs the file system or the traffic is checked where it
is used.
"""

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

# Beyond these no quantity means anything, and sums of seconds and bytes would overflow.
_LEAST, _MOST = 1e-12, 1e12
Positive = Annotated[float, Field(ge=_LEAST, le=_MOST)]
Share = Annotated[float, Field(ge=0, le=1)]
NonNegative = Annotated[float, Field(ge=0, le=_MOST)]
Coordinate = Annotated[float, Field(ge=-_MOST, le=_MOST)]
Speed = Annotated[float, Field(ge=1e-6, le=1e6)]
Method = Literal["fsosa", "retrain", "finetune"]


class _Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )


class RsuConfig(_Section):
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


class AreaConfig(_Section):
    """One of several areas of coverage."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    x: Coordinate
    y: Coordinate
    radius: Positive


class ArrivalsConfig(_Section):
    """Traffic that is drawn at random when source is generated."""

    per_minute: float = Field(30.0, gt=0, le=1e6, description="vehicles that join in a minute")
    mean_stay: float = Field(100.0, ge=1e-3, le=1e9, description="seconds")
    stay: Literal["exponential", "log-normal"] = "exponential"
    sigma: float = Field(0.8, ge=0, le=3, description="of a log-normal stay's logarithm")


class MobilityConfig(_Section):
    """Where joins and leaves come from."""

    source: Literal["sumo", "trace", "generated"] = "sumo"
    scenario: str = Field("city_grid", description="a scenario's name or a path to a .sumocfg")
    trace: Path | None = Field(None, description="trace file to replay when source is trace")
    arrivals: ArrivalsConfig = ArrivalsConfig()
    membership: Literal["network", "rsu", "multi_rsu"] = "network"
    rsu: RsuConfig = RsuConfig()
    rsus: tuple[AreaConfig, ...] = Field((), description="areas of coverage under multi_rsu")
    domain: Literal["one", "separate"] = Field(
        "one", description="whether all areas have the same members, or each its own"
    )
    follow: str | None = Field(None, description="area to run when separate; default: the first")
    density: float | None = Field(
        None, ge=0.001, le=_MOST, description="seconds between departures of a generated scenario"
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
        if self.source == "generated" and self.membership != "network":
            raise ValueError(
                f"membership {self.membership!r} needs positions, which generated traffic has "
                "not; leave it 'network'"
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


class ClientsConfig(_Section):
    """How many vehicles hold data."""

    initial: int | None = Field(
        None, ge=1, description="clients at the start (M0); default: all who are active then"
    )
    pool: int = Field(100, ge=1, description="data partitions, the most clients at one time")

    @model_validator(mode="after")
    def _initial_fits(self) -> Self:
        if self.initial is not None and self.initial > self.pool:
            raise ValueError(
                f"initial is {self.initial} but the pool has {self.pool} partitions; "
                "lower initial or raise pool"
            )
        return self


class DataConfig(_Section):
    """Which pictures are learned from and how they are spread over the clients."""

    name: Literal["digits", "mnist", "fashion-mnist"] = "digits"
    path: Path | None = Field(None, description="folder with the official files")
    partition: Literal["dirichlet", "iid"] = "dirichlet"
    alpha: Positive = Field(0.5, description="Dirichlet concentration")
    minimum: int = Field(2, ge=1, description="least number of samples per client")
    test_share: float = Field(
        0.2, gt=0, lt=1, description="test share where the data set has no official test part"
    )


class LearningConfig(_Section):
    """The local training recipe, the same for every client."""

    model: Literal["auto", "lenet", "cnn", "small-cnn"] = "auto"
    epochs: int = Field(30, ge=1)
    lr: Positive = 0.01
    batch: int = Field(64, ge=1)
    momentum: float = Field(0.9, ge=0, lt=1)


class FisherConfig(_Section):
    """Which Fisher information a client uploads."""

    kind: Literal["kfac", "diagonal"] = "kfac"
    estimator: Literal["exact", "sampled", "empirical"] = "exact"
    upload: Literal["full", "half", "low-rank"] = Field(
        "full", description="form in which the Fisher is sent"
    )
    rank: int = Field(32, ge=1, description="rank kept by the low-rank form")


# `robust` was chosen on Fashion-MNIST and confirmed elsewhere, see docs/fusion.md; `paper`
# is the plain Fisher with just enough damping to be solvable.
PRESETS: dict[str, dict[str, Any]] = {
    "robust": {
        "temper": 0.55,
        "temper_inputs": 0.8,
        "normalise": 0.4,
        "shrink": 0.75,
        "damping": 0.2,
        "output_damping": 1.0,
    },
    "paper": {
        "temper": 1.0,
        "temper_inputs": 1.0,
        "normalise": 0.0,
        "shrink": 1.0,
        "damping": 1e-4,
        "output_damping": 1e-4,
    },
}


class FusionConfig(_Section):
    """How contributions are conditioned and projected onto {F W = b}."""

    preset: Literal["robust", "paper"] = Field(
        "robust", description="fills the next six keys where they are not given"
    )
    temper: float = Field(0.55, gt=0, le=1, description="p: clients upload G^p, or f^p")
    temper_inputs: float = Field(0.8, gt=0, le=1, description="a: clients upload A^a")
    normalise: Share = Field(0.4, description="q: blocks are divided by their mean diagonal^q")
    shrink: Share = Field(0.75, description="s: off-diagonal entries of A are multiplied by s")
    damping: NonNegative = Field(0.2, description="c in tau = c tr(F) / n, per layer")
    output_damping: NonNegative = Field(1.0, description="c of the output layer")
    rtol: float = Field(1e-6, gt=0, lt=1, description="relative residual at which CG stops")
    max_iterations: int = Field(2000, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        preset = PRESETS.get(given.get("preset", "robust"), {})
        return {**preset, **given}


class EditingConfig(_Section):
    """The methods compared and the requests they answer."""

    rho: float = Field(0.5, gt=0, lt=1, description="P = floor(rho M0)")
    methods: tuple[Method, ...] = ("fsosa", "retrain", "finetune")
    requests: int = Field(31, ge=1, description="the run ends after this many requests")
    handling: Literal["sequential", "batch"] = "sequential"
    below_subset: Literal["strict", "shrink"] = Field(
        "shrink", description="what happens when the population falls below P"
    )

    @model_validator(mode="after")
    def _methods_named_once(self) -> Self:
        if not self.methods or len(set(self.methods)) != len(self.methods):
            raise ValueError("methods must name at least one method, each once")
        return self


Decibel = Annotated[float, Field(ge=-300, le=300)]
RadioPreset = Literal["nr-ul-20", "nr-ul-100", "nr-dl-20", "itsg5", "fixed"]
_BUDGET = ("bandwidth_mhz", "frequency_ghz", "power_dbm", "gains_dbi", "noise_figure_db")
RADIO_KEYS = (*_BUDGET, "margin_db", "alpha", "cap")


class NetworkConfig(_Section):
    """The radio link and how transfers share it; unset constants are the preset's."""

    preset: RadioPreset = "nr-ul-20"
    downlink: RadioPreset | None = Field(None, description="default: the same as preset")
    fading: bool = Field(True, description="draw line of sight and shadowing for each visit")
    sharing: Literal["fair", "slots", "none"] = "fair"
    slots: int = Field(4, ge=1, description="transfers at one time when sharing is slots")
    rate_mbps: Speed | None = Field(
        None, description="rate of the preset fixed, and where no distance is known"
    )
    latency_ms: float = Field(10.0, ge=0, le=1e7)
    bandwidth_mhz: float | None = Field(None, ge=0.001, le=1e5)
    frequency_ghz: float | None = Field(None, ge=0.5, le=100, description="range of TR 38.901")
    power_dbm: Decibel | None = None
    gains_dbi: Decibel | None = None
    noise_figure_db: Decibel | None = None
    margin_db: Decibel | None = None
    alpha: float | None = Field(None, ge=0.001, le=1, description="share of Shannon's rate")
    cap: float | None = Field(None, ge=0.01, le=100, description="highest bit/s/Hz")

    @model_validator(mode="after")
    def _fixed_has_no_constants(self) -> Self:
        given = [key for key in RADIO_KEYS if getattr(self, key) is not None]
        if self.preset == "fixed" and given:
            raise ValueError(
                f"{given[0]} has no effect on the preset 'fixed'; leave it unset or choose another"
            )
        return self


# Peak FP32 TFLOPS = 2 x CUDA cores x highest clock; sources: docs/network.md.
DEVICES: dict[str, dict[str, Any]] = {
    "jetson-tx2": {"name": "Jetson TX2", "peak_tflops": 0.67},
    "jetson-xavier-nx": {"name": "Jetson Xavier NX", "peak_tflops": 0.85},
    "jetson-agx-xavier": {"name": "Jetson AGX Xavier", "peak_tflops": 1.41},
    "jetson-orin-nano": {"name": "Jetson Orin Nano 8GB", "peak_tflops": 1.28},
    "jetson-orin-nano-super": {"name": "Jetson Orin Nano Super", "peak_tflops": 2.09},
    "jetson-orin-nx": {"name": "Jetson Orin NX 16GB", "peak_tflops": 1.88},
    "jetson-agx-orin": {"name": "Jetson AGX Orin 64GB", "peak_tflops": 5.3},
    "drive-agx-orin": {"name": "DRIVE AGX Orin", "peak_tflops": 5.2},
}


class DeviceConfig(_Section):
    """Compute speed used when time is modelled: seconds = FLOPs / (peak x utilisation)."""

    preset: Literal[
        "jetson-tx2",
        "jetson-xavier-nx",
        "jetson-agx-xavier",
        "jetson-orin-nano",
        "jetson-orin-nano-super",
        "jetson-orin-nx",
        "jetson-agx-orin",
        "drive-agx-orin",
    ] = Field("jetson-orin-nano", description="fills name and peak where they are not given")
    name: str = "Jetson Orin Nano 8GB"
    peak_tflops: Speed = Field(1.28, description="FP32 TFLOPS")
    utilisation: float = Field(0.3, gt=0, le=1)
    sigma: float = Field(
        0.0, ge=0, le=5, description="of the logarithm of a vehicle's utilisation; 0: all alike"
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        preset = given.get("preset", "jetson-orin-nano")
        return {**DEVICES.get(preset, {}), **given} if isinstance(preset, str) else given


class ServerConfig(_Section):
    """The coordinator's compute speed, and the solver steps it is charged for."""

    name: str = "edge server, NVIDIA L4"
    peak_tflops: Speed = 30.0
    utilisation: float = Field(0.3, gt=0, le=1)
    billed_iterations: int = Field(
        50, ge=1, description="CG steps charged per projection when time is modelled"
    )


class WorkConfig(_Section):
    """When vehicles do their part, and what a departure does to work in hand."""

    when: Literal["on_request", "prepared"] = Field(
        "on_request", description="whether a contribution is made when asked for, or before"
    )
    departure: Literal["finish", "abort", "resume_on_return", "withdraw_by_proxy"] = Field(
        "finish", description="what becomes of the work of a vehicle that leaves"
    )
    proxy_s: float = Field(
        10.0, ge=1e-6, le=_MOST, description="seconds of silence until a departure is filed"
    )


class TimeConfig(_Section):
    """Which clock fills the ledger."""

    mode: Literal["modelled", "measured"] = "modelled"


class ExecutionConfig(_Section):
    """Where client training runs on this machine; never changes a result."""

    kind: Literal["serial", "processes"] = "serial"
    workers: int | None = Field(None, ge=1, description="default: one per core")


class Experiment(_Section):
    """Everything that determines the outcome of an experiment."""

    name: str = Field("experiment", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    mobility: MobilityConfig = MobilityConfig()
    clients: ClientsConfig = ClientsConfig()
    data: DataConfig = DataConfig()
    learning: LearningConfig = LearningConfig()
    fisher: FisherConfig = FisherConfig()
    fusion: FusionConfig = FusionConfig()
    editing: EditingConfig = EditingConfig()
    network: NetworkConfig = NetworkConfig()
    device: DeviceConfig = DeviceConfig()
    server: ServerConfig = ServerConfig()
    work: WorkConfig = WorkConfig()
    time: TimeConfig = TimeConfig()
    execution: ExecutionConfig = ExecutionConfig()
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = (0,)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise ValueError("seeds must name at least one seed, each once")
        if (
            self.clients.initial is not None
            and subset_size(self.editing.rho, self.clients.initial) < 1
        ):
            raise ValueError(
                f"editing.rho {self.editing.rho} of clients.initial {self.clients.initial} "
                "gives an empty subset (P = 0); raise one of them"
            )
        return self


def subset_size(rho: float, population: int) -> int:
    """P = floor(rho M0), exact for decimal rho (paper, section IV-A).

    >>> subset_size(0.29, 100)
    29
    """
    return int(Fraction(repr(rho)) * population)
