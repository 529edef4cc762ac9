"""The configuration of an experiment, section by section.

Pydantic lives at this edge only: the rest of the testbed receives these frozen values.
Ranges are checked here; what needs the file system or the traffic is checked where it
is used.
"""

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from testbed.config.base import Positive, Section
from testbed.config.detection import DETECTION_METHODS, DETECTORS, DetectionConfig
from testbed.config.learning import PRESETS, DataConfig, FisherConfig, FusionConfig, LearningConfig
from testbed.config.link import (
    DEVICES,
    RADIO_KEYS,
    DeviceConfig,
    NetworkConfig,
    ServerConfig,
    WorkConfig,
)
from testbed.config.traffic import (
    AreaConfig,
    ArrivalsConfig,
    MobilityConfig,
    RsuConfig,
    ScheduleConfig,
)

__all__ = [
    "DETECTORS",
    "DEVICES",
    "PRESETS",
    "RADIO_KEYS",
    "AreaConfig",
    "ArrivalsConfig",
    "ClientsConfig",
    "DataConfig",
    "DetectionConfig",
    "DeviceConfig",
    "EditingConfig",
    "ExecutionConfig",
    "Experiment",
    "FisherConfig",
    "FusionConfig",
    "LearningConfig",
    "Method",
    "MobilityConfig",
    "NetworkConfig",
    "RoundsConfig",
    "RsuConfig",
    "ScheduleConfig",
    "ServerConfig",
    "TimeConfig",
    "WorkConfig",
    "subset_size",
]

Method = Literal[
    "fsosa",
    "retrain",
    "finetune",
    "federaser",
    "fedrr",
    "fats-cu",
    "fedavg",
    "fisher-merging",
    "fedfisher",
    "fedfisher-diagonal",
    "regmean",
    "fedlpa",
    "ma-echo",
    "otfusion",
    "pfnm",
    "dense",
]


class ClientsConfig(Section):
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


class EditingConfig(Section):
    """The methods compared and the requests they answer."""

    rho: float = Field(0.5, gt=0, le=1, description="P = floor(rho M0)")
    methods: tuple[Method, ...] = ("fsosa", "retrain", "finetune")
    requests: int = Field(31, ge=0, description="the run ends after this many requests")
    handling: Literal["sequential", "batch"] = "sequential"
    below_subset: Literal["strict", "shrink"] = Field(
        "shrink", description="what happens when the population falls below P"
    )

    @model_validator(mode="after")
    def _methods_named_once(self) -> Self:
        if not self.methods or len(set(self.methods)) != len(self.methods):
            raise ValueError("methods must name at least one method, each once")
        return self


class RoundsConfig(Section):
    """The methods that train in rounds: federaser, fedrr, fats-cu, and dense at the server."""

    rounds: int = Field(
        10, ge=2, description="T; each takes learning.epochs / T epochs, in whole epochs"
    )
    store_every: int = Field(2, ge=1, description="federaser: rounds between stored updates")
    calibration: float = Field(
        0.5, gt=0, le=1, description="federaser: share of a round's epochs in a calibration"
    )
    retraining: int = Field(5, ge=1, description="fedrr: rounds of a rapid retraining")
    distillation: int = Field(20, ge=1, description="dense: epochs at the coordinator")


class TimeConfig(Section):
    """Which clock fills the ledger."""

    mode: Literal["modelled", "measured"] = "modelled"


class ExecutionConfig(Section):
    """Where client training runs on this machine; never changes a result."""

    kind: Literal["serial", "processes", "ray"] = "serial"
    workers: int | None = Field(None, ge=1, description="default: one per core")
    address: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9._-]+:[0-9]{1,5}$",
        description="ray: host:port of a cluster; default: Ray on this machine alone",
    )
    memory_gb: Positive = Field(1.0, description="ray: memory that one worker needs")
    cache: Path | None = Field(
        None, description="folder of prepared pictures; default: the user's cache folder"
    )
    store: Path | None = Field(
        None, description="folder of what clients sent in former runs; default: forget it"
    )
    store_limit_gb: Positive = Field(
        20.0, description="what was not used for longest is removed from the store beyond this"
    )

    @model_validator(mode="after")
    def _cluster_is_rays(self) -> Self:
        if self.address is not None and (self.kind != "ray" or self.workers is not None):
            raise ValueError(
                f"address is {self.address}, a Ray cluster, which has as many workers as cores; "
                "set kind to ray and leave workers unset, or leave address unset"
            )
        return self

    @property
    def store_limit_bytes(self) -> int:
        """The limit in bytes."""
        return int(self.store_limit_gb * 1e9)


class Experiment(Section):
    """Everything that determines the outcome of an experiment."""

    name: str = Field("experiment", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    scale: Literal["smoke", "small", "paper"] = Field(
        "paper", description="which of the file's scales, sizes and epochs only, is laid over it"
    )
    fidelity: Literal["train", "cost"] = Field(
        "train", description="cost: nothing is trained, only time and bytes are worked out"
    )
    mobility: MobilityConfig = MobilityConfig()
    clients: ClientsConfig = ClientsConfig()
    data: DataConfig = DataConfig()
    learning: LearningConfig = LearningConfig()
    detection: DetectionConfig = DetectionConfig()
    fisher: FisherConfig = FisherConfig()
    fusion: FusionConfig = FusionConfig()
    editing: EditingConfig = EditingConfig()
    rounds: RoundsConfig = RoundsConfig()
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
        if self.fidelity == "cost" and self.time.mode == "measured":
            raise ValueError(
                "fidelity is cost and time.mode measured, but where nothing is trained there is "
                "nothing to measure; set time.mode to modelled or fidelity to train"
            )
        if (
            self.clients.initial is not None
            and subset_size(self.editing.rho, self.clients.initial) < 1
        ):
            raise ValueError(
                f"editing.rho {self.editing.rho} of clients.initial {self.clients.initial} "
                "gives an empty subset (P = 0); raise one of them"
            )
        return self

    @model_validator(mode="after")
    def _learnable(self) -> Self:
        detects = self.data.name == "bdd100k"
        model = self.learning.model
        if model != "auto" and (model in DETECTORS) != detects:
            raise ValueError(
                f"learning.model is {model} and data.name {self.data.name}; "
                f"{DETECTORS[0]} to {DETECTORS[-1]} learn bdd100k, and nothing else does"
            )
        if not detects and (self.data.partition == "attribute" or self.data.attribute != "class"):
            raise ValueError(
                f"data.partition is {self.data.partition} by {self.data.attribute}, and "
                f"{self.data.name} knows classes only; attributes are those of bdd100k"
            )
        if detects:
            self._check_detection()
        return self

    def _check_detection(self) -> None:
        missing = [
            f"data.{key}"
            for key in ("path", "labels", "test_path", "test_labels")
            if getattr(self.data, key) is None
        ]
        if missing:
            raise ValueError(f"bdd100k needs {', '.join(missing)}; nothing is ever downloaded")
        if self.data.partition == "writers" or self.data.users != 1:
            raise ValueError("bdd100k has no writers; use another data.partition")
        if self.data.partition == "attribute" and self.data.attribute == "class":
            raise ValueError(
                "data.partition attribute needs data.attribute weather, scene or timeofday"
            )
        if self.fisher.estimator != "empirical":
            raise ValueError(
                f"fisher.estimator is {self.fisher.estimator}; a detector's Fisher is the squared "
                "gradient of its loss on the labels: set it to empirical"
            )
        unfit = [name for name in self.editing.methods if name not in DETECTION_METHODS]
        if unfit:
            raise ValueError(
                f"editing.methods: {', '.join(unfit)} cannot fuse detectors; "
                f"those that can: {', '.join(DETECTION_METHODS)}"
            )


def subset_size(rho: float, population: int) -> int:
    """P = floor(rho M0), exact for decimal rho (paper, section IV-A).

    >>> subset_size(0.29, 100)
    29
    """
    return int(Fraction(repr(rho)) * population)
