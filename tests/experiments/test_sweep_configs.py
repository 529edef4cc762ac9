"""The ready-made sweeps: the command at the head of each file is a sweep that can be run."""

import shlex
from pathlib import Path

import pytest

from testbed.config import load, subset_size
from testbed.config.scales import NAMES
from testbed.experiments.grid import Grid, read_grid

FOLDER = Path(__file__).resolve().parents[2] / "configs" / "sweeps"
FILES = sorted(FOLDER.glob("*.yaml"))
CELLS = {
    "alpha": 5 * 5 * 3,
    "case-study": 5 * 3 * 3,
    "clients": 5 * 3 * 3,
    "density": 5 * 5 * 3,
    "rho": 6 * 5 * 3,
    "rho-density": 12 * 5 * 3,
}


def command(file: Path) -> list[str]:
    """Return the words of the command in a file's comment."""
    (line,) = (line for line in file.read_text().splitlines() if "testbed sweep" in line)
    return shlex.split(line.lstrip("# "))


def options(words: list[str], name: str) -> list[str]:
    return [words[at + 1] for at, word in enumerate(words) if word == name]


def grid_of(file: Path, *settings: str) -> Grid:
    words = command(file)
    return read_grid(file, options(words, "--grid"), [*options(words, "--set"), *settings])


def test_there_are_sweeps() -> None:
    assert {file.stem for file in FILES} == set(CELLS)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_command_in_the_file_is_a_sweep_of_that_file(file: Path) -> None:
    words = command(file)
    assert words[:3] == ["testbed", "sweep", f"configs/sweeps/{file.name}"]
    assert set(words[3::2]) <= {"--grid", "--set"}
    grid = grid_of(file)
    assert grid.cells == CELLS[file.stem]
    assert {point.experiment.name for point in grid.points} == {file.stem}
    assert {point.experiment.scale for point in grid.points} == {"small"}
    assert {point.experiment.execution.kind for point in grid.points} == {"processes"}


@pytest.mark.parametrize("scale", NAMES)
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_sweep_has_every_scale(file: Path, scale: str) -> None:
    found = load(file, [f"scale={scale}"])
    schedule = found.mobility.schedule
    if found.mobility.source == "schedule":
        assert schedule.changes == found.editing.requests
        assert schedule.vehicles + schedule.changes <= found.clients.pool
        assert subset_size(found.editing.rho, schedule.vehicles) >= 2
    assert found.learning.epochs >= found.rounds.rounds or "fats-cu" not in found.editing.methods
    # Everybody who takes part when the warm-up ends is a client.
    assert found.clients.initial is None


def test_a_point_of_the_case_study_is_a_data_set_with_what_belongs_to_it() -> None:
    points = {
        point.experiment.data.name: point for point in grid_of(FOLDER / "case-study.yaml").points
    }
    assert set(points) == {"fashion-mnist", "mnist", "svhn", "cifar10", "femnist"}
    femnist = points["femnist"]
    assert femnist.name == "data.name=femnist,data.path=femnist,data.partition=writers"
    assert femnist.experiment.data.partition == "writers"
    assert femnist.experiment.data.path == Path("DATA/femnist")
    assert points["mnist"].experiment.data.partition == "dirichlet"
