"""The page on theory: no more digits than its intervals carry, lines told apart without colour."""

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from extents import check_texts

from testbed.reporting.intervals import mean

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script():
    """Return a function that imports a script of benchmarks/ by its name."""

    def load(name):
        spec = spec_from_file_location(f"drawing_{name}", ROOT / "benchmarks" / f"{name}.py")
        module = sys.modules[spec.name] = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def test_means_end_where_their_intervals_do():
    page = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    cells = re.findall(r"([\d.e-]+) ± ([\d.e-]+)", page)
    assert len(cells) > 100
    for middle, half in cells:
        assert len(middle.partition(".")[2]) == len(half.partition(".")[2]), (middle, half)
        digits = half.replace(".", "").lstrip("0")
        assert len(digits) <= (2 if digits[0] in "12" else 1), (middle, half)


@pytest.mark.parametrize(
    ("values", "written"),
    [
        ([0.00106, 0.00706], "0.004 ± 0.003"),
        ([0.876, 0.216], "0.5 ± 0.3"),
        ([4e-8, 2e-9], "(2.1 ± 1.9) × 10⁻⁸"),
        ([1.036, 0.964], "1.00 ± 0.04"),
    ],
)
def test_the_script_prints_such_means(script, values, written):
    assert script("theory").shown(mean(values)) == written


def test_lines_of_the_stability_figure_differ_without_colour(script):
    figure = script("stability").draw()
    check_texts(figure)
    for axes in figure.axes:
        looks = [
            (line.get_linestyle(), str(line._dash_pattern), line.get_marker())
            for line in axes.lines
        ]
        assert len(looks) == 5
        assert len(set(looks)) == 5, looks
