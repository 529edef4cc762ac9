"""An audit as files: ``audit.csv``, ``audit-roc.csv`` and a page, ``audit.md``."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from testbed.files import write_text
from testbed.privacy.audit import Audit
from testbed.privacy.comparison import LEVEL, Verdict
from testbed.privacy.findings import COLUMNS, Line, Row, named

ROC_COLUMNS = ("panel", "label", "fpr", "tpr")
_GRID = np.geomspace(1e-4, 1.0, 241)
_LEAST_P = 1e-4  # below it only the bound is said; the tests know no better
_CLOSEST = 5  # clients whose influence is on the page; all are in the table
Attacked = tuple[str, str, str, str]


def write(folder: Path, found: Audit) -> None:
    """Write an audit's files into a run directory; the same audit, the same bytes.

    Raises
    ------
    ResultsError
        If the folder cannot be written.
    """
    write_text(
        folder / "audit.csv", to_csv(COLUMNS, (astuple(row) for row in found.findings.rows))
    )
    write_text(folder / "audit-roc.csv", to_csv(ROC_COLUMNS, points(found.findings.lines)))
    write_text(folder / "audit.md", to_markdown(found))


def to_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table as text; six significant digits, nothing where a number is missing."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return stream.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.6g}" if isfinite(value) else ""
    return value


def points(lines: Iterable[Line]) -> Iterator[tuple[str, str, float, float]]:
    """Yield the corners of ROC curves, as many as a logarithmic axis can show."""
    for line in lines:
        of = line.curve
        last = np.searchsorted(of.fpr, _GRID, side="right") - 1
        for index in sorted({0, *last.tolist()}):
            yield line.panel, line.label, float(of.fpr[index]), float(of.tpr[index])


def attacked(rows: Iterable[Row]) -> dict[Attacked, dict[str, Row]]:
    """Group the rows of attacks by model, who, target and attack, then by quantity."""
    found: dict[Attacked, dict[str, Row]] = {}
    for row in rows:
        if row.part == "attack":
            key = (row.model, row.who, row.target, row.statistic)
            found.setdefault(key, {})[row.quantity] = row
    return found


def interval(row: Row, digits: int = 3) -> str:
    """Return a value with its interval, or a dash.

    >>> interval(Row("attack", "fresh", "clients", "members", "loss", "auc", 0.5, 0.4, 0.6, 9, 9))
    '0.500 [0.400, 0.600]'
    """
    if not isfinite(row.value):
        return "–"
    text = f"{row.value:.{digits}f}"
    if not isfinite(row.low):
        return text
    return f"{text} [{row.low:.{digits}f}, {row.high:.{digits}f}]"


def chance(p_value: float) -> str:
    """Return a p-value in two digits, or that it is below the least one that is said.

    >>> chance(0.0862), chance(3e-14)
    ('0.086', '< 0.0001')
    """
    return f"< {_LEAST_P:g}" if p_value < _LEAST_P else f"{p_value:.2g}"


def share(value: float) -> str:
    """Return a probability that was counted in two digits; 0 and 1 are not known so well.

    >>> share(0.104), share(0.0), share(1.0)
    ('0.10', '< 0.01', '> 0.99')
    """
    return "< 0.01" if value < 0.005 else "> 0.99" if value > 0.995 else f"{value:.2f}"


def sentence(method: str, verdict: Verdict) -> str:
    """Say in plain words what the test of forgetting found."""
    p_value, control_p = (
        f"p {said}" if said.startswith("<") else f"p = {said}"
        for said in (chance(verdict.p_value), chance(verdict.control_p))
    )
    numbers = f"{p_value}; control, which keeps it: {control_p}"
    if verdict.finding == "indistinguishable":
        return (
            f"{method}: models edited when a client withdraws cannot be told from retrained ones "
            f"({numbers})"
        )
    if verdict.finding == "undecided":
        return (
            f"{method}: undecided, for even models that keep the client cannot be told from "
            f"retrained ones ({numbers}); raise --repeats"
        )
    way = "better" if verdict.auc > 0.5 else "worse"
    return (
        f"{method}: models edited when a client withdraws are NOT retrained ones, they fit its "
        f"data {way} (AUC {share(verdict.auc)}, {numbers})"
    )


def to_markdown(found: Audit) -> str:
    """Render an audit as a page that stands on its own."""
    subject = found.subject
    verdicts = [f"* {sentence(name, each)}." for name, each in found.verdicts.items()]
    remarks = [f"* {each}." for each in found.findings.remarks]
    sections = [
        f"# Audit of {subject.method}, seed {subject.task.streams.seed}",
        "\n".join(verdicts),
        *_inference(found),
        *_forgetting(found),
        *_influence(found),
        *(["## What could not be measured", "\n".join(remarks)] if remarks else []),
        "All numbers are in `audit.csv`, the curves in `audit-roc.csv`; the same run gives the "
        "same files.",
    ]
    return "\n\n".join(sections) + "\n"


def _inference(found: Audit) -> Sequence[str]:
    subject, sizes = found.subject, found.sizes
    columns = ("model", "who", "level", "attack", "AUC", "balanced accuracy")
    rates = ("TPR at 1 % FPR", "TPR at 0.1 % FPR", "n")
    rows = (
        (*key, *map(interval, of.values()), _sizes(of["auc"]))
        for key, of in attacked(found.findings.rows).items()
    )
    return (
        "## Membership inference",
        f"The released model has {len(subject.members)} members of {len(subject.population)} "
        f"clients; {len(subject.withdrawn)} contributors have withdrawn. *Fresh* are "
        f"{sizes.releases} further models of the same law. The attacks learned from "
        f"{sizes.shadows} shadow models. Intervals are of 95 %.",
        _table((*columns, *rates), rows),
        "![ROC curves](figures/audit-roc.png)",
    )


def _forgetting(found: Audit) -> Sequence[str]:
    who = ", ".join(named(client) for client in found.leaving)
    columns = ("method", "client", "models", "statistic", "Pr[higher than retrained]")
    tests = ("KS p", "Mann-Whitney p", "n")
    return (
        "## Forgetting",
        f"Clients that withdraw: {who}. Each edited model is compared with models trained "
        "without the client by the same method; a verdict takes the smallest p-value times the "
        f"number of tests, at level {LEVEL:g}. *Control*: models before the edit, which keep the "
        "contribution.",
        _table((*columns, *tests), _comparisons(found.findings.rows)),
        "Epochs until the client's loss is back to what it was before the edit:",
        _table(("method", "client", "edited", "retrained", "n"), _relearning(found.findings.rows)),
    )


def _influence(found: Audit) -> Sequence[str]:
    columns = ("client", "its training pictures", "its hold-outs", "others' hold-outs", "n")
    return (
        "## Influence",
        "Loss without a client minus loss with it, over the shadow models; the "
        f"{_CLOSEST} clients with the greatest influence on their own pictures.",
        _table(columns, _influences(found.findings.rows)),
    )


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _sizes(row: Row) -> str:
    return f"{row.n} vs {row.m}" if row.m else str(row.n)


def _comparisons(rows: Iterable[Row]) -> Iterator[Sequence[str]]:
    found: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows:
        if row.part == "forgetting" and row.target != "all":
            key = (row.model, row.target, row.who, row.statistic)
            found.setdefault(key, {})[row.quantity] = row
    for of_whom, of in found.items():
        tests = (chance(of[name].value) for name in ("ks_p", "auc_p"))
        values = (share(of["auc"].value), *tests)
        yield (*of_whom, *values, _sizes(of["auc"]))


def _relearning(rows: Iterable[Row]) -> Iterator[Sequence[str]]:
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        if row.part == "relearning":
            found.setdefault((row.model, row.target), {})[row.who] = row
    for key, of in found.items():
        edited, anew = of["edited"], of["retrained"]
        yield (*key, interval(edited, 1), interval(anew, 1), _sizes(edited))


def _influences(rows: Iterable[Row]) -> Iterator[Sequence[str]]:
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row.part == "influence":
            found.setdefault(row.target, {})[row.who] = row
    known: Mapping[str, dict[str, Row]] = {
        client: of for client, of in found.items() if isfinite(of["own"].value)
    }
    for client in sorted(known, key=lambda each: -known[each]["own"].value)[:_CLOSEST]:
        of = known[client]
        yield (
            client,
            *(interval(of[who]) for who in ("own", "held", "others")),
            _sizes(of["own"]),
        )
