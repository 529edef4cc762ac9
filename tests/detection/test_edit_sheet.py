"""The sheet of an edit is drawn from the run folder and the pictures alone."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from detector_runs import Step, write_detector_run
from drawn import make
from PIL import Image

from bdd100k_tools import CLASSES, read
from bdd100k_tools.contact import COLOURS
from testbed.errors import DataError, ResultsError
from testbed.experiments.detection import AFTER, BEFORE, write_predictions
from testbed.reporting.edit_sheet import draw_edit_sheet

SHOWN = ("test_001.jpg", "test_003.jpg")


def seen(name, *labels):
    return {
        "name": name,
        "labels": [
            {
                "category": category,
                "score": score,
                "box2d": dict(zip(("x1", "y1", "x2", "y2"), corners, strict=True)),
            }
            for category, corners, score in labels
        ],
    }


@pytest.fixture
def pictures(tmp_path):
    """Folder and labels of the test pictures."""
    _, _, images, labels = make(tmp_path / "drawn", train=1, test=4, size=(320, 180))
    return images, labels


@pytest.fixture
def folder(tmp_path, pictures):
    folder = write_detector_run(tmp_path / "results", places=pictures)
    before = [seen(SHOWN[0], ("rider", (128, 96, 1216, 640), 0.8)), seen(SHOWN[1])]
    after = [
        seen(SHOWN[0], ("car", (128, 96, 1216, 640), 0.12)),
        seen(SHOWN[1], ("car", (0, 0, 640, 360), 0.5), ("bus", (640, 0, 1280, 360), 0.5)),
    ]
    write_predictions(folder, before, after)
    return folder


def opened(path, size=None):
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB").resize(size or picture.size))


def cells(path):
    """The sheet's pictures, as rows of columns, each 480 x 270 with a margin of 6."""
    sheet = opened(path)
    tops = [3 * 16 + 6 + row * (270 + 16 + 6) for row in range(2)]
    lefts = [6 + column * (480 + 6) for column in range(3)]
    return [[sheet[top : top + 270, left : left + 480] for left in lefts] for top in tops]


def colour(name):
    return tuple(int(COLOURS[CLASSES.index(name)][place : place + 2], 16) for place in (1, 3, 5))


def has(cell, x, y, name):
    return tuple(cell[y, x]) == colour(name)


def test_labels_before_and_after(folder, pictures, tmp_path):
    out = tmp_path / "figures"
    path = draw_edit_sheet(folder, out)
    assert path == out / "edit-3.png"  # request 4 changed nothing
    assert [each.name for each in out.iterdir()] == ["edit-3.png"]
    rows = cells(path)
    with Image.open(path) as sheet:
        assert sheet.size == (3 * 486 + 6, 2 * 292 + 3 * 16 + 6)
    # Frame pixels are 1280 wide, cells 480.
    assert has(rows[0][1], 128 * 480 // 1280, 130, "rider")
    assert not has(rows[0][2], 48, 130, "rider")
    assert has(rows[0][2], 48, 130, "car")  # weak boxes that were kept are drawn
    assert has(rows[1][2], 0, 100, "car")
    assert has(rows[1][2], 240, 100, "bus")
    labels = {frame.name: frame for frame in read(pictures[1])}
    for row, name in enumerate(SHOWN):
        for box in labels[name].boxes[-1:]:
            x, y = int(box.x1 * 0.375), int((box.y1 + box.y2) * 0.1875)
            assert has(rows[row][0], x, y, box.category)
    # Nothing was found in the second picture before the edit: it is as it was taken.
    plain = opened(pictures[0] / SHOWN[1], (480, 270))
    np.testing.assert_array_equal(rows[1][1], plain)


def test_again_it_is_the_same_file(folder, tmp_path):
    first = draw_edit_sheet(folder, tmp_path / "a").read_bytes()
    assert draw_edit_sheet(folder, tmp_path / "b").read_bytes() == first
    assert not list(folder.rglob("*.png"))


def test_a_batch_goes_by_its_last_request(tmp_path, pictures):
    steps = (
        Step("init", True, 0.3),
        Step("leave", True, 0.2),
        Step("leave", True, 0.2),
    )
    folder = write_detector_run(tmp_path / "results", steps=steps, places=pictures)
    write_predictions(folder, [seen(SHOWN[0])], [seen(SHOWN[0])])
    assert draw_edit_sheet(folder, tmp_path).name == "edit-2.png"


def refused(error, folder, tmp_path):
    with pytest.raises(error) as caught:
        draw_edit_sheet(folder, tmp_path / "figures")
    message = str(caught.value)
    assert "\n" not in message
    assert not (tmp_path / "figures").exists()
    return message


def test_pictures_that_are_gone(folder, pictures, tmp_path):
    kept = pictures[0] / SHOWN[0]
    kept.write_bytes(kept.read_bytes()[:50])
    assert f"cannot read the picture {kept}" in refused(DataError, folder, tmp_path)
    shutil.rmtree(pictures[0])
    message = refused(DataError, folder, tmp_path)
    assert f"cannot read the picture {kept}" in message
    assert "where the run found them" in message


def test_labels_that_are_gone(folder, pictures, tmp_path):
    frames = json.loads(Path(pictures[1]).read_text())
    Path(pictures[1]).write_text(json.dumps(frames[:2]))
    message = refused(DataError, folder, tmp_path)
    assert f"{pictures[1]} has no labels of {SHOWN[1]}" in message
    Path(pictures[1]).unlink()
    assert str(pictures[1]) in refused(DataError, folder, tmp_path)


@pytest.mark.parametrize("name", [BEFORE, AFTER])
def test_without_predictions(folder, tmp_path, name):
    (folder / name).unlink()
    message = refused(ResultsError, folder, tmp_path)
    assert f"no {name}, so there is no edit to show" in message


@pytest.mark.parametrize("name", [BEFORE, AFTER])
@pytest.mark.parametrize(
    "text", ["[{", "[]", '{"a": 1}', '[{"name": "test_001.jpg", "labels": [{}]}]']
)
def test_damaged_predictions(folder, tmp_path, name, text):
    (folder / name).write_text(text)
    if name == BEFORE and "name" not in text and text != "[{":
        # It says nothing of any picture.
        draw_edit_sheet(folder, tmp_path / "figures")
        return
    message = refused(ResultsError, folder, tmp_path)
    assert f"{folder / name}: damaged run (" in message


def test_an_unwritable_place(folder, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ResultsError, match="cannot write"):
        draw_edit_sheet(folder, tmp_path / "file")


def test_no_run(tmp_path):
    with pytest.raises(ResultsError, match="not a readable manifest"):
        draw_edit_sheet(tmp_path, tmp_path)
