"""The map of a partition shows the numbers it is given, however many there are."""

import numpy as np
import pytest
from extents import boxes
from test_figures import PNG

from testbed.reporting.partition import partition_figure
from testbed.reporting.style import PAGE, render

TABLE = np.array([[5, 0, 100], [1, 2, 0], [0, 0, 7], [40, 40, 40]])


def test_cells_and_bars_are_the_numbers():
    figure = partition_figure(TABLE, ["cat", "dog", "cow"])
    sizes, cells, bar = figure.axes
    assert [patch.get_height() for patch in sizes.patches] == [105, 3, 7, 120]
    (image,) = cells.images
    shown = image.get_array()
    assert shown.mask.tolist() == (TABLE.T == 0).tolist()
    assert shown.filled(0).tolist() == TABLE.T.tolist()
    assert [label.get_text() for label in cells.get_yticklabels()] == ["cat", "dog", "cow"]
    assert cells.get_xlabel() == "client (of 4)"
    assert bar.get_ylim() == pytest.approx((1, 100))


def test_darker_means_more_and_white_means_none():
    (image,) = partition_figure(TABLE, ["cat", "dog", "cow"]).axes[1].images
    brightness = image.cmap(image.norm(np.array([1, 3, 10, 30, 100])))[:, :3].sum(axis=1)
    assert (np.diff(brightness) < 0).all()
    assert brightness[0] < 2.8  # white is 3


@pytest.mark.parametrize(("clients", "classes"), [(1, 1), (20, 62), (500, 10)])
def test_every_size_fits_on_a_page(clients, classes):
    table = np.random.default_rng(0).integers(0, 50, (clients, classes)) + 1
    figure = partition_figure(table, [f"class {number}" for number in range(classes)])
    width, height = figure.get_size_inches()
    assert (width, height <= 7) == (PAGE, True)
    canvas = figure.bbox
    for box in boxes(figure):
        assert canvas.x0 - 1 <= box.x0
        assert box.x1 <= canvas.x1 + 1
    assert render(figure, "png").startswith(PNG)


def test_the_same_table_gives_the_same_bytes():
    first, second = (
        render(partition_figure(TABLE, ["cat", "dog", "cow"]), "png") for _ in range(2)
    )
    assert first == second
