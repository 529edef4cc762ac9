"""The ROC curves of an audit on logarithmic axes, from the file it left in a run directory."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.errors import ResultsError
from testbed.reporting.figures import save_figure
from testbed.reporting.names import label
from testbed.reporting.style import PAGE, Look, looks, new_figure, styled

_HEIGHT = 3.1
_CONTROL = Look("#000000", (0, (1, 2.5)), "")
# Colours by attack, dashes by level.
_COLORS = {
    "loss": "#0072B2",
    "shadow": "#CC79A7",
    "lira-offline": "#009E73",
    "lira-online": "#D55E00",
}
_DASHES = {"clients": "-", "pictures": (0, (4, 1.5))}
_NAMES = {
    "loss": "loss",
    "shadow": "shadow models",
    "lira-offline": "LiRA, offline",
    "lira-online": "LiRA, online",
}
# Title of a panel, and the false-positive rate at its left edge.
_PANELS = {
    "attacks": ("members against non-members", 1e-3),
    "edited": ("edited against retrained models", 1e-2),
}


def roc_figure(points: pd.DataFrame) -> Figure:
    """Draw what the attacks achieve, and what tells edited models from retrained ones.

    Parameters
    ----------
    points : DataFrame
        Columns ``panel``, ``label``, ``fpr`` and ``tpr``.
    """
    with styled():
        figure = new_figure(PAGE, _HEIGHT)
        panels = figure.subplots(1, len(_PANELS))
        for axes, (panel, (title, least)) in zip(panels, _PANELS.items(), strict=True):
            for text, look, line in _LINES[panel](points):
                axes.plot(
                    line["fpr"],
                    line["tpr"],
                    drawstyle="steps-post",
                    color=look.color,
                    linestyle=look.dashes,
                    label=text,
                )
            if axes.lines:
                axes.legend(loc="lower right", fontsize="small")
            _scale(axes, least)
            axes.set_title(title)
        panels[0].set_ylabel("true-positive rate")
    return figure


Lines = Iterator[tuple[str, Look, pd.DataFrame]]


def _by_label(points: pd.DataFrame, panel: str) -> dict[str, pd.DataFrame]:
    shown = points[points["panel"] == panel]
    return {str(name): line for name, line in shown.groupby("label", sort=False)}


def _attacks(points: pd.DataFrame) -> Lines:
    for name, line in _by_label(points, "attacks").items():
        attack, _, level = name.partition(", ")
        look = Look(_COLORS.get(attack, "0.5"), _DASHES.get(level, "-"), "")
        yield f"{_NAMES.get(attack, attack)}, {level}", look, line


def _edited(points: pd.DataFrame) -> Lines:
    """Yield the methods, and the control of the first, the run's own."""
    lines = _by_label(points, "edited")
    for name, look in looks(lines).items():
        yield label(name), look, lines[name]
    for name in list(lines)[:1]:
        yield "control: contribution kept", _CONTROL, _by_label(points, "control")[name]


_LINES = {"attacks": _attacks, "edited": _edited}


def _scale(axes: Axes, least: float) -> None:
    axes.plot([least, 1], [least, 1], color="0.6", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(least, 1)
    axes.set_ylim(least, 1)
    axes.set_xlabel("false-positive rate")


def draw_roc(folder: Path) -> tuple[Path, ...]:
    """Draw ``audit-roc.csv`` of a run directory as ``figures/audit-roc.pdf`` and ``.png``.

    Raises
    ------
    ResultsError
        If there is no such file, or none that can be read.
    """
    path = folder / "audit-roc.csv"
    try:
        points = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path}: {error}; make it with `testbed audit {folder}`") from error
    return save_figure(folder, "figures/audit-roc", roc_figure(points))
