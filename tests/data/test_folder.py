"""Folders of pictures: which classes, which pixels, and every bad picture named."""

import shutil
import zlib

import numpy as np
import pytest
from data_files import faults, load, random_bytes, refusal, write_picture
from PIL import Image

from testbed.data.faults import FaultsError


def fill(place, classes=("cat", "dog"), count=4, shape=(6, 5, 3)):
    for number, name in enumerate(classes):
        for picture in range(count):
            pixels = random_bytes(*shape, seed=10 * number + picture)
            write_picture(place / name / f"{picture}.png", pixels)


@pytest.fixture
def folder(tmp_path):
    fill(tmp_path / "train", count=3)
    fill(tmp_path / "test", count=2)
    return tmp_path


def test_classes_and_pixels(folder):
    data = load("folder", folder)
    assert data.classes == ("cat", "dog")
    assert data.x_train.shape == (6, 3, 6, 5)
    assert data.x_test.shape == (4, 3, 6, 5)
    assert data.y_train.tolist() == [0, 0, 0, 1, 1, 1]
    pixels = random_bytes(6, 5, 3, seed=12)
    assert np.array_equal(
        data.x_train[5], np.moveaxis(pixels, -1, 0).astype(np.float32) / np.float32(255)
    )


def test_grey_pictures_have_one_channel_and_mixed_ones_three(tmp_path):
    fill(tmp_path, shape=(6, 5))
    assert load("folder", tmp_path).x_train.shape == (6, 1, 6, 5)
    write_picture(tmp_path / "dog" / "0.png", random_bytes(6, 5, 3))
    data = load("folder", tmp_path)
    assert data.x_train.shape == (6, 3, 6, 5)
    # A grey picture in colour has the same value three times.
    cat = data.x_train[0]
    assert np.array_equal(cat[0], cat[2])


def test_numbers_in_names_count_by_value(tmp_path):
    for name, grey in (("10", 10), ("9", 9), ("1", 1)):
        for part in ("train", "test"):
            write_picture(
                tmp_path / part / "class 2" / f"{name}.png", np.full((2, 2), grey, np.uint8)
            )
            write_picture(
                tmp_path / part / "class 10" / f"{name}.png", np.full((2, 2), 0, np.uint8)
            )
    data = load("folder", tmp_path)
    assert data.classes == ("class 2", "class 10")
    assert np.rint(data.x_train[:3, 0, 0, 0] * 255).tolist() == [1, 9, 10]


def test_one_level_is_split_by_class(tmp_path):
    fill(tmp_path, count=10)
    data = load("folder", tmp_path, test_share=0.3)
    assert np.bincount(data.y_train).tolist() == [7, 7]
    assert np.bincount(data.y_test).tolist() == [3, 3]
    rows = {picture.tobytes() for picture in (*data.x_train, *data.x_test)}
    assert len(rows) == 20
    assert load("folder", tmp_path, test_share=0.3).fingerprint == data.fingerprint


def test_a_class_too_small_to_split(tmp_path):
    fill(tmp_path)
    fill(tmp_path, classes=["mouse"], count=1)
    told = (
        "has 1 picture, it needs 2: one to learn from and one for the test part that is drawn; "
        "add a picture, take the class out, or give the data a test part of their own"
    )
    assert refusal("folder", tmp_path) == f"{tmp_path}: class 'mouse' {told}"
    fill(tmp_path, classes=["wren"], count=1)
    with pytest.raises(FaultsError) as caught:
        load("folder", tmp_path)
    assert caught.value.lines == tuple(
        f"{tmp_path}: class {name!r} {told}" for name in ("mouse", "wren")
    )


def test_what_is_no_picture_is_left_alone(folder):
    (folder / "train" / "cat" / "Thumbs.db").write_bytes(b"x")
    (folder / "train" / "cat" / ".hidden.png").write_bytes(b"x")
    (folder / "train" / ".cache").mkdir()
    (folder / "train" / "labels.csv").write_text("x")
    assert len(load("folder", folder).y_train) == 6


def test_other_formats_and_modes(folder):
    image = Image.open(folder / "train" / "cat" / "0.png")
    with image:
        image.convert("RGBA").save(folder / "train" / "cat" / "0.png")
        image.quantize(256).save(folder / "train" / "cat" / "1.gif")
        image.save(folder / "train" / "cat" / "2.bmp")
    (folder / "train" / "cat" / "1.png").unlink()
    (folder / "train" / "cat" / "2.png").unlink()
    data = load("folder", folder)
    assert np.array_equal(data.x_train[0], data.x_train[2])
    assert data.x_train[0] == pytest.approx(data.x_train[1], abs=0.2)


# Faults -------------------------------------------------------------------------------


def test_mixed_sizes_are_all_named(folder):
    for name in ("train/dog/1.png", "test/cat/0.png"):
        write_picture(folder / name, random_bytes(5, 6, 3))
    assert faults("folder", folder) == tuple(
        f"{folder}/{name}: 6x5 pixels where the first picture has 5x6; make all one size"
        for name in ("train/dog/1.png", "test/cat/0.png")
    )


def test_a_broken_header_and_a_truncated_picture(folder):
    path = folder / "train" / "dog" / "2.png"
    content = path.read_bytes()
    path.write_bytes(b"no picture")
    assert refusal("folder", folder) == f"{path}: not a picture, or a broken one"
    path.write_bytes(content[:60])
    assert refusal("folder", folder).startswith(f"{path}: broken picture: ")


def test_only_pictures_that_are_drawn_are_unpacked(folder):
    # Two pictures, one of each class; which of the dogs is drawn does not change.
    drawn = load("folder", folder, limit=2).x_train[1]
    dogs = sorted((folder / "train" / "dog").iterdir())
    whole = dict(zip(dogs, load("folder", folder).x_train[3:], strict=True))
    for dog, pixels in whole.items():
        content = dog.read_bytes()
        dog.write_bytes(content[:60])
        if np.array_equal(pixels, drawn):
            assert refusal("folder", folder, limit=2).startswith(f"{dog}: broken picture")
        else:
            assert len(load("folder", folder, limit=2).y_train) == 2
        dog.write_bytes(content)


def test_a_picture_that_unpacks_to_gigabytes(folder):
    path = folder / "train" / "cat" / "0.png"
    head = path.read_bytes()
    # A PNG's 8 bytes of signature, 8 of chunk head, then width, height and the rest.
    chunk = b"IHDR" + (60_000).to_bytes(4, "big") * 2 + head[24:29]
    path.write_bytes(head[:12] + chunk + zlib.crc32(chunk).to_bytes(4, "big") + head[33:])
    assert any("decompression bomb" in line for line in faults("folder", folder))


def test_deep_colours_are_refused(folder):
    path = folder / "train" / "cat" / "0.png"
    Image.fromarray(np.zeros((6, 5), np.uint16)).save(path)
    assert refusal("folder", folder).startswith(f"{path}: a picture of mode I;16; save it with 8")


def test_empty_and_unknown_classes(folder):
    (folder / "train" / "emu").mkdir()
    (folder / "test" / "cow").mkdir()
    assert faults("folder", folder) == (
        f"{folder}/train/emu: no pictures",
        f"{folder}/test/cow: no pictures",
    )
    (folder / "train" / "emu").rmdir()
    shutil.copy(folder / "test" / "cat" / "0.png", folder / "test" / "cow")
    assert refusal("folder", folder) == f"{folder}/test: class 'cow' has no folder in train/"


@pytest.mark.parametrize(("kept", "gone"), [("train", "test"), ("test", "train")])
def test_half_a_data_set(folder, kept, gone):
    shutil.rmtree(folder / gone)
    assert refusal("folder", folder).startswith(f"{folder}: has {kept}/ but no {gone}/")
