"""The label reader against files written by hand."""

import json
from collections import Counter
from pathlib import Path

import pytest

from bdd100k_tools import (
    ALIASES,
    CLASSES,
    IGNORED,
    REASONS,
    Box,
    Frame,
    LabelError,
    Report,
    fingerprint,
    read,
    resolve,
)

BOX = {"x1": 10, "y1": 20.5, "x2": 30, "y2": 40}


def refusal(path: Path) -> str:
    with pytest.raises(LabelError) as caught:
        list(read(path))
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


# Classes ------------------------------------------------------------------------------


def test_the_ten_classes_in_the_official_order():
    assert len(CLASSES) == 10
    assert CLASSES[0] == "pedestrian"
    assert CLASSES.index("motorcycle") == 6  # official id 7
    assert CLASSES[-1] == "traffic sign"
    assert set(ALIASES.values()) | set(IGNORED.values()) <= set(CLASSES)
    assert not (set(ALIASES) | set(IGNORED)) & set(CLASSES)


@pytest.mark.parametrize(
    ("category", "expected"),
    [
        ("car", ("car", False)),
        ("person", ("pedestrian", False)),
        ("bike", ("bicycle", False)),
        ("motor", ("motorcycle", False)),
        ("van", ("car", False)),
        ("caravan", ("car", False)),
        ("other person", ("pedestrian", True)),
        ("other vehicle", ("car", True)),
        ("trailer", ("truck", True)),
        ("lane", None),
        ("Car", None),
    ],
)
def test_resolve(category, expected):
    assert resolve(category) == expected


# Forms --------------------------------------------------------------------------------


def test_names_of_both_generations_are_the_same_boxes(write, frame, label):
    old, new = Report(), Report()
    first = list(
        read(write([frame("a.jpg", label("person"), label("motor"), label("bike"))]), old)
    )
    twenty = [frame("a.jpg", label("pedestrian"), label("motorcycle"), label("bicycle"))]
    assert first == list(read(write(twenty), new))
    assert first[0].boxes[0] == Box("pedestrian", 10.0, 20.5, 30.0, 40.0, False)
    assert [box.index for box in first[0].boxes] == [0, 6, 7]
    assert (old.generation, new.generation) == ("2018", "2020")
    assert (old.frames, old.boxes, old.crowd) == (1, 3, 0)
    assert not old.counts


def test_generation_needs_a_name_that_tells(write, frame, label):
    for labels, expected in (
        ([label("car")], "unknown"),
        ([label("person"), label("pedestrian")], "mixed"),
    ):
        report = Report()
        list(read(write([frame("a.jpg", *labels)]), report))
        assert report.generation == expected


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"groups": [], "config": {}},
        {"groups": None, "config": {"imageSize": {"width": 1280, "height": 720}}},
    ],
)
def test_the_mapping_form(write, frame, label, more):
    frames = [frame("a.jpg", label("car")), frame("b.jpg")]
    plain = list(read(write(frames)))
    assert list(read(write({"frames": frames} | more))) == plain
    assert list(read(write(more | {"frames": frames}))) == plain


def test_one_picture_per_file_of_both_generations(write, label, tmp_path):
    attributes = {"weather": "clear", "scene": "highway", "timeofday": "night"}
    lane = {"id": 1, "category": "lane/road curb", "poly2d": [[1, 2, "L"], [3, 4, "L"]]}
    objects = [label("motor"), lane]
    old = {
        "name": "0000f77c-6257be58",
        "frames": [{"timestamp": 10000, "objects": objects}],
        "attributes": attributes,
    }
    new = {"name": "0000f77c-6257be58.jpg", "attributes": attributes, "labels": objects}
    report = Report()
    (first,) = read(write(old, "old.json"), report)
    assert first.name == "0000f77c-6257be58.jpg"
    assert dict(first.attributes) == attributes
    assert [box.category for box in first.boxes] == ["motorcycle"]
    assert report.counts == Counter(no_box=1)
    assert report.categories == Counter({"lane/road curb": 1})
    assert list(read(write(new, "new.json"))) == [first]
    # A folder is read in order of name; here both files are of one picture.
    report = Report()
    assert list(read(tmp_path, report)) == [first]
    assert report.counts["duplicate"] == 1


def test_a_folder_of_pictures_in_order_of_name(write, tmp_path):
    for name in ("b", "a", "c"):
        write({"name": name, "labels": []}, f"{name}.json")
    assert [frame.name for frame in read(tmp_path)] == ["a.jpg", "b.jpg", "c.jpg"]


def test_a_video_is_not_a_picture(write, label):
    frames = [{"timestamp": time, "objects": [label("car")]} for time in (0, 1000)]
    assert "holds a video's frames" in refusal(write({"name": "v", "frames": frames}))


def test_attributes_and_pictures_without_any(write, frame):
    attributes = {"weather": "rainy", "scene": "tunnel", "timeofday": "night"}
    report = Report()
    frames = list(
        read(
            write(
                [
                    frame("a.jpg", attributes=attributes),
                    {"name": "b.jpg"},
                    {"name": "c.jpg", "labels": None, "attributes": None},
                ]
            ),
            report,
        )
    )
    assert [one.name for one in frames] == ["a.jpg", "b.jpg", "c.jpg"]
    assert dict(frames[0].attributes) == attributes
    assert [dict(one.attributes) for one in frames[1:]] == [{}, {}]
    assert all(one.boxes == () for one in frames)
    assert report.counts == Counter(unlabelled=2)


def test_sizes(write, frame, label):
    path = write(
        [
            frame("a.jpg", label("car", box2d=BOX | {"x2": 5000})),
            frame(
                "b.jpg", label("car", box2d=BOX | {"x2": 5000}), size={"width": 90, "height": 50}
            ),
        ]
    )
    first, second = read(path, size=(640, 360))
    assert (first.width, first.height, first.boxes[0].x2) == (640, 360, 640.0)
    assert (second.width, second.height, second.boxes[0].x2) == (90, 50, 90.0)


def test_a_config_that_contradicts_is_refused(write, frame):
    config = {"imageSize": {"width": 640, "height": 360}}
    path = write({"frames": [frame()], "config": config})
    assert "config says imageSize {'width': 640" in refusal(path)
    assert len(list(read(path, size=(640, 360)))) == 1


def test_frames_come_before_the_file_is_read_to_its_end(tmp_path, frame):
    path = tmp_path / "cut.json"
    path.write_text(json.dumps([frame("a.jpg"), frame("b.jpg")])[:-9], encoding="utf-8")
    frames = read(path)
    assert next(frames) == Frame("a.jpg", {}, ())
    with pytest.raises(LabelError, match="not valid JSON"):
        next(frames)


# Repairs ------------------------------------------------------------------------------


def test_everything_left_out_or_repaired_is_counted(write, frame, label):
    path = write(
        [
            frame(
                "a.jpg",
                label("lane", box2d=None),
                {"category": "drivable area", "poly2d": []},
                {"category": "car"},
            ),
            frame("b.jpg", label("horse"), label("car"), {"box2d": BOX}),
            frame(
                "c.jpg",
                label("bus", box2d=BOX | {"y2": 20.5}),
                label("bus", box2d={"x1": 1300, "y1": 1, "x2": 1400, "y2": 5}),
                label("bus", box2d=BOX | {"x2": "far"}),
                label("bus", box2d=BOX | {"x2": float("nan")}),
                label("bus", box2d=BOX | {"x2": float("inf")}),
                label("bus", box2d={"x1": 1}),
                label("bus", box2d=[1, 2, 3, 4]),
                label("bus", box2d=BOX | {"x2": 10**400}),
            ),
            frame("d.jpg", label("car", box2d={"x1": 30, "y1": 40, "x2": 10, "y2": 20.5})),
            frame("e.jpg", label("car", box2d={"x1": -5, "y1": -6, "x2": 1290, "y2": 721.5})),
            frame("b.jpg", label("car")),
            {"name": "f.jpg"},
        ]
    )
    report = Report()
    frames = {one.name: one for one in read(path, report)}
    assert report.counts == Counter(
        no_box=3,
        unknown_class=2,
        empty_box=1,
        outside=1,
        broken_box=6,
        reversed=1,
        clipped=1,
        duplicate=1,
        unlabelled=1,
    )
    assert set(report.counts) == set(REASONS)
    assert [len(frames[f"{name}.jpg"].boxes) for name in "abcdef"] == [0, 1, 0, 1, 1, 0]
    assert frames["d.jpg"].boxes[0] == Box("car", 10.0, 20.5, 30.0, 40.0, False)
    assert frames["e.jpg"].boxes[0] == Box("car", 0.0, 0.0, 1280.0, 720.0, False)
    assert report.categories == Counter({"lane": 1, "drivable area": 1, "horse": 1, "None": 1})
    assert report.examples["reversed"] == [f"{path}: picture 3 'd.jpg', label 0"]
    assert len(report.examples["broken_box"]) == 5
    assert report.frames == 6
    stated = json.loads(json.dumps(report.as_dict()))
    assert stated["counts"]["broken_box"] == 6
    assert stated["other_categories"]["horse"] == 1
    assert list(Report().as_dict()["counts"]) == list(REASONS)


def test_crowd_by_category_and_by_attribute(write, frame, label):
    path = write(
        [
            frame(
                "a.jpg",
                label("trailer"),
                label("car", attributes={"crowd": True}),
                label("car", attributes={"ignored": True}),
                label("car", attributes={"crowd": False, "occluded": True}),
                label("car", attributes=None),
            )
        ]
    )
    report = Report()
    (one,) = read(path, report)
    assert [(box.category, box.crowd) for box in one.boxes] == [
        ("truck", True),
        ("car", True),
        ("car", True),
        ("car", False),
        ("car", False),
    ]
    assert (report.boxes, report.crowd) == (5, 3)


def test_many_strange_names_do_not_fill_the_memory(write, frame, label):
    report = Report()
    path = write([frame("a.jpg", *(label(f"thing {n}") for n in range(500)))])
    assert next(read(path, report)).boxes == ()
    assert report.counts["unknown_class"] == 500
    assert len(report.categories) == 100


def test_values_are_frozen(write, frame, label):
    (one,) = read(write([frame("a", label("car"))]))
    with pytest.raises(AttributeError):
        one.boxes[0].x1 = 3.0
    with pytest.raises(TypeError):
        one.attributes["weather"] = "clear"


# Refusals -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ([], "holds no pictures"),
        ({}, "holds no pictures"),
        ({"frames": []}, "holds no pictures"),
        ({"frames": [], "config": {}}, "holds no pictures"),
        ([{"name": "a"}, {}], "picture 1 has no name"),
        ([3], "picture 0 has no name"),
        ([None], "picture 0 has no name"),
        ({"frames": None}, "picture 0 has no name"),
        ([{"name": 7}], "picture 0 has no name"),
        ([{"name": ""}], "picture 0 has no name"),
        ([{"name": "../../etc/passwd"}], "must be a plain file name, not '../../etc/passwd'"),
        ([{"name": "a\nb.jpg"}], "must be a plain file name"),
        ([{"name": ".."}], "must be a plain file name"),
        ([{"name": "a\\b.jpg"}], "must be a plain file name"),
        ([{"name": "a.jpg", "attributes": [1]}], "'a.jpg': attributes must be a mapping, not [1]"),
        ([{"name": "a.jpg", "labels": {}}], "labels must be a list of mappings, not {}"),
        ([{"name": "a.jpg", "labels": "x"}], "labels must be a list of mappings, not 'x'"),
        ([{"name": "a.jpg", "labels": [[1]]}], "labels must be a list of mappings"),
        ([{"name": "a.jpg", "size": {"width": 0, "height": 5}}], "a size needs width and height"),
        ([{"name": "a.jpg", "size": [1, 2]}], "a size needs width and height"),
        (
            [{"name": "a.jpg", "labels": [{"category": "car", "box2d": BOX, "attributes": [1]}]}],
            "label 0: attributes must be a mapping",
        ),
        ({"name": "a", "frames": [{"objects": 3}]}, "objects must be a list of mappings"),
    ],
)
def test_malformed_documents(write, document, reason):
    assert reason in refusal(write(document))


def test_files_that_cannot_be_read(tmp_path):
    assert refusal(tmp_path / "no.json").endswith("No such file or directory")
    assert "holds no pictures" in refusal(tmp_path)
    with pytest.raises(LabelError, match="No such file"):
        fingerprint(tmp_path / "no.json")


def test_fingerprint(write, tmp_path):
    path = write([])
    assert fingerprint(path) == "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"
    assert fingerprint(tmp_path) == fingerprint(path)  # its only file
