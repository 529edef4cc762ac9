"""The radio link, the computers at its ends, and when vehicles work."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from testbed.config.base import MOST, Section, Speed, filled

Decibel = Annotated[float, Field(ge=-300, le=300)]
RadioPreset = Literal["nr-ul-20", "nr-ul-100", "nr-dl-20", "itsg5", "fixed"]
_BUDGET = ("bandwidth_mhz", "frequency_ghz", "power_dbm", "gains_dbi", "noise_figure_db")
RADIO_KEYS = (*_BUDGET, "margin_db", "alpha", "cap")


class NetworkConfig(Section):
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


class DeviceConfig(Section):
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
        return filled(given, DEVICES, "jetson-orin-nano")


class ServerConfig(Section):
    """The coordinator's compute speed, and the solver steps it is charged for."""

    name: str = "edge server, NVIDIA L4"
    peak_tflops: Speed = 30.0
    utilisation: float = Field(0.3, gt=0, le=1)
    billed_iterations: int = Field(
        50, ge=1, description="CG steps charged per projection when time is modelled"
    )


class WorkConfig(Section):
    """When vehicles do their part, and what a departure does to work in hand."""

    when: Literal["on_request", "prepared"] = Field(
        "on_request", description="whether a contribution is made when asked for, or before"
    )
    departure: Literal["finish", "abort", "resume_on_return", "withdraw_by_proxy"] = Field(
        "finish", description="what becomes of the work of a vehicle that leaves"
    )
    proxy_s: float = Field(
        10.0, ge=1e-6, le=MOST, description="seconds of silence until a departure is filed"
    )
