"""The figure of ``testbed data partition``: which client holds how much of which class."""

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from testbed.data import IntArray
from testbed.reporting.style import PAGE, new_figure, styled

_ROW = 0.16  # inches of a class
_TALLEST = 7.0
_LABELLED = 30  # classes, beyond which only some are named
_FAINTEST = 0.15  # one sample must differ from none


def partition_figure(table: IntArray, classes: Sequence[str]) -> Figure:
    """Draw a map of clients x classes, and above it each client's samples in all.

    The darker a cell the more samples, on a logarithmic scale; an empty cell is white.

    Parameters
    ----------
    table : int64 array, shape (clients, classes)
        See `testbed.data.counts`.
    classes : sequence of str
    """
    clients, count = table.shape
    height = min(1.5 + _ROW * count, _TALLEST)
    with styled():
        figure = new_figure(PAGE, height)
        sizes, cells = figure.subplots(
            2, 1, sharex=True, height_ratios=[0.7, max(height - 1.3, 0.7)]
        )
        sizes.bar(range(clients), table.sum(axis=1), width=1.0, color="0.55", linewidth=0)
        sizes.set_ylabel("samples")
        sizes.set_xlim(-0.5, clients - 0.5)
        sizes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
        image = cells.imshow(
            np.ma.masked_equal(table.T, 0),
            aspect="auto",
            interpolation="nearest",
            cmap=ListedColormap(matplotlib.colormaps["Blues"](np.linspace(_FAINTEST, 1, 256))),
            norm=LogNorm(1, max(int(table.max()), 2)),
        )
        cells.grid(False)
        cells.set_xlabel(f"client (of {clients})")
        cells.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        step = -(-count // _LABELLED)
        cells.set_yticks(range(0, count, step), list(classes)[::step])
        bar = figure.colorbar(image, ax=cells, pad=0.01, aspect=30)
        bar.ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        bar.ax.yaxis.set_minor_locator(LogLocator(subs=()))
        bar.set_label("samples of a class")
    return figure
