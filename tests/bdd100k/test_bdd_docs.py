"""The pages say what the package does."""

import re
import shlex
from pathlib import Path

import pytest

from bdd100k_tools import REASONS
from bdd100k_tools.cli import app
from bdd100k_tools.evaluation import CONVENTIONS, evaluate
from bdd100k_tools.labels import read
from bdd100k_tools.predictions import read_predictions

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "bdd100k.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^bdd100k-tools (.+)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_parse(line):
    from typer.main import get_command

    name, *words = shlex.split(line)
    with get_command(app).commands[name].make_context(name, words) as context:
        assert context.params["labels"]


def test_every_command_and_reason_is_on_the_page():
    assert {line.split()[0] for line in COMMANDS} == {
        command.name or command.callback.__name__ for command in app.registered_commands
    }
    assert all(f"`{reason}`" in PAGE for reason in REASONS)


def test_the_table_of_the_page_is_what_comes_out(golden):
    pytest.importorskip("faster_coco_eval", reason="evaluation needs faster-coco-eval")
    frames = list(read(golden / "labels_2020.json"))
    found, _ = read_predictions(golden / "predictions.json", [frame.name for frame in frames])
    numbers = [
        value
        for convention in CONVENTIONS
        for result in [evaluate(frames, found, convention)]
        for value in (result.map50_95, result.map50)
    ]
    (row,) = re.findall(r"^mAP of 9 +145 +(.+)$", (DOCS / "map.md").read_text(), re.MULTILINE)
    assert row.split() == [f"{value:.4f}" for value in numbers]
