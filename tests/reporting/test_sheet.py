"""The contact sheet: every pixel a whole number of dots, a row per class, empty where few."""

from io import BytesIO

import matplotlib.image
import numpy as np
import pytest

from testbed.data import Dataset
from testbed.reporting.sheet import contact_sheet
from testbed.reporting.style import render

MARGIN = 24


def data(sizes: list[int], side: int = 8, channels: int = 1, names: list[str] | None = None):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    # Every picture of class k is grey k / 10 but for its first pixel, which is black.
    x = np.broadcast_to(labels[:, None, None, None] / 10, (len(labels), channels, side, side))
    x = x.astype(np.float32)
    x[:, :, 0, 0] = 0
    classes = tuple(names or map(str, range(len(sizes))))
    return Dataset("some", x, labels, x[:1], labels[:1], classes, "0" * 16)


def drawn(figure) -> np.ndarray:
    return matplotlib.image.imread(BytesIO(render(figure, "png")))[..., :3]


def cell(picture: np.ndarray, row: int, column: int, shape: tuple[int, int], side: int, zoom: int):
    """Return the dots of a picture in a sheet of `shape` rows and columns."""
    rows, _ = shape
    step = (side + 1) * zoom
    top = picture.shape[0] - MARGIN - rows * step + zoom + row * step
    # The sheet's left edge: the first column that has a black dot in the first row of dots.
    dark = (picture[top : top + zoom] < 0.01).all(axis=(0, 2))
    left = int(np.flatnonzero(dark)[0]) + column * step
    return picture[top : top + side * zoom, left : left + side * zoom]


def test_pictures_stand_in_the_row_of_their_class_enlarged_whole():
    picture = drawn(contact_sheet(data([3, 3, 3, 3, 3, 3]), columns=3))
    for row in range(1, 6):
        for column in range(3):
            dots = cell(picture, row, column, (6, 3), 8, 12)
            assert dots.shape == (96, 96, 3)
            assert (dots[:12, :12] == 0).all()
            rest = dots.copy()
            rest[:12, :12] = row / 10
            assert rest == pytest.approx(np.full((96, 96, 3), row / 10), abs=1 / 255)


def test_a_class_of_few_leaves_its_row_empty():
    picture = drawn(contact_sheet(data([1, 1, 3]), columns=3))
    assert (cell(picture, 1, 1, (3, 3), 8, 12) == 1).all()
    assert cell(picture, 2, 2, (3, 3), 8, 12).max() == pytest.approx(0.2, abs=1 / 255)


def test_large_pictures_are_thinned_and_many_classes_fit():
    # 400 pixels are more than 96 dots: every fifth is drawn.
    assert drawn(contact_sheet(data([2, 2], side=400), columns=2)).shape[0] < 300
    high = drawn(contact_sheet(data([1] * 1000, side=28), columns=1)).shape[0]
    assert 1000 * 29 <= high < 65_536


def test_the_same_sheet_every_time_and_names_are_no_formulas():
    sheets = {
        render(contact_sheet(data([9, 9], names=["$x", "a" * 99]), columns=4), "png")
        for _ in range(2)
    }
    assert len(sheets) == 1
    texts = contact_sheet(data([9, 9], names=["$x", "a" * 99]), columns=4).texts
    assert [text.get_text() for text in texts] == [
        "$x (9)",
        "a" * 23 + "… (9)",
        "some, 18 + 1 pictures, 0000000000000000",
    ]


def test_colour_stays():
    given = data([2, 2], channels=3)
    given.x_train[:, 1:] = 0
    given.x_train[:, 0] = 0.6  # the black first pixel, too
    picture = drawn(contact_sheet(given, columns=2))
    red = (np.rint(picture * 255) == [153, 0, 0]).all(axis=-1)
    # Four pictures of 8 x 8 pixels of 12 x 12 dots.
    assert red.sum() == 4 * 96 * 96
