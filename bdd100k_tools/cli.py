"""The command ``bdd100k-tools``."""

import argparse
import io
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bdd100k_tools.classes import CLASSES
from bdd100k_tools.errors import LabelError
from bdd100k_tools.labels import Labels, read_labels

ATTRIBUTES = ("weather", "scene", "timeofday")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0, or 2 after a user's mistake."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal may lack some characters
            stream.reconfigure(errors="replace")
    parser = argparse.ArgumentParser(prog="bdd100k-tools", description="BDD100K detection labels.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    stats = commands.add_parser("stats", help="count boxes per class, pictures per attribute")
    stats.add_argument("labels", type=Path, metavar="LABELS.json")
    chosen = parser.parse_args(arguments)
    try:
        labels = read_labels(chosen.labels)
    except LabelError as error:
        Console(stderr=True).print(
            f"bdd100k-tools: {error}", markup=False, highlight=False, soft_wrap=True
        )
        return 2
    _print_stats(labels)
    return 0


def _print_stats(labels: Labels) -> None:
    console = Console()
    boxes = Counter(box.category for picture in labels.pictures for box in picture.boxes)
    crowd = sum(box.crowd for picture in labels.pictures for box in picture.boxes)
    # Every class has a row: a class without boxes is what one must not overlook.
    _print_counts(console, "class", "boxes", {name: boxes[name] for name in CLASSES})
    for attribute in ATTRIBUTES:
        values = Counter(picture.attributes.get(attribute, "-") for picture in labels.pictures)
        _print_counts(console, attribute, "pictures", dict(values.most_common()))
    dropped = ", ".join(
        f"{count} {reason.replace('_', ' ')}" for reason, count in asdict(labels.dropped).items()
    )
    console.print(
        f"{len(labels.pictures)} pictures, {boxes.total()} boxes ({crowd} crowd); "
        f"dropped: {dropped}",
        highlight=False,
        soft_wrap=True,
    )


def _print_counts(console: Console, what: str, unit: str, counts: dict[str, int]) -> None:
    table = Table()
    table.add_column(what)
    table.add_column(unit, justify="right")
    for name, count in counts.items():
        table.add_row(Text(name), str(count))
    table.add_section()
    table.add_row("all", str(sum(counts.values())))
    console.print(table)
