"""Tables and lines on the terminal."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bdd100k_tools.report import REASONS, Report

if TYPE_CHECKING:
    from bdd100k_tools.evaluation import Evaluation

_SHOWN = 5


def say(line: str) -> None:
    """Print a line as it is."""
    Console().print(line, markup=False, highlight=False, soft_wrap=True)


def say_table(
    headings: Sequence[str], rows: Sequence[Sequence[object]], foot: bool = False
) -> None:
    """Print a table; all columns but the first are for numbers, the last row may be a sum."""
    table = Table(box=SIMPLE, show_edge=False, pad_edge=False)
    table.add_column(headings[0], no_wrap=True)
    for heading in headings[1:]:
        table.add_column(heading, justify="right")
    for number, row in enumerate(rows, 1):
        if foot and number == len(rows):
            table.add_section()
        table.add_row(*(Text(str(cell)) for cell in row))
    Console().print(table, "")


def say_report(report: Report) -> None:
    """Print what a reader repaired or left out; nothing if it did not."""
    for reason, meaning in REASONS.items():
        if number := report.counts[reason]:
            say(f"{number:>6} {meaning}; first: {report.examples[reason][0]}")
    if report.categories:
        say(f"       names that are no detection class: {counted(report.categories)}")


def say_scores(results: Sequence["Evaluation"]) -> None:
    """Print AP over all IoU thresholds, and at 0.50, under several conventions."""
    headings = ["\nAP at IoU", "\nn"]
    for result in results:
        headings += [f"{result.convention}\n50-95", "\n50"]
    rows: list[list[object]] = []
    for k, first in enumerate(results[0].classes):
        cells = [v for r in results for v in (r.classes[k].ap, r.classes[k].ap50)]
        rows.append([first.category, first.n, *map(score, cells)])
    present = sum(one.n > 0 for one in results[0].classes)
    means = [score(v) for r in results for v in (r.map50_95, r.map50)]
    say_table(headings, [*rows, [f"mAP of {present}", results[0].boxes, *means]], True)


def score(value: float) -> str:
    """Return a score with four digits; a dash if there is none."""
    return "-" if value != value else f"{value:.4f}"


def counted(values: Mapping[str, int]) -> str:
    """Return the first ten names with their numbers, those of 0 left out."""
    return ", ".join([f"{name} {number}" for name, number in values.items() if number][:10])


def some(names: Sequence[str]) -> str:
    """Return the first few names."""
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
