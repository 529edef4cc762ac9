"""What a transfer and a computation cost in simulated seconds."""

from testbed.network.device import Device, device_of
from testbed.network.radio import Draw, Radio, draw
from testbed.network.sharing import Cell, Flow

__all__ = ["Cell", "Device", "Draw", "Flow", "Radio", "device_of", "draw"]
