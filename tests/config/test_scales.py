"""One file, several sizes: what `scales` lays over it, and what it may not."""

from pathlib import Path

import pytest

from testbed.config import load, spec_hash
from testbed.errors import ConfigError

FILE = """
clients: {pool: 100}
learning: {epochs: 30, lr: 0.02}
scale: small
scales:
  smoke:
    clients: {pool: 10}
    learning: {epochs: 1}
  small:
    learning: {epochs: 5}
    seeds: [0, 1]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "study.yaml"
    path.write_text(FILE, encoding="utf-8")
    return path


def test_the_scale_of_the_file_is_laid_over_it(file: Path) -> None:
    found = load(file)
    assert found.scale == "small"
    assert (found.clients.pool, found.learning.epochs, found.learning.lr) == (100, 5, 0.02)
    assert found.seeds == (0, 1)


def test_set_chooses_the_scale_and_wins_over_it(file: Path) -> None:
    found = load(file, ["scale=smoke"])
    assert (found.clients.pool, found.learning.epochs) == (10, 1)
    found = load(file, ["scale=smoke", "learning.epochs=7"])
    assert (found.clients.pool, found.learning.epochs) == (10, 7)


def test_paper_is_the_file_itself_where_it_says_nothing_else(file: Path) -> None:
    found = load(file, ["scale=paper"])
    assert (found.clients.pool, found.learning.epochs, found.seeds) == (100, 30, (0,))


def test_a_scale_is_the_sizes_it_stands_for(file: Path) -> None:
    written = load(None, ["learning.epochs=5", "learning.lr=0.02", "seeds=0,1"])
    assert spec_hash(load(file)) == spec_hash(written)


def test_scales_are_inherited_and_merged(file: Path) -> None:
    heir = file.with_name("heir.yaml")
    heir.write_text("extends: study.yaml\nscales: {small: {learning: {epochs: 6}}}\n")
    found = load(heir)
    assert (found.learning.epochs, found.seeds) == (6, (0, 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scales: {small: {learning: {lr: 0.1}}}", "scales.small.learning.lr: a scale changes"),
        ("scales: {tiny: {seeds: [1]}}", "scales.tiny: unknown scale; known: smoke, small, paper"),
        ("scales: 3", "scales: 3 must hold sections smoke, small, paper"),
        ("scale: small", "scale: 'small' is not described; .*study.yaml has no scales"),
        ("scale: small\nscales: {smoke: {seeds: [1]}}", "study.yaml has smoke"),
        ("scales: {smoke: 3}", "scales.smoke: 3 must be a section"),
        ("scales: {smoke: [1]}\nscale: smoke", "must be a section"),
        ("scale: [a]\nscales: {smoke: {seeds: [1]}}", "scale: .'a'. must be 'smoke'"),
        ("scale: {a: 1}\nscales: {smoke: {seeds: [1]}}", "scale: .* must be 'smoke'"),
        (
            "learning: 3\nscales: {smoke: {learning: {epochs: 1}}}\nscale: smoke",
            "learning: 3 must be a section with keys of its own",
        ),
        ("scale: large", "scale: 'large' must be 'smoke', 'small' or 'paper'"),
        ("scales: {small: {learning: {epochs: 0}}}\nscale: small", "epochs: 0 must be at least 1"),
    ],
)
def test_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        load(path)


def test_without_a_file_there_is_the_paper_only() -> None:
    assert load(None).scale == "paper"
    with pytest.raises(ConfigError, match="scale: 'smoke' is not described; this has no scales"):
        load(None, ["scale=smoke"])
