"""Seconds of computations, by hand, and computers drawn by the vehicle's name."""

import math
from statistics import fmean, median, stdev

import pytest
from pydantic import ValidationError

from testbed.config import load
from testbed.config.schema import DEVICES, DeviceConfig, ServerConfig
from testbed.network import Device, device_of
from testbed.streams import Streams


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


@pytest.mark.parametrize("preset", DEVICES)
def test_a_preset_fills_what_is_not_given(preset: str) -> None:
    config = load(None, [f"device.preset={preset}"]).device
    assert {"name": config.name, "peak_tflops": config.peak_tflops} == DEVICES[preset]
    other = DeviceConfig(preset=preset, peak_tflops=7)
    assert (other.name, other.peak_tflops) == (DEVICES[preset]["name"], 7)


def test_the_default_preset_is_the_default_device() -> None:
    assert DeviceConfig(preset="jetson-orin-nano") == DeviceConfig()


@pytest.mark.parametrize("preset", ["jetson-orin", 7, None, ["jetson-tx2"]])
def test_an_unknown_preset_is_refused(preset: object) -> None:
    with pytest.raises(ValidationError, match="preset"):
        DeviceConfig.model_validate({"preset": preset})


# CUDA cores and the highest clock in MHz.
CORES = {
    "jetson-tx2": (256, 1300),
    "jetson-xavier-nx": (384, 1100),
    "jetson-agx-xavier": (512, 1377),
    "jetson-orin-nano": (1024, 625),
    "jetson-orin-nano-super": (1024, 1020),
    "jetson-orin-nx": (1024, 918),
    "jetson-agx-orin": (2048, 1300),
}


@pytest.mark.parametrize("preset", CORES)
def test_peaks_are_two_operations_per_core_and_cycle(preset: str) -> None:
    cores, mhz = CORES[preset]
    assert DEVICES[preset]["peak_tflops"] == pytest.approx(2 * cores * mhz * 1e6 / 1e12, rel=0.01)


def test_without_sigma_all_vehicles_are_alike() -> None:
    config = DeviceConfig()
    for vehicle in ("a", "b"):
        assert device_of(config, Streams(0), vehicle) == Device.from_config(config)


def test_a_vehicle_keeps_its_computer() -> None:
    config = DeviceConfig(sigma=0.3)
    speeds = {device_of(config, Streams(s), v).speed for s in (0, 1) for v in ("a", "b")}
    assert len(speeds) == 4
    assert device_of(config, Streams(0), "a") == device_of(config, Streams(0), "a")


def test_speeds_are_log_normal() -> None:
    config = DeviceConfig(sigma=0.3)
    speeds = [device_of(config, Streams(0), f"v{n}").speed for n in range(3000)]
    logs = [math.log(speed / Device.from_config(config).speed) for speed in speeds]
    assert fmean(logs) == pytest.approx(0, abs=0.02)
    assert stdev(logs) == pytest.approx(0.3, abs=0.015)
    assert median(speeds) == pytest.approx(1.28e12 * 0.3, rel=0.03)


def test_nobody_is_faster_than_the_peak() -> None:
    config = DeviceConfig(sigma=2.0, utilisation=0.9)
    speeds = [device_of(config, Streams(0), f"v{n}").speed for n in range(200)]
    assert max(speeds) == 1.28e12
