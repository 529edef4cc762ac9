"""``testbed data list`` names every data set and where it is read from."""

import subprocess
import sys
from typing import get_args

import pytest
from typer.testing import CliRunner

from testbed.cli.data import app
from testbed.config.schema import DataConfig


@pytest.fixture
def listed(monkeypatch, tmp_path):
    monkeypatch.setattr("testbed.data.sources.DEBIAN_FASHION", tmp_path / "none")
    result = CliRunner().invoke(app, ["list"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.output


def row(output: str, name: str) -> list[str]:
    (line,) = [line for line in output.splitlines() if f" {name} " in line and "│" in line]
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_every_name_the_configuration_knows_has_a_row(listed):
    for name in get_args(DataConfig.model_fields["name"].annotation):
        assert row(listed, name)[0] == name


def test_digits_are_always_found(listed):
    assert row(listed, "digits") == [
        "digits", "yes", "1438 + 359", "1x8x8", "package scikit-learn"
    ]  # fmt: skip


def test_what_is_missing_is_said_and_how_to_get_it(listed, tmp_path):
    assert row(listed, "mnist") == ["mnist", "no", "", "", "the folder data.path"]
    assert row(listed, "fashion-mnist")[1::3] == ["no", str(tmp_path / "none")]
    lines = listed.splitlines()
    assert any(line.startswith("mnist: it does not come with the testbed; set") for line in lines)
    assert any("apt-get install dataset-fashion-mnist" in line for line in lines)


def test_the_module_is_cheap_to_import():
    code = (
        "import sys, testbed.cli.data; "
        "print([m for m in ('numpy', 'sklearn', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
