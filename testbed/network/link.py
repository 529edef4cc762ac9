"""The radio link between a vehicle and the roadside unit: one fixed rate."""

from dataclasses import dataclass

from testbed.config.schema import NetworkConfig

_BITS = 8


@dataclass(frozen=True)
class Link:
    """A link of constant rate, shared by nobody.

    Attributes
    ----------
    rate : float
        Bits per second.
    latency : float
        Seconds until the first bit arrives.
    """

    rate: float
    latency: float

    @classmethod
    def from_config(cls, config: NetworkConfig) -> "Link":
        """Build from Mb/s (1e6 bit/s) and milliseconds."""
        return cls(rate=config.rate_mbps * 1e6, latency=config.latency_ms / 1e3)

    def seconds(self, size: int) -> float:
        """Seconds to transfer `size` bytes.

        >>> Link(rate=40e6, latency=0.0).seconds(44_700_000)
        8.94
        """
        return self.latency + size * _BITS / self.rate
