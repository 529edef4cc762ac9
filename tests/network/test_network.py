"""Seconds of transfers and of computations, by hand."""

import pytest

from testbed.config.schema import DeviceConfig, NetworkConfig, ServerConfig
from testbed.network import Device, Link


def test_a_resnet_of_44_7_megabytes_takes_8_94_seconds_at_40_megabits() -> None:
    assert Link(rate=40e6, latency=0.0).seconds(44_700_000) == pytest.approx(8.94, rel=1e-12)


def test_latency_is_paid_once_a_transfer() -> None:
    link = Link.from_config(NetworkConfig(rate_mbps=40, latency_ms=10))
    assert (link.rate, link.latency) == (40e6, 0.01)
    assert link.seconds(0) == 0.01
    # LeNet: 44,190 float32 numbers are 176,760 bytes, 35.352 ms at 40 Mb/s.
    assert link.seconds(176_760) == pytest.approx(0.01 + 0.035352, rel=1e-12)
    assert link.seconds(2 * 176_760) == pytest.approx(0.01 + 2 * 0.035352, rel=1e-12)


def test_a_megabit_is_a_million_bits() -> None:
    assert Link.from_config(NetworkConfig(rate_mbps=1, latency_ms=0)).seconds(125_000) == 1.0


def test_a_device_reaches_its_peak_times_its_utilisation() -> None:
    device = Device.from_config(DeviceConfig(name="box", peak_tflops=2, utilisation=0.25))
    assert device == Device("box", 0.5e12)
    assert device.seconds(10**12) == 2.0
    assert device.seconds(0) == 0.0


def test_defaults_are_the_devices_they_name() -> None:
    orin, server = Device.from_config(DeviceConfig()), Device.from_config(ServerConfig())
    assert orin.speed == pytest.approx(1.28e12 * 0.3)
    assert server.speed == pytest.approx(30e12 * 0.3)
    assert "Orin" in orin.name
    assert "L4" in server.name
