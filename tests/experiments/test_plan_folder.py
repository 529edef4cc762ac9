"""A plan is for the folder that the sweep would take."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sweeps import swept, write

TESTBED = Path(sys.executable).with_name("testbed")


def everything(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*")}


@pytest.mark.parametrize("words", [("plan",), ("sweep", "--dry-run")])
@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("thesis.tex", "chapter", "not empty and not of a sweep; name another with --out"),
        ("sweep.json", "{", "unreadable"),
        ("sweep.json", '{"schema": 999}', "schema version 999"),
        ("rho=0.5/thesis.tex", "chapter", "not empty and not a results folder"),
    ],
)
def test_a_plan_is_for_the_folder_that_the_sweep_would_take(
    tmp_path: Path, words: tuple[str, ...], name: str, content: str, told: str
) -> None:
    command, *options = words
    out = tmp_path / "out"
    (out / name).parent.mkdir(parents=True)
    (out / name).write_text(content)
    if name.startswith("rho"):
        config = write(tmp_path)
        swept(config, ["rho=0.75"], out / "other", methods="fsosa")
        shutil.copy(out / "other" / "sweep.json", out)
        shutil.rmtree(out / "other")
    before = everything(tmp_path)
    arguments = [command, write(tmp_path), "--grid", "rho=0.5", "--out", out, *options]
    said = subprocess.run([TESTBED, *map(str, arguments)], capture_output=True, text=True)
    assert (said.returncode, said.stdout) == (2, "")
    assert told in said.stderr
    assert said.stderr.count("\n") == 1
    assert everything(tmp_path) == before | {"sweep.yaml", "minute.csv"}
