"""Labels against pictures, counts, and what is drawn."""

import json
from collections import Counter
from types import MappingProxyType

import numpy as np
import pytest
from PIL import Image

from bdd100k_tools import CLASSES, Box, Frame, OutputError, PictureError, read
from bdd100k_tools.contact import COLOURS, choose, draw_sheet
from bdd100k_tools.pictures import check, listing, picture_size
from bdd100k_tools.predictions import Detections
from bdd100k_tools.statistics import count, draw

# Checking -----------------------------------------------------------------------------


@pytest.fixture
def labels(write, frame):
    return write([frame(f"{name}.jpg") for name in "abcd"])


def test_everything_that_can_be_wrong(labels, folder):
    images = folder("a.jpg", "b.jpg", "e.jpg", size=(1280, 720))
    (images / "notes.txt").write_text("no picture")
    folder("d.jpg", size=(640, 360))
    whole = (images / "b.jpg").read_bytes()
    (images / "b.jpg").write_bytes(whole[: len(whole) // 2])
    found = check(read(labels), images)
    assert found.pictures == 4
    assert found.missing == ("c.jpg",)
    assert found.extra == ("e.jpg",)
    assert found.corrupt == ("b.jpg",)
    assert found.wrong_size == ("d.jpg: found 640x360, expected 1280x720",)
    assert not found.clean
    # Only headers: a picture cut off in the middle goes unnoticed, a broken header does not.
    assert check(read(labels), images, decode=False).corrupt == ()
    (images / "b.jpg").write_bytes(b"")
    assert check(read(labels), images, decode=False).corrupt == ("b.jpg",)


def test_clean(labels, folder):
    images = folder("a.jpg", "b.jpg", "c.jpg", "d.jpg", size=(64, 36))
    assert check(read(labels), images, (64, 36)).clean
    assert not check(read(labels), images).clean


def test_refusals(labels, tmp_path):
    with pytest.raises(PictureError, match="No such file"):
        check(read(labels), tmp_path / "nowhere")
    with pytest.raises(PictureError, match="Not a directory"):
        listing(labels)
    with pytest.raises(PictureError, match="cannot read the picture"):
        picture_size(labels)


def test_the_originals(originals):
    found = check(read(originals / "bdd100k_labels_sample.json"), originals / "images")
    assert found.pictures == 60
    assert found.clean


def test_the_real_pictures(real):
    frames = list(read(real / "bdd100k_labels_test.json"))
    images = real / "images" / "test"
    assert check(frames, images, (640, 360), decode=False).clean
    assert len(check(frames, images, decode=False).wrong_size) == 261


# Counting -----------------------------------------------------------------------------


def picture(name, *boxes, **attributes):
    return Frame(name, MappingProxyType(attributes), boxes)


def test_counts_by_hand():
    total = count(
        [
            picture(
                "a.jpg",
                Box("car", 0, 0, 31, 33, False),  # 1023 px: small
                Box("car", 0, 0, 32, 32, False),  # 1024: medium
                Box("car", 0, 0, 96, 95, False),
                Box("car", 0, 0, 96, 96, False),  # 9216: large
                Box("truck", 0, 0, 5, 5, True),
                weather="rainy",
            ),
            picture("b.jpg", Box("car", 0, 0, 5, 5, False), weather="rainy", scene="tunnel"),
            picture("c.jpg"),
        ]
    )
    car, truck = total.classes["car"], total.classes["truck"]
    assert (car.small, car.medium, car.large, car.crowd, car.pictures) == (2, 2, 1, 0, 2)
    assert (truck.boxes, truck.crowd, truck.pictures) == (0, 1, 0)
    assert list(total.classes) == list(CLASSES)
    assert (total.pictures, total.background) == (3, 1)
    assert total.attributes == {
        "weather": Counter(rainy=2, undefined=1),
        "scene": Counter(undefined=2, tunnel=1),
        "timeofday": Counter(undefined=3),
    }
    assert json.loads(json.dumps(total.as_dict()))["classes"]["car"]["small"] == 2


def test_the_figure(tmp_path):
    total = count([picture("a.jpg", Box("car", 0, 0, 50, 50, False), weather="rainy")])
    draw(total, tmp_path / "new" / "counts.png", "one picture")
    with Image.open(tmp_path / "new" / "counts.png") as figure:
        pixels = np.asarray(figure.convert("RGB"))
    assert pixels.shape == (768, 1200, 3)
    # The bar of medium boxes, and the attributes' grey.
    for colour in ((0x42, 0x92, 0xC6), (0x96, 0x96, 0x96)):
        assert (pixels == colour).all(axis=2).sum() > 2000
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["counts.png"]
    draw(count([]), tmp_path / "empty.png", "no picture")
    assert (tmp_path / "empty.png").is_file()
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        draw(total, tmp_path / "file" / "counts.png", "")


# Contact sheets -----------------------------------------------------------------------


def test_the_sheet_shows_boxes_in_their_class_colour(folder, tmp_path):
    images = folder("a.jpg", "b.jpg", size=(320, 180))
    frames = [
        picture("a.jpg", Box("bus", 320, 180, 640, 360, False)),
        picture("b.jpg", Box("truck", 0, 0, 1280, 720, True)),
    ]
    found = Detections(
        np.array([0, 0]),
        np.array([6, 7]),
        np.array([[640, 360, 1280, 720], [0, 0, 640, 360.0]]),
        np.array([0.9, 0.1]),
    )
    path = tmp_path / "sheet.png"
    draw_sheet(frames, images, path, {"before": found, "after": found}, width=320)
    with Image.open(path) as sheet:
        assert sheet.size == (3 * 326 + 6, 2 * (180 + 22) + 54)
        pixels = sheet.load()

        def at(column, row, x, y):
            return pixels[6 + column * 326 + x, 54 + row * 202 + y]

        def rgb(name):
            text = COLOURS[CLASSES.index(name)]
            return tuple(int(text[k : k + 2], 16) for k in (1, 3, 5))

        # The bus: a quarter of 1280x720 in from the corner is 80, 45 on the sheet.
        assert at(0, 0, 80, 60) == rgb("bus")
        assert at(0, 0, 100, 60) != rgb("bus")
        assert at(0, 1, 0, 90) == rgb("truck")
        for column in (1, 2):  # the detection of score 0.9 is drawn, that of 0.1 is not
            assert at(column, 0, 160, 150) == rgb("motorcycle")
            assert at(column, 0, 0, 40) not in (rgb("bicycle"), rgb("bus"))


def test_the_choice_of_pictures_is_stable():
    names = [f"{k}.jpg" for k in range(50)]
    chosen = choose(names, 5, seed=0)
    assert chosen == sorted(set(chosen))
    assert len(chosen) == 5
    assert choose(names, 5, seed=1) != chosen
    assert choose(names, 99, seed=0) == list(range(50))
    back = choose(names[::-1], 5, seed=0)
    assert {names[::-1][k] for k in back} == {names[k] for k in chosen}


def test_a_missing_picture_is_named_and_nothing_written(folder, tmp_path):
    with pytest.raises(PictureError, match=r"no\.jpg"):
        draw_sheet([picture("no.jpg")], folder("a.jpg"), tmp_path / "sheet.png")
    assert not (tmp_path / "sheet.png").exists()
