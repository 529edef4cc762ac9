"""Small multiples: one panel per setting of a sweep, all on the same axes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from testbed.experiments.rundir import Run
from testbed.reporting.comparison import by_method
from testbed.reporting.settings import Setting, grouped, too_many, varying
from testbed.reporting.style import COLUMN, PAGE, new_figure
from testbed.reporting.units import range_text
from testbed.reporting.wording import LINE, names

ROWS = 6  # the most
TALLEST = 9.0  # inches, which leave room for a caption on a page
_BESIDE = 0.28  # inches of a row or column of panels that are not the panel
_APART = 0.7  # inches of a figure for legend and axes
_HEIGHT, _SMALL = 1.75, 1.25  # inches of a panel, and of one of many
_ALONE = 2.4  # inches of a figure with one panel


@dataclass(frozen=True)
class Panel:
    """One setting and where it is drawn."""

    title: str
    runs: tuple[Run, ...]
    axes: Axes


def tall(row: float, rows: int, apart: float = _APART) -> float:
    """Return the height of a figure of so many rows, a little less than `row` each if need be.

    `apart` is what legend and axes take beside them.
    """
    return min(row * rows + apart, TALLEST)


def row_names(
    runs: Sequence[Run], keys: Sequence[str], what: str, height: float, rows: int
) -> Mapping[Setting, str]:
    """Name the rows of a figure of such a `height`, for `name_row`.

    Raises
    ------
    ResultsError
        If a name is too long for its row.
    """
    return names(runs, keys, what, (height - _APART) / rows - _BESIDE)


def columns(width: float, narrow: int = 2, wide: int = 5) -> int:
    """Return how many panels fit side by side."""
    return narrow if width <= COLUMN else wide


def panels(runs: Sequence[Run], width: float | None, what: str) -> tuple[Figure, Sequence[Panel]]:
    """Lay out a panel for each setting of `runs`; two keys make rows and columns.

    Parameters
    ----------
    runs : sequence of Run
    width : float or None
        Inches; default: a column for one setting, a page for several.
    what : str
        Is drawn, for the message that there is no room.

    Raises
    ------
    ResultsError
        If there are too many settings.
    """
    keys = varying(runs)
    groups = grouped(runs, keys)
    width = width or (COLUMN if len(groups) == 1 else PAGE)
    shape = _shape(groups, columns(width))
    if shape[0] > ROWS:
        raise too_many(runs, keys, what, wider=_shape(groups, columns(PAGE))[0] <= ROWS)
    titles = names(runs, keys, what, width / shape[1] - _BESIDE)
    lines = max(title.count("\n") for title in titles.values()) + 1
    usual = (_HEIGHT if shape[0] < 3 else _SMALL) + LINE * max(0, lines - 2)
    figure = new_figure(width, _ALONE if len(groups) == 1 else tall(usual, shape[0]))
    grid = figure.subplots(*shape, sharex=True, sharey=True, squeeze=False)
    laid = [
        Panel(titles[values], group, axes)
        for (values, group), axes in zip(groups.items(), grid.flat, strict=False)
    ]
    if len(laid) > 1:
        for panel in laid:
            panel.axes.set_title(panel.title)
    clear(grid, len(laid))
    return figure, laid


def _shape(groups: Iterable[tuple[object, ...]], most: int) -> tuple[int, int]:
    """Return rows and columns; a full grid of two keys keeps its shape where it fits."""
    settings = list(groups)
    count = len(settings)
    if settings and len(settings[0]) == 2:
        outer, inner = (len({values[key] for values in settings}) for key in (0, 1))
        if outer * inner == count and inner <= most:
            return outer, inner
    side = min(count, most)
    return ceil(count / side), side


def clear(grid: NDArray[np.object_], used: int) -> None:
    """Remove the panels beyond the last one; those above them get their numbers back."""
    for axes in grid.flat[used:]:
        axes.remove()
    if used > grid.shape[1]:
        for axes in grid[-2, grid.shape[1] - (grid.size - used) :]:
            axes.tick_params(labelbottom=True)


def name_row(axes: Axes, name: str) -> None:
    """Write the name of a row of panels beside the last one."""
    axes.annotate(
        name,
        (1.03, 0.5),
        xycoords="axes fraction",
        rotation=270,
        multialignment="center",
        va="center",
        ha="left",
    )


def name_axes(figure: Figure, laid: Sequence[Panel], x: str, y: str) -> None:
    """Name the axes once: at the panel itself where it is alone."""
    if len(laid) == 1:
        laid[0].axes.set_xlabel(x)
        laid[0].axes.set_ylabel(y)
    else:
        figure.supxlabel(x, fontsize="medium")
        figure.supylabel(y, fontsize="medium")


def seeds(runs: Sequence[Run], error: str = "band") -> str:
    """Say how many seeds a mean is over, and what surrounds it."""
    counts = {
        len(group)
        for several in grouped(runs, varying(runs)).values()
        for group in by_method(several).values()
    }
    if counts == {1}:
        return "n = 1 seed"
    return f"mean of n = {range_text(counts)} seeds, {error}: 95 % interval"
