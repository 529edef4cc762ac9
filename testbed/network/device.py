"""How fast a computer works: a peak and the share of it that training reaches."""

from dataclasses import dataclass

from testbed.config.schema import DeviceConfig, ServerConfig

_TERA = 1e12


@dataclass(frozen=True)
class Device:
    """A compute profile: seconds = FLOPs / speed.

    Attributes
    ----------
    name : str
    speed : float
        FLOPs per second really reached, peak x utilisation.
    """

    name: str
    speed: float

    @classmethod
    def from_config(cls, config: DeviceConfig | ServerConfig) -> "Device":
        """Build from peak FP32 TFLOPS and utilisation."""
        return cls(name=config.name, speed=config.peak_tflops * _TERA * config.utilisation)

    def seconds(self, flops: int) -> float:
        """Seconds for `flops` operations."""
        return flops / self.speed
