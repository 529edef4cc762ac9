"""Real cities as a user's own scenarios, by their path, with a tiny training budget."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTBED = Path(sys.executable).with_name("testbed")
QUICKSTART = Path(__file__).resolve().parents[2] / "configs" / "quickstart.yaml"
SHRUNKEN = {
    "mobility.warmup": "100",
    "mobility.end": "400",
    "clients": "{initial: 4, pool: 6}",
    "data.test_share": "0.85",
    "fisher.kind": "diagonal",
    "learning.epochs": "1",
    "editing.requests": "3",
}
RSUS = {"bologna_acosta": (922.9, 633.9), "bologna_pasubio": (877.9, 707.4)}


@pytest.mark.parametrize(
    ("city", "membership", "methods"),
    [
        ("bologna_pasubio", "rsu", ["fsosa", "retrain", "finetune"]),
        ("bologna_pasubio", "network", ["fsosa"]),
        ("bologna_acosta", "rsu", ["fsosa"]),
        ("bologna_acosta", "network", ["fsosa"]),
    ],
)
def test_a_real_city_runs_by_its_path(
    bologna: Path, tmp_path: Path, city: str, membership: str, methods: list[str]
) -> None:
    x, y = RSUS[city]
    wanted = {
        **SHRUNKEN,
        "mobility.scenario": bologna / city / "run.sumocfg",
        "mobility.membership": membership,
        "editing.methods": f"[{', '.join(methods)}]",
        "mobility.rsu": f"{{x: {x}, y: {y}, radius: 400}}",
    }
    settings = [part for key, value in wanted.items() for part in ("--set", f"{key}={value}")]
    ended = subprocess.run(
        [TESTBED, "run", QUICKSTART, "--out", tmp_path / "out", *settings],
        env={**os.environ, "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    manifests = [json.loads(path.read_text()) for path in tmp_path.rglob("manifest.json")]
    assert {manifest["method"] for manifest in manifests} == set(methods)
    for manifest in manifests:
        assert manifest["mobility"]["membership"] == membership
        assert manifest["counts"]["requests"] == 3
    # Under an RSU a run ends when its method has answered, so traces differ in length alone.
    traces = [path.read_text() for path in tmp_path.rglob("trace.csv")]
    tables = [list(csv.reader(_rows(trace))) for trace in traces]
    longest = max(tables, key=len)
    assert ("distance" in longest[0]) == (membership == "rsu")
    assert all(len(table) > 50 and table == longest[: len(table)] for table in tables)


def _rows(trace: str) -> list[str]:
    return [line for line in trace.splitlines() if line[0] != "#"]
