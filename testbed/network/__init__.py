"""What a transfer and a computation cost in simulated seconds."""

from testbed.network.device import Device
from testbed.network.link import Link

__all__ = ["Device", "Link"]
