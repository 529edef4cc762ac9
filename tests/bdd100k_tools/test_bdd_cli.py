"""The command ``bdd100k-tools``: figures on stdout, one line and status 2 for a mistake."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bdd100k_tools import CLASSES
from bdd100k_tools.cli import main

SHARED = Path(os.environ.get("TESTBED_DATA", Path(__file__).parents[3] / "shared" / "data"))
REAL = SHARED / "bdd100k_640" / "bdd100k_labels_train.json"


def rows(output: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in output.splitlines()
        if line.startswith("│")
    ]


@pytest.fixture
def labels(tmp_path):
    box = {"x1": 1, "y1": 1, "x2": 9, "y2": 9}
    car = {"category": "car", "box2d": box}
    frames = [
        {
            "name": "a.jpg",
            "attributes": {"weather": "rainy", "scene": "[bold]odd[/bold]", "timeofday": "night"},
            "labels": [car, car, {"category": "lane"}],
        },
        {"name": "b.jpg", "labels": [{"category": "trailer", "box2d": box}]},
    ]
    path = tmp_path / "labels.json"
    path.write_text(json.dumps(frames), encoding="utf-8")
    return path


def test_stats(labels, capsys):
    assert main(["stats", str(labels)]) == 0
    output = capsys.readouterr().out
    table = rows(output)
    boxes = dict.fromkeys(CLASSES, "0") | {"car": "2", "truck": "1"}
    assert table[: len(CLASSES)] == [[name, count] for name, count in boxes.items()]
    assert table[len(CLASSES)] == ["all", "3"]
    assert ["rainy", "1"] in table
    assert ["night", "1"] in table
    assert ["[bold]odd[/bold]", "1"] in table
    assert table.count(["-", "1"]) == 3
    assert table.count(["all", "2"]) == 3
    assert output.splitlines()[-1] == (
        "2 pictures, 3 boxes (1 crowd); dropped: 1 no box, 0 other class, 0 empty box"
    )


def test_a_mistake_is_one_line_and_status_2(tmp_path):
    missing = tmp_path / ("long" * 30 + ".json")
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from bdd100k_tools.cli import main; sys.exit(main())",
         "stats", missing],
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"bdd100k-tools: cannot read {missing}: No such file or directory\n"


def test_no_command_is_a_mistake_too(capsys):
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


@pytest.mark.skipif(not REAL.is_file(), reason="no bdd100k_640 in TESTBED_DATA")
def test_stats_of_the_real_file(capsys):
    assert main(["stats", str(REAL)]) == 0
    table = rows(capsys.readouterr().out)
    assert ["train", "2"] in table
    assert ["car", "11107"] in table
    assert ["rainy", "75"] in table
    assert table.count(["all", "1100"]) == 3
