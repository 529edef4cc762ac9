"""All figures by name, and drawing those that some runs support."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from testbed.errors import DataError, ResultsError
from testbed.experiments.rundir import Run
from testbed.reporting.comparison import by_method
from testbed.reporting.figures import (
    cumulative_bytes,
    cumulative_time,
    measured,
    population,
    quality,
    save_figure,
)
from testbed.reporting.paper.communication import communication
from testbed.reporting.paper.difference import difference
from testbed.reporting.paper.sweeps import (
    heterogeneity,
    savings_against_density,
    savings_against_rho,
    scalability,
    traffic,
)
from testbed.reporting.paper.tradeoff import tradeoff
from testbed.reporting.paper.trigger import trigger
from testbed.reporting.paper.waiting import waiting
from testbed.reporting.quality import ACCURACY, MAP, Measure
from testbed.reporting.style import COLUMN, PAGE

Draw = Callable[..., Figure]  # of the runs and, perhaps, the width

WIDTHS = {"single": COLUMN, "double": PAGE}
EDIT_SHEET = "edit-sheet"


def _quality(wanted: Measure, runs: Sequence[Run], width: float | None = None) -> Figure:
    by = measured(runs)
    if by != wanted:
        raise ResultsError(f"these runs measure {by.name}, not {wanted.name}")
    return quality(runs, width)


FIGURES: Mapping[str, Draw] = {
    "accuracy": partial(_quality, ACCURACY),
    "map": partial(_quality, MAP),
    "time": cumulative_time,
    "bytes": cumulative_bytes,
    "difference": difference,
    "waiting": waiting,
    "communication": communication,
    "population": population,
    "savings-rho": savings_against_rho,
    "savings-density": savings_against_density,
    "tradeoff": tradeoff,
    "trigger": trigger,
    "clients": scalability,
    "traffic": traffic,
    "heterogeneity": heterogeneity,
}
NAMES = (*FIGURES, EDIT_SHEET)


@dataclass(frozen=True)
class Drawn:
    """A figure's files, or why there are none.

    Attributes
    ----------
    name : str
    files : tuple of Path
    reason : str
        Empty where it was drawn.
    """

    name: str
    files: tuple[Path, ...] = ()
    reason: str = ""


def draw_one(
    runs: Sequence[Run], name: str, out: Path, width: float | None = None
) -> tuple[Path, ...]:
    """Draw the figure `name` of some runs into the folder `out`; return its files.

    Parameters
    ----------
    runs : sequence of Run
    name : str
        One of `NAMES`.
    out : Path
    width : float, optional
        Inches; default: the figure's own.

    Raises
    ------
    ResultsError
        If there is no such figure, the runs do not hold what it needs, or `out` cannot be
        written.
    DataError
        If pictures that a contact sheet shows are not there any more.
    """
    if name == EDIT_SHEET:
        return (_edit_sheet(runs, out),)
    if name not in FIGURES:
        raise ResultsError(f"there is no figure {name!r}; known: {', '.join(NAMES)}")
    return save_figure(out, name, _drawn(name, runs, width))


def draw_all(runs: Sequence[Run], out: Path, width: float | None = None) -> Iterator[Drawn]:
    """Draw every figure that the runs support; yield each, or why it was skipped.

    Raises
    ------
    ResultsError
        If `out` cannot be written.
    """
    for name in FIGURES:
        try:
            figure = _drawn(name, runs, width)
        except ResultsError as error:
            yield Drawn(name, reason=str(error))
        else:
            yield Drawn(name, save_figure(out, name, figure))
    try:
        yield Drawn(EDIT_SHEET, (_edit_sheet(runs, out),))
    except (ResultsError, DataError) as error:
        yield Drawn(EDIT_SHEET, reason=str(error))


def _drawn(name: str, runs: Sequence[Run], width: float | None) -> Figure:
    return FIGURES[name](runs) if width is None else FIGURES[name](runs, width)


def _edit_sheet(runs: Sequence[Run], out: Path) -> Path:
    """Draw what the first method's detector found before and after its last edit."""
    detecting = [run for run in runs if run.metrics[MAP.column].notna().any()]
    if not detecting:
        raise ResultsError(
            f"{EDIT_SHEET} shows a detector's boxes, and these runs trained none; "
            "run an experiment with data.name=bdd100k"
        )
    from testbed.reporting.edit_sheet import draw_edit_sheet

    own = next(iter(by_method(detecting).values()))
    return draw_edit_sheet(min(own, key=lambda run: run.seed).folder, out)
