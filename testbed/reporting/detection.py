"""How good the detectors of a comparison are: their mAP by every convention."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import pandas as pd

from bdd100k_tools.classes import CLASSES
from bdd100k_tools.evaluation import CONVENTIONS, STATEMENTS
from testbed.experiments.detection import read_detection
from testbed.experiments.rundir import Run
from testbed.reporting.comparison import by_method
from testbed.reporting.names import label

NOTE = (
    "mAP50-95 / mAP50 in percent, of the detector released last. A value without its convention "
    "cannot be compared with anything. "
    + " ".join(f"{name} – {statement}." for name, statement in STATEMENTS.items())
)
CLASSES_NOTE = (
    "The more boxes, the surer a value; of a dash nothing can be said, as there is no box. The "
    "first line is the mean over the classes that have boxes. Attributes are evaluated by coco."
)


@dataclass(frozen=True)
class Table:
    """A table as printed: text throughout, the first column names the line.

    Attributes
    ----------
    title : str
    header : tuple of str
    lines : tuple of tuple of str
    note : str
        How to read it.
    """

    title: str
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    note: str


def tables(runs: Iterable[Run]) -> tuple[Table, ...]:
    """Return one table of all methods, and of each method one by class and attribute.

    Values are means over the seeds.  There is no table where nobody detects.

    Raises
    ------
    ResultsError
        If a run's ``detection.parquet`` is missing or damaged.
    """
    final: dict[str, list[pd.DataFrame]] = {}
    for method, group in by_method(runs).items():
        frames = [frame for run in group if (frame := read_detection(run)) is not None]
        if frames:
            final[method] = [frame[frame["request"] == frame["request"].max()] for frame in frames]
    if not final:
        return ()
    return (_methods(final), *(_parts(method, frames) for method, frames in final.items()))


def _methods(final: dict[str, list[pd.DataFrame]]) -> Table:
    lines = tuple(
        (
            label(method),
            *_size(frames, "all", "all"),
            *(_text(frames, convention, "all", "all", spread=True) for convention in CONVENTIONS),
        )
        for method, frames in final.items()
    )
    return Table("Mean average precision", _header("method"), lines, NOTE)


def _parts(method: str, frames: Sequence[pd.DataFrame]) -> Table:
    """Return a method's table: all classes, each of them, each value of an attribute."""
    groups = sorted({group for frame in frames for group in frame["group"]} - {"all"})
    keys = [("all", "all"), *(("all", name) for name in CLASSES)]
    keys += [(group, "all") for group in groups]
    lines = tuple(
        (
            _name(group, category),
            *_size(frames, group, category),
            *(_text(frames, convention, group, category) for convention in CONVENTIONS),
        )
        for group, category in keys
    )
    title = f"{label(method)}: classes and attributes"
    return Table(title, _header("class or attribute"), lines, CLASSES_NOTE)


def _header(first: str) -> tuple[str, ...]:
    return (first, "pictures", "boxes", *CONVENTIONS)


def _name(group: str, category: str) -> str:
    if group == "all":
        return "all classes" if category == "all" else category
    return group.replace("=", ": ")


def _rows(frames: Sequence[pd.DataFrame], group: str, category: str) -> pd.DataFrame:
    everything = pd.concat(frames)
    return everything[(everything["group"] == group) & (everything["category"] == category)]


def _size(frames: Sequence[pd.DataFrame], group: str, category: str) -> tuple[str, str]:
    """Write how many pictures and boxes a value stands on, the same for all seeds."""
    rows = _rows(frames, group, category)
    return f"{rows['pictures'].iloc[0]:,}", f"{rows['n'].iloc[0]:,}"


def _text(
    frames: Sequence[pd.DataFrame],
    convention: str,
    group: str,
    category: str,
    spread: bool = False,
) -> str:
    """Write mAP50-95 and mAP50, with the sample standard deviation over the seeds."""
    rows = _rows(frames, group, category)
    rows = rows[rows["convention"] == convention].dropna()
    if rows.empty:
        return "–"
    return " / ".join(_mean(100 * rows[name], spread) for name in ("map50_95", "map50"))


def _mean(values: "pd.Series[float]", spread: bool) -> str:
    deviation = f" ± {stdev(values):.1f}" if spread and len(values) > 1 else ""
    return f"{fmean(values):.1f}{deviation}"


def to_markdown(several: Iterable[Table]) -> str:
    """Return tables in Markdown, each followed by how to read it."""
    return "\n".join(f"### {table.title}\n\n{_grid(table)}\n\n{table.note}\n" for table in several)


def _grid(table: Table) -> str:
    lines = [table.header, ("---", *("---:" for _ in table.header[1:])), *table.lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
