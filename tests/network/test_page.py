"""The tables of docs/network.md are those of the code."""

import re
from pathlib import Path

import pytest

from testbed.config.schema import DEVICES, NetworkConfig
from testbed.network import Radio
from testbed.network.radio import PRESETS

PAGE = Path(__file__).parents[2].joinpath("docs", "network.md").read_text(encoding="utf-8")


def cells(first: str) -> list[str]:
    row, *_ = re.findall(rf"^\| `{first}`[^|]*\|(.*)\|$", PAGE, re.MULTILINE)
    return [cell.strip() for cell in row.split("|")]


def test_tables_are_what_the_block_above_them_prints(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, object] = {}
    printed = []
    for code, after in re.findall(r"```python\n(.*?)```\n(.*?)(?=```python|\Z)", PAGE, re.DOTALL):
        exec(code, namespace)  # the page's own code
        printed.append(capsys.readouterr().out)
        assert printed[-1] in after
    # Rates by distance, drive-bys by radius, an example of sharing, training by device.
    assert [text.count("\n") for text in printed] == [8, 2, 0, len(DEVICES)]


@pytest.mark.parametrize("name", PRESETS)
def test_the_table_of_presets(name: str) -> None:
    constants = PRESETS[name]
    mhz, ghz, power, gains, noise, margin, alpha, cap, highest = cells(name)
    assert [float(n) for n in (mhz, ghz, power, noise, margin, alpha, cap)] == [
        constants.bandwidth_mhz,
        constants.frequency_ghz,
        constants.power_dbm,
        constants.noise_figure_db,
        constants.margin_db,
        constants.alpha,
        constants.cap,
    ]
    assert sum(map(float, gains.split("+"))) == constants.gains_dbi
    assert float(highest) * 1e6 == Radio.from_config(NetworkConfig(preset=name)).peak


@pytest.mark.parametrize("name", DEVICES)
def test_the_table_of_devices(name: str) -> None:
    device, _, _, tflops, _ = cells(name)
    assert {"name": device, "peak_tflops": float(tflops)} == DEVICES[name]
