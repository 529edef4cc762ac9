"""Conversion: YOLO and COCO files by hand and against the official toolkit, links, refusals."""

import json
import os

import numpy as np
import pytest

from bdd100k_tools import CLASSES, LabelError, OutputError, PictureError, read, write_coco
from bdd100k_tools.convert import Split, convert
from bdd100k_tools.yolo import data_yaml, label_text, targets, write_yolo

LEFT = {"x1": 0, "y1": 0, "x2": 640, "y2": 360}
RIGHT = {"x1": 1216, "y1": 684, "x2": 1280, "y2": 720}


@pytest.fixture
def labels(write, frame, label):
    return write(
        [
            frame(
                "a.jpg",
                label("car", box2d=LEFT),
                label("trailer", box2d=LEFT),
                label("motor", box2d=RIGHT),
                label("lane"),
                attributes={"weather": "rainy"},
            ),
            frame("b.jpg", label("bus", box2d=LEFT)),
            frame("c.jpg"),
        ]
    )


def leftovers(folder):
    return [path.name for path in folder.iterdir() if "partial" in path.name]


def test_yolo_by_hand(labels, tmp_path):
    frames = list(read(labels))
    # Centre and size as shares of 1280x720; the trailer is crowd and not trained on.
    assert targets(frames[0]) == [(2, 0.25, 0.25, 0.5, 0.5), (6, 0.975, 0.975, 0.05, 0.05)]
    assert label_text(frames[0]) == (
        "2 0.250000 0.250000 0.500000 0.500000\n6 0.975000 0.975000 0.050000 0.050000\n"
    )
    assert label_text(frames[2]) == ""
    assert write_yolo(frames, tmp_path) == 3
    assert (tmp_path / "c.txt").read_bytes() == b""
    assert (tmp_path / "b.txt").read_text() == "4 0.250000 0.250000 0.500000 0.500000\n"


def test_yaml_names_the_classes_in_order():
    import yaml

    text = data_yaml({"train": "train.txt", "val": "val.txt"})
    assert yaml.safe_load(text) == {
        "train": "train.txt",
        "val": "val.txt",
        "names": dict(enumerate(CLASSES)),
    }


def test_a_data_set_with_links(labels, folder, tmp_path):
    images = folder("a.jpg", "b.jpg", "c.jpg", "not_labelled.jpg", size=(64, 36))
    out = tmp_path / "set"
    (done,) = convert([Split("train", labels, images)], out)
    assert (done.pictures, done.boxes, done.crowd, done.size) == (3, 4, 1, (64, 36))
    assert done.missing == ()
    assert done.report.counts["no_box"] == 0  # the lane of this file has a box
    assert done.report.counts["unknown_class"] == 1
    lines = (out / "train.txt").read_text().splitlines()
    assert lines == [f"./images/train/{name}.jpg" for name in "abc"]
    for line in lines:  # as YOLO tools look labels up
        assert (out / line).is_symlink()
        assert (out / line).samefile(images / os.path.basename(line))
        assert (out / line.replace("images", "labels").replace("jpg", "txt")).is_file()
    assert sorted(path.name for path in (out / "images" / "train").iterdir()) == [
        "a.jpg", "b.jpg", "c.jpg",
    ]  # fmt: skip
    assert (out / "data.yaml").read_text().startswith("train: train.txt\nval: train.txt\nnames:")
    report = json.loads((out / "report.json").read_text())["train"]
    assert report["crowd_boxes_not_in_yolo"] == 1
    assert report["read"]["counts"]["unknown_class"] == 1
    assert len(report["sha256"]) == 64
    coco = json.loads((out / "coco" / "train.json").read_text())
    # 64x36 pictures: boxes are a twentieth of their size in labels of 1280x720.
    assert coco["images"][0] == {
        "id": 1, "file_name": "a.jpg", "width": 64, "height": 36,
        "attributes": {"weather": "rainy"},
    }  # fmt: skip
    first, second = coco["annotations"][:2]
    assert first["bbox"] == pytest.approx([0, 0, 32, 18])
    assert first["area"] == pytest.approx(576)
    assert (first["id"], first["image_id"], first["category_id"], first["iscrowd"]) == (1, 1, 3, 0)
    assert (second["category_id"], second["iscrowd"]) == (4, 1)
    assert coco["categories"][9] == {"id": 10, "name": "traffic sign"}
    assert leftovers(tmp_path) == []


def test_hard_links_and_lists(labels, folder, tmp_path):
    images = folder("a.jpg", "b.jpg", "c.jpg")
    convert([Split("train", labels, images)], tmp_path / "hard", link="hardlink")
    linked = tmp_path / "hard" / "images" / "train" / "a.jpg"
    assert linked.stat().st_ino == (images / "a.jpg").stat().st_ino
    assert not linked.is_symlink()
    convert([Split("train", labels, images)], tmp_path / "list", link="list")
    assert (tmp_path / "list" / "train.txt").read_text().splitlines() == [
        str(images / f"{name}.jpg") for name in "abc"
    ]
    assert not (tmp_path / "list" / "images").exists()
    assert (tmp_path / "list" / "labels" / "train" / "a.txt").is_file()


def test_two_splits(labels, write, frame, label, folder, tmp_path):
    other = write([frame("d.jpg", label("rider"))], "val.json")
    images = folder("a.jpg", "b.jpg", "c.jpg", "d.jpg")
    out = tmp_path / "set"
    done = convert([Split("train", labels, images), Split("val", other, images)], out)
    assert [(one.split, one.pictures) for one in done] == [("train", 3), ("val", 1)]
    assert (out / "data.yaml").read_text().startswith("train: train.txt\nval: val.txt\nnames")
    assert (out / "val.txt").read_text() == "./images/val/d.jpg\n"


def test_missing_pictures_are_left_out_and_named_and_ids_stay(labels, folder, tmp_path):
    images = folder("a.jpg", "c.jpg")
    (done,) = convert([Split("train", labels, images)], tmp_path / "set")
    assert done.missing == ("b.jpg",)
    assert done.pictures == 2
    coco = json.loads((tmp_path / "set" / "coco" / "train.json").read_text())
    assert [(row["id"], row["file_name"]) for row in coco["images"]] == [
        (1, "a.jpg"), (3, "c.jpg"),
    ]  # fmt: skip
    report = json.loads((tmp_path / "set" / "report.json").read_text())["train"]
    assert (report["missing_pictures"], report["first_missing"]) == (1, ["b.jpg"])


def test_sizes_asked_for(labels, folder, tmp_path):
    images = folder("a.jpg", "b.jpg", "c.jpg", size=(50, 50))
    split = Split("train", labels, images)
    with pytest.raises(PictureError, match=r"50x50 pixels, .* shape of the labels' 1280x720"):
        convert([split], tmp_path / "no")
    (done,) = convert([split], tmp_path / "set", size=(640, 360), pixels="bdd100k")
    assert done.size == (640, 360)
    coco = json.loads((tmp_path / "set" / "coco" / "train.json").read_text())
    assert coco["annotations"][0]["bbox"] == [0, 0, 320.5, 180.5]  # (640 + 1) / 2


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("[]", LabelError, "holds no pictures"),
        ('[{"name": "a.jpg"}, {"name":', LabelError, "not valid JSON"),
        ('[{"name": "x.jpg"}]', PictureError, "none of the 1 pictures"),
        ('[{"name": "a.jpg"}, {"name": "a.png"}]', OutputError, "File exists"),
    ],
)
def test_after_a_failure_nothing_is_there(tmp_path, folder, text, error, message):
    path = tmp_path / "labels.json"
    path.write_text(text)
    with pytest.raises(error, match=message):
        convert([Split("train", path, folder("a.jpg", "a.png"))], tmp_path / "set")
    assert not (tmp_path / "set").exists()
    assert leftovers(tmp_path) == []


def test_refusals(labels, folder, tmp_path):
    images = folder("a.jpg")
    split = Split("train", labels, images)
    with pytest.raises(LabelError, match="a name of its own"):
        convert([split, split], tmp_path / "set")
    with pytest.raises(PictureError, match=r"cannot read .*nowhere: No such file"):
        convert([Split("train", labels, tmp_path / "nowhere")], tmp_path / "set")
    (images / "a.jpg").write_bytes(b"no picture")
    with pytest.raises(PictureError, match="cannot read the picture"):
        convert([split], tmp_path / "set")
    with pytest.raises(OutputError, match="is there already; remove it"):
        convert([split], images)
    assert (images / "a.jpg").read_bytes() == b"no picture"
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        convert([split], tmp_path / "file" / "set")


@pytest.mark.parametrize("generation", ["2018", "2020"])
def test_ids_and_boxes_are_the_official_ones(golden, tmp_path, generation):
    official = json.loads((golden / "official.json").read_text())["coco"][generation]
    frames = read(golden / f"labels_{generation}.json")
    write_coco(enumerate(frames, 1), tmp_path / "coco.json", pixels="bdd100k")
    ours = json.loads((tmp_path / "coco.json").read_text())
    assert [[row["id"], row["name"]] for row in ours["categories"]] == official["categories"]
    assert [[row["id"], row["file_name"]] for row in ours["images"]] == official["images"]
    rows = [
        [row["id"], row["image_id"], row["category_id"], row["iscrowd"], *row["bbox"]]
        for row in ours["annotations"]
    ]
    assert len(rows) > 150
    assert sum(row[3] for row in rows) > 20
    np.testing.assert_allclose(rows, official["annotations"], rtol=0, atol=1e-9)


def test_the_real_pictures(real, tmp_path):
    splits = [
        Split(name, real / f"bdd100k_labels_{name}.json", real / "images" / name)
        for name in ("train", "test")
    ]
    done = convert(splits, tmp_path / "set")
    assert [(one.pictures, one.boxes, one.size) for one in done] == [
        (1100, 20075, (640, 360)),
        (261, 4784, (640, 360)),
    ]
    # The labels that come with the pictures were made by someone else.
    differences = 0
    for theirs in sorted((real / "labels" / "test").glob("*.txt")):
        ours = (tmp_path / "set" / "labels" / "test" / theirs.name).read_text().split()
        values = list(map(float, theirs.read_text().split()))
        assert list(map(float, ours)) == pytest.approx(values, abs=2.1e-6)
        differences += 1
    assert differences == 261
