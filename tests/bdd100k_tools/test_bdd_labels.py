"""The label reader against files written by hand and, where present, the real ones."""

import ast
import json
import os
from collections import Counter
from pathlib import Path

import pytest

import bdd100k_tools
from bdd100k_tools import ALIASES, CLASSES, IGNORED, Box, Dropped, LabelError, read_labels, resolve

SHARED = Path(os.environ.get("TESTBED_DATA", Path(__file__).parents[3] / "shared" / "data"))
REAL = SHARED / "bdd100k_640"

BOX = {"x1": 10, "y1": 20.5, "x2": 30, "y2": 40}


def label(category: str, **more: object) -> dict[str, object]:
    return {"id": 0, "category": category, "box2d": BOX} | more


def frame(name: str = "a.jpg", *labels: dict[str, object], **more: object) -> dict[str, object]:
    return {"name": name, "labels": list(labels)} | more


def write(path: Path, document: object) -> Path:
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def refusal(path: Path) -> str:
    with pytest.raises(LabelError) as caught:
        read_labels(path)
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


# Reading ------------------------------------------------------------------------------


def test_names_of_both_generations_are_the_same_boxes(tmp_path):
    old = [frame("a.jpg", label("person"), label("motor"), label("bike"))]
    new = [frame("a.jpg", label("pedestrian"), label("motorcycle"), label("bicycle"))]
    first = read_labels(write(tmp_path / "2018.json", old))
    assert first == read_labels(write(tmp_path / "2020.json", new))
    assert first.pictures[0].boxes[0] == Box("pedestrian", 10.0, 20.5, 30.0, 40.0, False)
    assert first.dropped == Dropped()


def test_the_mapping_form(tmp_path):
    frames = [frame("a.jpg", label("car"))]
    plain = read_labels(write(tmp_path / "list.json", frames))
    mapping = {"frames": frames, "groups": [], "config": {}}
    assert read_labels(write(tmp_path / "map.json", mapping)) == plain


def test_attributes_and_pictures_without_any(tmp_path):
    attributes = {"weather": "rainy", "scene": "tunnel", "timeofday": "night"}
    frames = [
        frame("a.jpg", attributes=attributes),
        {"name": "b.jpg"},
        {"name": "c.jpg", "labels": None, "attributes": None},
    ]
    pictures = read_labels(write(tmp_path / "l.json", frames)).pictures
    assert [picture.name for picture in pictures] == ["a.jpg", "b.jpg", "c.jpg"]
    assert dict(pictures[0].attributes) == attributes
    assert [dict(picture.attributes) for picture in pictures[1:]] == [{}, {}]
    assert all(picture.boxes == () for picture in pictures)


def test_what_is_dropped_is_counted_by_reason(tmp_path):
    flat, point = BOX | {"y2": 20.5}, BOX | {"x2": 9}
    frames = [
        frame("a.jpg", label("lane", box2d=None), {"category": "drivable area", "poly2d": []}),
        frame("b.jpg", label("horse"), label("car"), label("car", box2d=flat)),
        frame("c.jpg", label("bus", box2d=point), {"category": "car"}, {"box2d": BOX}),
    ]
    labels = read_labels(write(tmp_path / "l.json", frames))
    assert labels.dropped == Dropped(no_box=3, other_class=2, empty_box=2)
    assert [len(picture.boxes) for picture in labels.pictures] == [0, 1, 0]


def test_crowd_by_category_and_by_attribute(tmp_path):
    frames = [
        frame(
            "a.jpg",
            label("trailer"),
            label("car", attributes={"crowd": True}),
            label("car", attributes={"crowd": False, "occluded": True}),
            label("car", attributes=None),
        )
    ]
    (picture,) = read_labels(write(tmp_path / "l.json", frames)).pictures
    assert [(box.category, box.crowd) for box in picture.boxes] == [
        ("truck", True),
        ("car", True),
        ("car", False),
        ("car", False),
    ]


def test_values_are_frozen(tmp_path):
    (picture,) = read_labels(write(tmp_path / "l.json", [frame("a", label("car"))])).pictures
    with pytest.raises(AttributeError):
        picture.boxes[0].x1 = 3.0
    with pytest.raises(TypeError):
        picture.attributes["weather"] = "clear"


# Refusals -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"name": "a"}, "expected a list of pictures"),
        (7, "expected a list of pictures"),
        ([frame(), {}], "picture 1 has no name"),
        ([3], "picture 0 has no name"),
        ([frame(attributes=[1])], "picture 'a.jpg': attributes must be a mapping, not [1]"),
        ([{"name": "a.jpg", "labels": {}, "x": 1}], None),
        ([{"name": "a.jpg", "labels": "x"}], "labels must be a list of mappings, not 'x'"),
        ([frame("a.jpg", [1])], "labels must be a list of mappings"),
        ([frame("a.jpg", label("car", box2d={"x1": 1}))], "picture 'a.jpg', label 0: box2d needs"),
        ([frame("a.jpg", label("car", box2d=[1, 2, 3, 4]))], "label 0: box2d needs numbers"),
        ([frame("a.jpg", label("car", box2d=BOX | {"x2": "far"}))], "box2d needs numbers"),
        ([frame("a.jpg", label("car", box2d=BOX | {"x2": float("nan")}))], "box2d is not finite"),
        ([frame("a.jpg", label("car", attributes=[1]))], "label 0: attributes must be"),
    ],
)
def test_malformed_documents(tmp_path, document, reason):
    path = write(tmp_path / "l.json", document)
    if reason is None:  # an empty mapping holds no labels
        assert read_labels(path).pictures[0].boxes == ()
    else:
        assert reason in refusal(path)


def test_files_that_cannot_be_read(tmp_path):
    assert refusal(tmp_path / "no.json").endswith("No such file or directory")
    assert refusal(tmp_path).endswith("Is a directory")
    for name, content, reason in (
        ("cut", b'[\n{"name": "a', ", line 2: not valid JSON: Unterminated string"),
        ("bytes", b"\xff\xfe\x00", ": not a JSON label file"),
        ("deep", b"[" * 100_000, ": not a JSON label file"),
    ):
        (tmp_path / name).write_bytes(content)
        assert refusal(tmp_path / name).startswith(f"{tmp_path / name}{reason}")


def test_the_package_does_not_know_the_testbed():
    for file in Path(bdd100k_tools.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "testbed" for name in names), file


# The real files -----------------------------------------------------------------------


@pytest.mark.skipif(not REAL.is_dir(), reason="no bdd100k_640 in TESTBED_DATA")
def test_the_real_labels():
    parts = [read_labels(REAL / f"bdd100k_labels_{part}.json") for part in ("train", "test")]
    assert [len(part.pictures) for part in parts] == [1100, 261]
    boxes = [box for part in parts for picture in part.pictures for box in picture.boxes]
    table = Counter(box.category for box in boxes)
    assert (table["train"], table["motorcycle"], table["rider"]) == (2, 53, 91)
    assert set(table) == set(CLASSES)
    assert len(boxes) == 20075 + 4784
    assert all(part.dropped == Dropped() for part in parts)
    assert all(max(abs(b.x2 - 640), abs(b.x1 - 640)) < 640.01 for b in boxes)
