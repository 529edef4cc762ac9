"""The table of claims, as Markdown and as CSV."""

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from io import StringIO

from testbed.claims.record import Known
from testbed.claims.verdict import NONE, NOT_RUN, Row, number, shown
from testbed.config.cards import Card, Scale
from testbed.reporting.units import time_text

HEAD = ("figure", "paper", "here, 95 % interval", "n", "bytes by", "scale", "verdict")


def to_csv(rows: Sequence[Row]) -> str:
    """Return all rows with all digits."""
    stream = StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([field.name for field in fields(Row)])
    writer.writerows(astuple(row) for row in rows)
    return stream.getvalue()


def to_markdown(cards: Sequence[Card], known: Mapping[tuple[str, Scale], Known]) -> str:
    """Return a heading, a sentence and a table for each claim, with explanations below it."""
    rows = [row for each in known.values() for row in each.rows]
    parts = ["# Claims", "", tally(rows), ""]
    for card in cards:
        own = {scale: each for (name, scale), each in known.items() if name == card.name}
        if not own:
            continue
        parts += [f"## {card.name}", "", f"{card.says} *({card.source})*", ""]
        parts += [_line(HEAD), _line(["---"] * len(HEAD))]
        parts += [_line(cells(row)) for each in own.values() for row in each.rows]
        parts.append("")
        parts += reasons([row for each in own.values() for row in each.rows if row.why])
        took = [
            f"{time_text(each.wall_s)} at {scale}" for scale, each in own.items() if each.wall_s
        ]
        if took:
            parts.append(f"* It took {', '.join(took)}.")
        parts.append("")
    return "\n".join(parts)


def reasons(rows: Sequence[Row]) -> list[str]:
    """Explain what is missed or was not run, each reason once."""
    alike: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        alike.setdefault((row.figure, row.scale, row.why), []).append(row)
    lines: dict[str, list[str]] = {}
    for (figure, _, why), some in alike.items():
        gaps = sorted(abs(row.gap) for row in some if row.gap is not None)
        if not gaps:
            lines.setdefault(why, [])
            continue
        side = "above" if (some[0].gap or 0) > 0 else "below"
        unit = f" {some[0].unit}" if some[0].unit else ""
        size = number(gaps[0])
        if number(gaps[-1]) != size:
            size = f"{size} to {number(gaps[-1])}"
        lines.setdefault(why, []).append(f"{figure}, {size}{unit} {side} the band")
    return [f"* {'; '.join(told)}: {why}" if told else f"* {why}" for why, told in lines.items()]


def tally(rows: Sequence[Row]) -> str:
    """Count the verdicts at each scale.

    >>> row = Row("a", "b", "", "", "", None, None, None, 0, "", "", "small", NOT_RUN, None, "")
    >>> tally([row, row])
    'small: 2 not run at this scale.'
    """
    parts = []
    for scale in dict.fromkeys(row.scale for row in rows):
        counts = Counter(row.verdict for row in rows if row.scale == scale)
        parts.append(f"{scale}: {', '.join(f'{n} {name}' for name, n in counts.items())}.")
    return " ".join(parts)


def cells(row: Row) -> list[str]:
    """Return what stands below `HEAD`."""
    name = f"{row.figure}: {row.setting}" if row.setting else row.figure
    basis = f"{row.basis} ({row.beside})" if row.beside else row.basis
    n = f"{row.n:,}" if row.n else NONE
    paper = f"{row.expected} {row.unit}".rstrip()
    verdict = row.verdict if row.verdict == NOT_RUN else f"**{row.verdict}**"
    return [name, paper, shown(row), n, basis or NONE, row.scale, verdict]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(_plain(cell) for cell in cells)} |"


def _plain(cell: str) -> str:
    """Keep a cell in its line and column."""
    return " ".join(cell.split()).replace("|", "\\|")
