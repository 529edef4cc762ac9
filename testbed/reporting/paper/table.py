"""Tables for papers: mean ± half of the 95 % interval, the best of each setting in bold."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from testbed.experiments.rundir import Run
from testbed.ledger import TARIFFS
from testbed.reporting.comparison import by_method, column, costs
from testbed.reporting.intervals import Interval, mean, ratio
from testbed.reporting.paper.quantities import QUANTITIES, TIME, pairs, saved
from testbed.reporting.quality import measure
from testbed.reporting.settings import grouped, text, varying
from testbed.reporting.table import REFERENCE

Best = Literal["most", "least"] | None


@dataclass(frozen=True)
class Column:
    """One column of numbers.

    Attributes
    ----------
    key : str
        Name in the CSV file.
    head : str
        As printed, the unit last.
    size : float
        How many of the CSV file's units make one printed unit.
    best : {"most", "least"} or None
        Which value is printed in bold.
    """

    key: str
    head: str
    size: float = 1.0
    best: Best = None


@dataclass(frozen=True)
class Line:
    """One method in one setting.

    Attributes
    ----------
    setting : mapping of str to value
        What varies over the table, by key.
    name : str
        Of the setting, as printed.
    method : str
    n : int
        Seeds.
    values : mapping of str to (Interval or None)
        By the key of the column.
    """

    setting: Mapping[str, object]
    name: str
    method: str
    n: int
    values: Mapping[str, Interval | None]


@dataclass(frozen=True)
class Table:
    """Lines, setting by setting, and their columns."""

    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    note: str

    def settings(self) -> Mapping[str, tuple[Line, ...]]:
        """Group the lines by the name of their setting."""
        groups: dict[str, list[Line]] = {}
        for line in self.lines:
            groups.setdefault(line.name, []).append(line)
        return {name: tuple(lines) for name, lines in groups.items()}


def tabulate(runs: Sequence[Run]) -> Table:
    """Compare the methods of each setting."""
    keys = varying(runs)
    by = measure(runs)
    name = by.column if by else ""
    lines = [
        Line(
            dict(zip(keys, values, strict=True)),
            text(keys, values, group[0]),
            method,
            len(own),
            _values(own, methods.get(REFERENCE, ()), name),
        )
        for values, group in grouped(runs, keys).items()
        for methods in [by_method(group)]
        for method, own in methods.items()
    ]
    shown: list[Column] = []
    if by:
        shown += [
            Column("quality", f"{by.name} (%)", best="most"),
            Column("difference", "to Retrain (points)"),
        ]
    shown.append(Column("edits_percent", "edits (%)"))
    for quantity in QUANTITIES:
        unit = quantity.unit(_largest(line.values[quantity.key] for line in lines))
        shown += [
            Column(quantity.key, f"{quantity.name} ({unit.name})", unit.size, "least"),
            Column(f"{quantity.key}_saved_percent", "saved (%)", best="most"),
        ]
    shown = [one for one in shown if any(line.values[one.key] for line in lines)]
    return Table(tuple(shown), tuple(lines), _note(lines, {one.key for one in shown}))


def _values(own: Sequence[Run], reference: Sequence[Run], name: str) -> dict[str, Interval | None]:
    """Estimate all columns; `name` is the metric of quality, empty where there is none."""
    both = pairs(own, reference)
    found: dict[str, Interval | None] = {}
    if name:
        found["quality"] = mean([100 * column(run, name)[-1] for run in own])
        gaps = [
            np.mean(100 * (column(run, name)[:shortest] - column(other, name)[:shortest]))
            for run, other in both
            for shortest in [min(len(run.metrics), len(other.metrics))]
        ]
        found["difference"] = mean(gaps) if gaps and own[0].method != REFERENCE else None
    handled = [[cost.triggered for cost in costs(run) if cost.request > 0] for run in own]
    found["edits_percent"] = (
        ratio([100 * sum(edits) for edits in handled], [len(edits) for edits in handled])
        if all(handled)
        else None
    )
    for quantity in QUANTITIES:
        found[quantity.key] = mean([quantity.total(run) for run in own])
        found[f"{quantity.key}_saved_percent"] = (
            saved([(quantity.total(run), quantity.total(other)) for run, other in both])
            if own[0].method != REFERENCE
            else None
        )
    return found


def _largest(values: Iterable[Interval | None]) -> float:
    return max((float(one.mean) for one in values if one is not None), default=0.0)


def _note(lines: Sequence[Line], shown: Collection[str]) -> str:
    counts = sorted({line.n for line in lines})
    n = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
    compared = {
        "difference": "To Retrain: mean paired difference after each request, on the same seeds.",
        f"{TIME.key}_saved_percent": "Saved: against Retrain on the same seeds.",
    }
    return " ".join(
        (
            f"Means over n = {n} seeds ± half of the 95 % bootstrap interval."
            if counts[-1] > 1
            else "n = 1 seed.",
            "Edits: handled requests that changed the model. Time is simulated; bytes are "
            f"serialised, by the tariffs {', '.join(TARIFFS)}. Both are sums over the requests, "
            "without the initial training.",
            *(sentence for key, sentence in compared.items() if key in shown),
        )
    )
