"""Every algorithm's page has the same four parts, with something in each."""

import re
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest

from testbed.config.schema import Method

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "algorithms"
PAGES = sorted(page for page in FOLDER.glob("*.md") if page.name != "index.md")
TABLE = re.compile(r"^\|.*\|\n\|[-:| ]+\|\n(?:\|.*\|\n?)+", re.MULTILINE)
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPREAD = re.compile(r"\d ± \d")


def sections(page: Path) -> dict[str, str]:
    """The text under each heading of a page, in their order."""
    parts = re.split(r"^## (.*)$", page.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def logged(page: Path) -> str:
    (name,) = [name for name in sections(page) if name.endswith("logged")]
    return name


@pytest.fixture(params=PAGES, ids=lambda page: page.stem)
def page(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_the_parts_stand_in_one_order(page: Path) -> None:
    names = list(sections(page))
    parts = ["Usage", logged(page), "Details", "Measured"]
    assert [name for name in names if name in parts] == parts
    assert names[-1] == "Measured"


def test_usage_is_a_command_that_names_the_method(page: Path) -> None:
    (command, *_) = CONSOLE.findall(sections(page)["Usage"])
    assert f"--set editing.methods={page.stem}" in command


def test_what_is_logged_names_columns(page: Path) -> None:
    text = sections(page)[logged(page)]
    assert "ledger" in text
    assert "`upload`" in text


def test_details_are_numbered_from_one_and_the_source_is_named(page: Path) -> None:
    numbers = re.findall(r"^(\d+)\. ", sections(page)["Details"], re.MULTILINE)
    assert len(numbers) >= 4
    assert [int(number) for number in numbers] == list(range(1, len(numbers) + 1))
    top = page.read_text().split("## ")[0]
    assert re.search(r"^Source: .*(arXiv|[A-Z]{4,}|IWQoS)", top, re.MULTILINE | re.DOTALL)
    assert re.search(r"`testbed/(editing|fusion)/\w+\.py`", top)


def test_measured_is_a_table_of_three_seeds_with_its_command(page: Path) -> None:
    text = sections(page)["Measured"]
    assert any(SPREAD.search(table) for table in TABLE.findall(text))
    assert re.search(r"three seeds|seeds\s+0, 1, 2", text)
    assert CONSOLE.search(text) or "`python benchmarks/" in text


def rows(text: str) -> list[list[str]]:
    """The cells of every line of a text's tables."""
    lines = "\n".join(TABLE.findall(text)).splitlines()
    return [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize(
    ("stem", "label"), [("retrain", "Retrain"), ("finetune", "Fine-tune"), ("fats-cu", "FATS-CU")]
)
def test_numbers_taken_from_the_table_of_editing_methods_are_its_numbers(
    stem: str, label: str
) -> None:
    experiments = (ROOT / "docs" / "experiments.md").read_text()
    theirs = [row[1:] for row in rows(experiments) if row[0].startswith(label) and len(row) == 5]
    page = sections(FOLDER / f"{stem}.md")["Measured"]
    ours = [[row[1], *row[3:]] for row in rows(page) if len(row) == 6 and "clients" in row[0]]
    assert len(ours) == 3
    assert ours == theirs


def test_every_method_has_a_page_and_every_page_a_line_in_the_index() -> None:
    index = (FOLDER / "index.md").read_text()
    methods, links = set(re.findall(r"^\| `(.*?)` \|", index, re.MULTILINE)), set()
    methods = {name for cell in methods for name in re.split("`, `", cell)}
    links = set(re.findall(r"\]\(([\w-]+\.md)\)", index))
    assert methods == set(get_args(Method))
    assert links == {page.name for page in PAGES}


def test_no_heading_runs_into_its_text(page: Path) -> None:
    for heading, following in pairwise(page.read_text().splitlines()):
        if heading.startswith("#"):
            assert following == "", heading
