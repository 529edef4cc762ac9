"""How fast a computer works: a peak and the share of it that training reaches."""

import math
from dataclasses import dataclass

from testbed.config.schema import DeviceConfig, ServerConfig
from testbed.network.radio import standard_normal
from testbed.streams import Streams

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
    def from_config(cls, config: DeviceConfig | ServerConfig, factor: float = 1.0) -> "Device":
        """Build from peak FP32 TFLOPS and utilisation.

        Parameters
        ----------
        config : DeviceConfig or ServerConfig
        factor : float
            On the utilisation, which stays at most 1.
        """
        share = min(1.0, config.utilisation * factor)
        return cls(name=config.name, speed=config.peak_tflops * _TERA * share)

    def seconds(self, flops: int) -> float:
        """Seconds for `flops` operations."""
        return flops / self.speed


def device_of(config: DeviceConfig, streams: Streams, vehicle: str) -> Device:
    """Return a vehicle's computer: its utilisation is log-normal about that of the config.

    The draw depends on the seed and the vehicle's name alone.
    """
    z = standard_normal(streams.uniform("device", vehicle))
    return Device.from_config(config, math.exp(config.sigma * z))
