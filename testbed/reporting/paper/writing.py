"""Tables as Markdown, LaTeX and CSV."""

import csv
from collections.abc import Callable, Iterable, Sequence
from io import StringIO
from math import floor, log10

from testbed.reporting.intervals import Interval
from testbed.reporting.names import label
from testbed.reporting.paper.table import Line, Table

_NONE = "–"
_DIGITS = 4  # of a mean, the most; without an interval one less
_LATEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "ρ": r"$\rho$",
        "α": r"$\alpha$",
        "×": r"$\times$",
        "±": r"$\pm$",
        "–": "--",
        "−": "$-$",
    }
)


def number(value: Interval | None, size: float = 1.0) -> str:
    """Write a mean ± half of its interval, with as many digits as that says something of.

    >>> from testbed.reporting.intervals import mean
    >>> number(mean([61.23, 68.91])), number(mean([14.1234])), number(None)
    ('65 ± 4', '14.1', '–')
    """
    if value is None:
        return _NONE
    middle, half = float(value.mean) / size, float(value.half) / size
    most = _DIGITS - 1 - floor(log10(abs(middle))) if middle else 0
    if half:
        # Two digits of the half-width where it begins with a 1, else one.
        place = floor(log10(half))
        decimals = (1 if half < 2 * 10.0**place else 0) - place
        if middle:
            decimals = min(most, decimals)
        if round(half, decimals):
            return f"{_fixed(middle, decimals)} ± {_fixed(half, decimals)}"
    return _fixed(middle, most - 1)


def _fixed(value: float, decimals: int) -> str:
    """Round to a number of decimals, of which a negative one is none to print."""
    # Adding zero turns a negative zero into a plain one.
    return f"{round(value, decimals) + 0.0:.{max(0, decimals)}f}"


def _cells(table: Table, lines: Sequence[Line], bold: Callable[[str], str]) -> list[list[str]]:
    """Write the lines of one setting; the best value of a column, and its equals, in bold."""
    written = [[number(line.values[one.key], one.size) for one in table.columns] for line in lines]
    for place, one in enumerate(table.columns):
        means = [
            (float(value.mean), row)
            for row, line in enumerate(lines)
            if (value := line.values[one.key]) is not None
        ]
        if one.best is None or len(means) < 2:
            continue
        best = written[(max if one.best == "most" else min)(means)[1]][place]
        for row in written:
            if row[place] == best:
                row[place] = bold(best)
    return written


def to_markdown(table: Table) -> str:
    """Return the table in Markdown, followed by how to read it."""
    parts = []
    for name, lines in table.settings().items():
        heads = (name or "method", *(one.head for one in table.columns))
        cells = _cells(table, lines, lambda text: f"**{text}**")
        rows = [heads, ("---", *("---:" for _ in table.columns))]
        rows += [(label(line.method), *row) for line, row in zip(lines, cells, strict=True)]
        parts.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
    return "\n\n".join([*parts, table.note]) + "\n"


def to_latex(table: Table) -> str:
    """Return the table in LaTeX, for the package booktabs."""
    count = len(table.columns)
    lines = [
        "% \\usepackage{booktabs}",
        r"\begin{table*}",
        r"\centering\scriptsize\setlength{\tabcolsep}{2.5pt}",
        f"\\caption{{{_escaped(table.note)}}}",
        f"\\begin{{tabular}}{{l{'r' * count}}}",
        r"\toprule",
        _row(["method", *map(_stacked, (one.head for one in table.columns))]),
    ]
    for name, group in table.settings().items():
        lines.append(r"\midrule")
        if name:
            lines.append(f"\\multicolumn{{{count + 1}}}{{l}}{{\\emph{{{_escaped(name)}}}}} \\\\")
        for line, cells in zip(group, _cells(table, group, lambda text: f"*{text}"), strict=True):
            lines.append(_row([_escaped(label(line.method)), *map(_math, cells)]))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table*}"]) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


def _math(cell: str) -> str:
    """Set a cell as a formula; an asterisk in front asks for bold."""
    if cell == _NONE:
        return "--"
    text = cell.lstrip("*").replace("±", r"\pm")
    return f"$\\mathbf{{{text}}}$" if cell.startswith("*") else f"${text}$"


def _stacked(head: str) -> str:
    """Set a column's head with a line for each word."""
    words = _escaped(head).replace(" ", r"\\")
    return rf"\begin{{tabular}}[b]{{@{{}}r@{{}}}}{words}\end{{tabular}}"


def _escaped(words: str) -> str:
    return words.translate(_LATEX)


def to_csv(table: Table) -> str:
    """Return the table as CSV with full precision; a missing value is empty.

    Seconds and bytes have no other unit; ``x_half`` is half of the interval's width of ``x``.
    """
    stream = StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    keys = list(table.lines[0].setting)
    names = [name for one in table.columns for name in (one.key, f"{one.key}_half")]
    writer.writerow([*keys, "method", "n", *names])
    for line in table.lines:
        found = [line.values[one.key] for one in table.columns]
        numbers = [
            part
            for value in found
            for part in ((None, None) if value is None else (float(value.mean), float(value.half)))
        ]
        writer.writerow([*line.setting.values(), line.method, line.n, *numbers])
    return stream.getvalue()
