"""Missing, damaged and empty pictures and labels: left out by a stated rule, counted, named."""

from pathlib import Path

import numpy as np
import pytest
from drawn_folder import Folder, drawn_names, faults
from PIL import Image

from testbed.learning.detection.pictures import boxless


def test_one_missing_picture_is_left_out_counted_and_named(folder):
    whole = folder.load()
    (folder.images / "train_003.jpg").unlink()
    data = folder.load()
    assert faults(data) == {"train_missing": 1}
    assert data.skipped == ("train/train_003.jpg: missing",)
    assert "train_003.jpg" not in drawn_names(data)
    rest = [0, 1, 2, 4, 5, 6, 7]
    assert (data.train.pixels == whole.train.pixels[rest]).all()
    for place, target in zip(rest, data.train.targets, strict=True):
        assert (target == whole.train.targets[place]).all()
    assert data.fingerprint != whole.fingerprint


def test_five_in_a_hundred_may_be_missing(tmp_path):
    folder = Folder(tmp_path / "drawn", train=40)
    for number in (7, 30):
        (folder.images / f"train_{number:03d}.jpg").unlink()
    assert folder.load().counts["train_missing"] == 2
    (folder.images / "train_009.jpg").write_bytes(b"no picture")
    assert folder.refusal() == (
        f"data.path: 3 of 40 labelled pictures in {folder.images.resolve()} cannot be used "
        "(train_007.jpg: missing, ...) where 2 may be; list them with: bdd100k-tools check"
    )


def test_too_many_missing_are_refused_before_anything_is_decoded(folder):
    for path in folder.test_images.iterdir():
        path.unlink()
    assert folder.refusal().startswith("data.test_path: 4 of 4 labelled pictures in ")
    assert len(list(folder.cache.glob("*.npy"))) == 1  # of the training part


def test_the_only_picture_may_not_be_missing(folder):
    folder.relabel(folder.frames()[:1])
    assert folder.load().counts["train_pictures"] == 1
    (folder.images / "train_000.jpg").unlink()
    assert "1 of 1 labelled pictures" in folder.refusal()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-300])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def text(path: Path) -> None:
    path.write_text("<html>404</html>")


def other_format(path: Path) -> None:
    Image.new("RGB", (128, 72)).save(path, format="BMP")


def huge(path: Path) -> None:
    """Claim a size in the header that no memory holds."""
    content = path.read_bytes()
    start = content.index(b"\xff\xc0")
    path.write_bytes(content[: start + 5] + b"\xff\xff\xff\xff" + content[start + 9 :])


@pytest.mark.parametrize("damage", [cut, empty, text, other_format, huge])
def test_an_unreadable_picture_is_left_out_counted_and_named(folder, damage):
    whole = folder.load()
    damage(folder.images / "train_001.jpg")
    for _ in range(2):  # decoded, then from the cache
        data = folder.load()
        assert faults(data) == {"train_unreadable": 1}
        assert data.skipped == ("train/train_001.jpg: unreadable",)
        assert (data.train.pixels == whole.train.pixels[[0, 2, 3, 4, 5, 6, 7]]).all()


def test_a_picture_of_another_shape_is_left_out(folder):
    Image.new("RGB", (72, 128)).save(folder.test_images / "test_000.jpg")
    data = folder.load()
    assert faults(data) == {"test_other_shape": 1}
    assert data.skipped == ("test/test_000.jpg: other_shape",)


def test_no_damage_to_a_jpeg_ends_in_a_traceback(folder):
    path, rng = folder.images / "train_004.jpg", np.random.default_rng(5)
    content = path.read_bytes()
    seen = set()
    for _ in range(60):
        broken = bytearray(content)
        for place in rng.integers(0, len(content), 6):
            broken[place] = rng.integers(256)
        path.write_bytes(broken[: rng.integers(1, len(broken) + 1)])
        data = folder.load(limit=None)
        assert len(data.train.frames) + sum(faults(data).values()) == 8
        seen |= set(faults(data))
    assert "train_unreadable" in seen


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[]", "holds no pictures"),
        ("", "train.json"),
        ('[{"name": "a.jpg"', "train.json"),
        ('{"frames": []}', "holds no pictures"),
        ("42", "train.json"),
    ],
)
def test_an_empty_or_broken_label_file_is_refused(folder, content, reason):
    folder.labels.write_text(content)
    line = folder.refusal()
    assert line.startswith("data.labels: ")
    assert reason in line


def test_a_missing_label_file_and_a_missing_folder_are_refused(folder):
    labels, images = folder.test_labels, folder.images
    folder.test_labels = folder.place / "nowhere.json"
    assert folder.refusal().startswith("data.test_labels: ")
    folder.test_labels, folder.images = labels, folder.place / "nowhere"
    assert folder.refusal() == (
        f"data.path: there is no folder {folder.place / 'nowhere'}; set it to the pictures"
    )
    folder.images = images / "train_000.jpg"
    assert folder.refusal().startswith("data.path: there is no folder ")


def test_a_picture_without_a_box_is_background(folder):
    frames = folder.frames()
    frames[0]["labels"] = []
    frames[1]["labels"] = None
    frames[2]["labels"] = [{"category": "lane", "poly2d": []}]
    frames[4]["labels"][0]["category"] = frames[4]["labels"][1]["category"] = "other vehicle"
    folder.relabel(frames)
    data = folder.load()
    assert len(data.train.frames) == 8
    assert [each.shape for each in data.train.targets[:5]] == [(0, 5)] * 3 + [(1, 5), (0, 5)]
    assert faults(data) == {"train_background": 4, "train_unlabelled": 1, "train_no_box": 1}


def test_a_part_without_any_box_is_refused(folder):
    folder.relabel([{**frame, "labels": []} for frame in folder.frames()])
    assert folder.refusal() == (
        f"data.labels: no picture of {folder.labels} has a box of a detection class; check it "
        "with: bdd100k-tools stats"
    )


def test_a_picture_listed_twice_counts_once(folder):
    whole = folder.load()
    frames = folder.frames()
    folder.relabel([*frames, {**frames[0], "labels": []}])
    data = folder.load()
    assert faults(data) == {"train_duplicate": 1}
    assert len(data.train.frames) == 8
    assert (data.train.targets[0] == whole.train.targets[0]).all()


def test_what_the_label_reader_repairs_is_counted(folder):
    frames = folder.frames()
    frames[0]["labels"][0]["box2d"] = {"x1": 1000, "y1": 10, "x2": 1300, "y2": 200}
    frames[1]["labels"][0]["box2d"] = {"x1": 300, "y1": 10, "x2": 200, "y2": 200}
    frames[1]["labels"][1]["category"] = "boat"
    folder.relabel(frames)
    data = folder.load()
    assert faults(data) == {"train_clipped": 1, "train_reversed": 1, "train_unknown_class": 1}
    _, cx, _, w, _ = data.train.targets[0][0]
    assert cx + w / 2 == 1


def test_pictures_in_both_parts_are_counted(folder):
    folder.test_images, folder.test_labels = folder.images, folder.labels
    data = folder.load(limit=8, test_limit=3)
    assert faults(data) == {"test_in_train": 3}


def test_clients_without_a_box_are_named(folder):
    frames = folder.frames()
    for place in (0, 1, 4):
        frames[place]["labels"] = []
    folder.relabel(frames)
    train = folder.load().train
    clients = [np.array(part) for part in ([0, 1], [4], [1, 2], [3, 5, 6, 7])]
    assert boxless(train, clients) == (0, 1)
