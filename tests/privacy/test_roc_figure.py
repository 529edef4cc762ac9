"""The figure shows the curves of the file, on logarithmic axes."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from testbed.errors import ResultsError
from testbed.reporting.roc import draw_roc, roc_figure

FPR = np.geomspace(1e-3, 1, 30)


def table(**labels):
    return pd.DataFrame(
        [
            {"panel": panel, "label": name, "fpr": fpr, "tpr": fpr**power}
            for panel, names in labels.items()
            for name, power in names.items()
            for fpr in FPR
        ]
    )


POINTS = table(
    attacks={"lira-online, clients": 0.3, "loss, pictures": 0.9},
    edited={"fsosa": 1.0, "finetune": 0.2},
    control={"fsosa": 0.1, "finetune": 0.2},
)


def lines(axes):
    return {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}


def test_every_curve_is_drawn_where_it_belongs():
    left, right = roc_figure(POINTS).axes
    assert list(lines(left)) == ["LiRA, online, clients", "loss, pictures"]
    assert list(lines(right)) == ["F-SOSA-U/I", "Fine-tune", "control: contribution kept"]
    drawn = lines(left)["LiRA, online, clients"]
    assert drawn.get_xdata() == pytest.approx(FPR)
    assert drawn.get_ydata() == pytest.approx(FPR**0.3)
    control = lines(right)["control: contribution kept"]
    assert control.get_ydata() == pytest.approx(FPR**0.1)  # that of the run's own method


def test_axes_are_logarithmic_and_have_their_diagonal():
    for axes, least in zip(roc_figure(POINTS).axes, (1e-3, 1e-2), strict=True):
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
        assert axes.get_xlim() == axes.get_ylim() == (least, 1)
        (diagonal,) = [line for line in axes.lines if line.get_label().startswith("_")]
        assert list(diagonal.get_xdata()) == list(diagonal.get_ydata()) == [least, 1]


def test_curves_differ_without_colour():
    for axes in roc_figure(POINTS).axes:
        drawn = lines(axes).values()
        looks = {(to_hex(line.get_color()), str(line.get_linestyle())) for line in drawn}
        assert len(looks) == len(drawn)
        assert len({str(line._dash_pattern) for line in drawn}) == len(drawn)


def test_an_empty_panel_is_drawn():
    only = POINTS[POINTS["panel"] != "attacks"]
    left, right = roc_figure(only).axes
    assert not lines(left)
    assert len(lines(right)) == 3


def test_files_are_the_same_bytes_again(tmp_path):
    POINTS.to_csv(tmp_path / "audit-roc.csv", index=False)
    paths = draw_roc(tmp_path)
    assert [path.name for path in paths] == ["audit-roc.pdf", "audit-roc.png"]
    first = [path.read_bytes() for path in paths]
    assert [path.read_bytes() for path in draw_roc(tmp_path)] == first
    (tmp_path / "audit-roc.csv").unlink()
    with pytest.raises(ResultsError, match="testbed audit"):
        draw_roc(tmp_path)
