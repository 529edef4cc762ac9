"""The table of claims, as Markdown and as CSV."""

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from io import StringIO

from testbed.claims.record import Known
from testbed.claims.verdict import NOT_RUN, Row
from testbed.config.cards import Card, Scale
from testbed.reporting.units import time_text

_NONE = "–"
_HEAD = ("figure", "paper", "here, 95 % interval", "n", "bytes by", "scale", "verdict")


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
        parts += [_line(_HEAD), _line(["---"] * len(_HEAD))]
        parts += [_line(_cells(row)) for each in own.values() for row in each.rows]
        parts.append("")
        parts += _reasons([row for each in own.values() for row in each.rows if row.why])
        took = [
            f"{time_text(each.wall_s)} at {scale}" for scale, each in own.items() if each.wall_s
        ]
        if took:
            parts.append(f"* It took {', '.join(took)}.")
        parts.append("")
    return "\n".join(parts)


def _reasons(rows: Sequence[Row]) -> list[str]:
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
        size = _number(gaps[0])
        if _number(gaps[-1]) != size:
            size = f"{size} to {_number(gaps[-1])}"
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


def shown(row: Row) -> str:
    """Write a row's value with its interval.

    >>> from dataclasses import replace
    >>> row = Row("a", "b", "", "", "%", 25.04, 24.0, 26.0, 3, "", "", "small", "met", 0.0, "")
    >>> shown(row), shown(replace(row, low=25.04, high=25.04, unit=""))
    ('25.0 [24.0, 26.0] %', '25.0')
    """
    if row.value is None or row.low is None or row.high is None:
        return _NONE
    unit = f" {row.unit}" if row.unit else ""
    value = _number(row.value)
    if row.low == row.high:
        return f"{value}{unit}"
    return f"{value} [{_number(row.low)}, {_number(row.high)}]{unit}"


def _number(value: float) -> str:
    """Write at most two decimals of what is small, and none of what is large."""
    size = abs(value)
    if 1e-9 < size < 0.01:
        return f"{value:.1e}"
    return f"{value:.2f}" if size < 10 else f"{value:.1f}" if size < 1000 else f"{value:.0f}"


def _cells(row: Row) -> list[str]:
    name = f"{row.figure}: {row.setting}" if row.setting else row.figure
    basis = f"{row.basis} ({row.beside})" if row.beside else row.basis
    n = f"{row.n:,}" if row.n else _NONE
    paper = f"{row.expected} {row.unit}".rstrip()
    verdict = row.verdict if row.verdict == NOT_RUN else f"**{row.verdict}**"
    return [name, paper, shown(row), n, basis or _NONE, row.scale, verdict]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(_plain(cell) for cell in cells)} |"


def _plain(cell: str) -> str:
    """Keep a cell in its line and column."""
    return " ".join(cell.split()).replace("|", "\\|")
