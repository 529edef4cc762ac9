"""mAP against the official toolkit, Ultralytics, a plain reference, and by hand."""

import json
import math
import sys
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bdd100k_tools import CLASSES, Box, EvaluationError, Frame, PredictionError, read
from bdd100k_tools.evaluation import CONVENTIONS, STATEMENTS, evaluate, evaluate_by
from bdd100k_tools.interpolated import iou
from bdd100k_tools.predictions import Detections, read_predictions

pytest.importorskip("faster_coco_eval", reason="evaluation needs faster-coco-eval")


def picture(name, *boxes, **attributes):
    made = tuple(Box(CLASSES[k], *map(float, corners), crowd) for k, corners, crowd in boxes)
    return Frame(name, MappingProxyType(attributes), made)


def detections(*rows):
    table = np.array(rows, dtype=float).reshape(-1, 7)
    return Detections(table[:, 0].astype(int), table[:, 1].astype(int), table[:, 2:6], table[:, 6])


# By hand ------------------------------------------------------------------------------


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_perfect_and_silent(convention):
    frames = [picture("a.jpg", (2, (10, 10, 60, 60), False), (4, (0, 0, 9, 9), False))]
    perfect = detections((0, 2, 10, 10, 60, 60, 0.9), (0, 4, 0, 0, 9, 9, 0.4))
    result = evaluate(frames, perfect, convention)
    # Ultralytics' envelope falls to 0 at recall 1, so the last of 100 steps counts half.
    assert result.map50_95 == pytest.approx(0.995 if convention == "ultralytics" else 1.0)
    assert result.numbers["AP75"] == result.map50
    assert (result.pictures, result.boxes, result.crowd, result.detections) == (1, 2, 0, 2)
    assert [score.n for score in result.classes] == [0, 0, 1, 0, 1, 0, 0, 0, 0, 0]
    assert math.isnan(result.classes[0].ap)
    silent = evaluate(frames, detections(), convention)
    assert silent.map50_95 == silent.map50 == 0.0
    assert silent.classes[2].ap == 0.0
    assert math.isnan(silent.classes[0].ap50)


def test_one_in_two_by_hand():
    """Two cars, one found with IoU 0.6, one false alarm of higher score."""
    frames = [picture("a.jpg", (2, (0, 0, 10, 10), False), (2, (50, 50, 60, 60), False))]
    found = detections((0, 2, 100, 100, 110, 110, 0.9), (0, 2, 0, 0, 10, 6, 0.8))
    result = evaluate(frames, found, "coco")
    # Precision is 1/2 up to recall 1/2: 51 of 101 recall points; IoU 0.5, 0.55, 0.6 of ten.
    ap50 = 51 / 101 / 2
    assert result.map50 == pytest.approx(ap50)
    assert result.map50_95 == pytest.approx(ap50 * 3 / 10)
    assert result.numbers["AR100"] == pytest.approx(0.5 * 3 / 10)
    # The official toolkit's boxes are 11 and 11 x 7 large: IoU 7/11 is 0.636.
    assert evaluate(frames, found, "bdd100k").map50_95 == pytest.approx(ap50 * 3 / 10)
    yolo = evaluate(frames, found, "ultralytics")
    # Of 100 steps, 49 at 1/2, then one that falls from 1/2 at recall 0.49 to 0 at 0.5.
    assert yolo.map50 == pytest.approx((49 * 0.5 + 0.25) / 100)


def test_the_extra_pixel_moves_a_small_box_over_a_threshold():
    frames = [picture("a.jpg", (9, (0, 0, 4, 4), False))]
    found = detections((0, 9, 0, 0, 4, 1.9, 0.5))
    assert evaluate(frames, found, "coco").map50 == 0.0  # IoU 0.475
    assert evaluate(frames, found, "bdd100k").map50 == 1.0  # 2.9 of 5 is 0.58


def test_crowd_neither_rewards_nor_punishes():
    crowd = (2, (0, 0, 100, 100), True)
    car = (2, (200, 200, 300, 300), False)
    frames = [picture("a.jpg", crowd, car)]
    found = detections((0, 2, 200, 200, 300, 300, 0.5), (0, 2, 10, 10, 50, 50, 0.9))
    for convention in ("coco", "bdd100k"):
        result = evaluate(frames, found, convention)
        assert result.map50_95 == pytest.approx(1.0)
        assert (result.boxes, result.crowd, result.classes[2].n) == (1, 1, 1)
    assert evaluate(frames, found, "ultralytics").map50 < 0.6  # there it is a false alarm
    only = [picture("a.jpg", crowd)]
    for convention in CONVENTIONS:
        assert math.isnan(evaluate(only, found, convention).map50_95)
        assert math.isnan(evaluate(only, detections(), convention).map50_95)


def test_only_a_hundred_detections_of_a_class_count():
    frames = [picture("a.jpg", (2, (0, 0, 10, 10), False))]
    noise = [(0, 2, 20, 20, 30, 30, 0.9 - k / 1000) for k in range(100)]
    found = detections(*noise, (0, 2, 0, 0, 10, 10, 0.1))
    assert evaluate(frames, found, "coco").map50 == 0.0
    assert evaluate(frames, found, "ultralytics").map50 > 0.0
    fewer = found.take(np.arange(1, 101))
    assert evaluate(frames, fewer, "coco").map50 == pytest.approx(1 / 100)


def test_by_attribute():
    frames = [
        picture("a.jpg", (2, (0, 0, 10, 10), False), timeofday="night"),
        picture("b.jpg", (2, (0, 0, 10, 10), False), timeofday="daytime"),
        picture("c.jpg", (4, (0, 0, 10, 10), False)),
    ]
    found = detections((1, 2, 0, 0, 10, 10, 0.9), (0, 4, 0, 0, 10, 10, 0.8))
    results = evaluate_by(frames, found, "timeofday")
    assert {value: result.map50 for value, result in results.items()} == {
        "daytime": pytest.approx(1.0), "night": 0.0, "undefined": 0.0,
    }  # fmt: skip
    assert [result.detections for result in results.values()] == [1, 1, 0]
    assert [result.pictures for result in results.values()] == [1, 1, 1]


def test_a_picture_may_be_listed_anywhere():
    frames = [picture(f"{k}.jpg", (2, (0, 0, 10 + k, 10), False)) for k in range(5)]
    found = detections(*((k, 2, 0, 0, 10, 10 - k, 0.5) for k in range(5)))
    for convention in CONVENTIONS:
        forward = evaluate(frames, found, convention)
        back = detections(*((4 - k, 2, 0, 0, 10, 10 - k, 0.5) for k in range(5)))
        assert evaluate(frames[::-1], back, convention).as_dict() == forward.as_dict()


def test_iou():
    first = np.array([[0, 0, 10, 10], [20, 20, 30, 30.0]])
    second = np.array([[5, 0, 15, 10], [0, 0, 10, 10.0]])
    np.testing.assert_allclose(iou(first, second), [[1 / 3, 1], [0, 0]])


def test_statements_and_json():
    frames = [picture("a.jpg", (2, (0, 0, 10, 10), False))]
    for convention in CONVENTIONS:
        stated = evaluate(frames, detections(), convention).as_dict()
        assert stated["statement"] == STATEMENTS[convention]
        assert stated["classes"]["train"] == {"n": 0, "ap": None, "ap50": None}
        assert json.loads(json.dumps(stated, allow_nan=False)) == stated


def test_refusals(monkeypatch):
    with pytest.raises(EvaluationError, match="no picture"):
        evaluate([], detections())
    monkeypatch.setitem(sys.modules, "faster_coco_eval", None)
    monkeypatch.setitem(sys.modules, "pycocotools.coco", None)
    frames = [picture("a.jpg", (2, (0, 0, 10, 10), False))]
    with pytest.raises(EvaluationError, match="pip install faster-coco-eval"):
        evaluate(frames, detections())
    assert evaluate(frames, detections(), "ultralytics").map50 == 0.0


# A plain reference --------------------------------------------------------------------


def reference(frames, found, extra):
    """COCO's AP, told step by step; returns AP per class, or NaN."""
    thresholds = np.linspace(0.5, 0.95, 10)
    scores = []
    for k in range(len(CLASSES)):
        total = sum(b.index == k and not b.crowd for f in frames for b in f.boxes)
        if not total:
            scores.append(math.nan)
            continue
        per_threshold = []
        for threshold in thresholds:
            marked = []  # (score, right) of every detection that counts
            for place, frame in enumerate(frames):
                truth = sorted((b for b in frame.boxes if b.index == k), key=lambda b: b.crowd)
                rows = [
                    (score, box)
                    for image, category, box, score in zip(
                        found.image, found.category, found.boxes, found.score, strict=True
                    )
                    if image == place and category == k
                ]
                rows = sorted(rows, key=lambda row: -row[0])[:100]
                taken = set()
                for score, box in rows:
                    best, chosen = min(threshold, 1 - 1e-10), None
                    for number, real in enumerate(truth):
                        if number in taken and not real.crowd:
                            continue
                        if chosen is not None and not truth[chosen].crowd and real.crowd:
                            break
                        value = overlap(box, real, extra)
                        if value >= best:
                            best, chosen = value, number
                    if chosen is None:
                        marked.append((score, False))
                    elif not truth[chosen].crowd:
                        taken.add(chosen)
                        marked.append((score, True))
            per_threshold.append(average(sorted(marked, key=lambda m: -m[0]), total))
        scores.append(float(np.mean(per_threshold)))
    return scores


def overlap(box, real, extra):
    x1, y1, x2, y2 = box
    width = min(x2, real.x2) - max(x1, real.x1) + extra
    height = min(y2, real.y2) - max(y1, real.y1) + extra
    shared = max(width, 0) * max(height, 0)
    own = (x2 - x1 + extra) * (y2 - y1 + extra)
    theirs = (real.x2 - real.x1 + extra) * (real.y2 - real.y1 + extra)
    return shared / (own if real.crowd else own + theirs - shared)


def average(marked, total):
    """Precision at 101 recalls, each the best of this recall or more."""
    right, curve = 0, []
    for rank, (_, good) in enumerate(marked, 1):
        right += good
        curve.append((right / total, right / rank))
    points = np.linspace(0, 1, 101)
    return float(np.mean([max((p for r, p in curve if r >= x), default=0.0) for x in points]))


coordinates = st.integers(0, 40)
corners = st.tuples(coordinates, coordinates, st.integers(1, 30), st.integers(1, 30)).map(
    lambda c: (c[0], c[1], c[0] + c[2], c[1] + c[3])
)
truths = st.lists(
    st.tuples(st.sampled_from((0, 2)), corners, st.sampled_from((False, False, True))),
    max_size=5,
)
guesses = st.tuples(st.sampled_from((0, 2, 5)), corners)


@settings(max_examples=60, deadline=None)
@given(st.lists(truths, min_size=1, max_size=3), st.lists(st.lists(guesses, max_size=6)))
def test_agrees_with_the_reference(labels, found):
    frames = [picture(f"{k}.jpg", *boxes) for k, boxes in enumerate(labels)]
    rows = [
        (image, category, *box)
        for image, boxes in enumerate(found[: len(frames)])
        for category, box in boxes
    ]
    # Scores all differ: ties are broken in ways that are nobody's business.
    table = detections(*((*row, (k * 37 % 101 + 1) / 103) for k, row in enumerate(rows)))
    for convention, extra in (("coco", 0.0), ("bdd100k", 1.0)):
        result = evaluate(frames, table, convention)
        expected = reference(frames, table, extra)
        np.testing.assert_allclose([s.ap for s in result.classes], expected, atol=1e-6)


# Golden numbers -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def synthetic(golden):
    frames = list(read(golden / "labels_2020.json"))
    found, dropped = read_predictions(golden / "predictions.json", [f.name for f in frames])
    assert not dropped
    return frames, found


def test_the_official_toolkit_says_the_same(golden, synthetic):
    official = json.loads((golden / "official.json").read_text())["evaluation"]
    result = evaluate(*synthetic, "bdd100k")
    assert len(result.numbers) == 12
    for name, value in result.numbers.items():
        assert 100 * value == pytest.approx(official[name]["OVERALL"], abs=1e-6), name
    for score in result.classes:
        if score.n:
            assert 100 * score.ap == pytest.approx(official["AP"][score.category], abs=1e-6)
            assert 100 * score.ap50 == pytest.approx(official["AP50"][score.category], abs=1e-6)
        else:
            assert score.category == "train"
            assert official["AP"]["train"] is None
    # The convention is no detail.
    assert 100 * evaluate(*synthetic, "coco").map50_95 < official["AP"]["OVERALL"] - 0.5


def test_both_generations_score_the_same(golden, synthetic):
    old = list(read(golden / "labels_2018.json"))
    assert evaluate(old, synthetic[1]).as_dict() == evaluate(*synthetic).as_dict()


def test_ultralytics_says_the_same(golden, synthetic):
    theirs = json.loads((golden / "ultralytics.json").read_text())
    result = evaluate(*synthetic, "ultralytics")
    for name in ("AP", "AP50", "AP75"):
        assert result.numbers[name] == pytest.approx(theirs[name], abs=1e-9)
    for score in result.classes:
        if score.n:
            assert [score.ap, score.ap50] == pytest.approx(theirs["classes"][score.category])
    assert result.numbers.keys() == {"AP", "AP50", "AP75"}


def test_the_reference_agrees_on_the_golden_files(synthetic):
    for convention, extra in (("coco", 0.0), ("bdd100k", 1.0)):
        ours = [score.ap for score in evaluate(*synthetic, convention).classes]
        np.testing.assert_allclose(ours, reference(*synthetic, extra), atol=1e-6)


def test_pycocotools_says_the_same(synthetic, monkeypatch):
    fast = evaluate(*synthetic)
    assert fast.engine.startswith("faster-coco-eval")
    monkeypatch.setitem(sys.modules, "faster_coco_eval", None)
    slow = evaluate(*synthetic)
    assert slow.engine.startswith("pycocotools")
    for name, value in fast.numbers.items():
        assert slow.numbers[name] == pytest.approx(value, abs=1e-6), name


# Reading predictions ------------------------------------------------------------------

NAMES = ("b.jpg", "a.jpg")
BOX = {"x1": 1, "y1": 2, "x2": 3, "y2": 5}


def test_scalabel_and_coco_files_are_the_same_detections(write):
    scalabel = [
        {
            "name": "a.jpg",
            "labels": [{"category": "motor", "score": 0.5, "box2d": BOX}],
        },
        {"name": "b.jpg", "labels": None},
    ]
    expected = ([1], [6], [[1, 2, 3, 5]], [0.5])
    for document in (scalabel, {"frames": scalabel, "config": None}):
        found, dropped = read_predictions(write(document), NAMES)
        assert not dropped
        for ours, value in zip(
            (found.image, found.category, found.boxes, found.score), expected, strict=True
        ):
            np.testing.assert_array_equal(ours, value)
    for image in (2, "a", "a.jpg"):  # the second picture of the labels, or by name
        row = {"image_id": image, "category_id": 7, "bbox": [1, 2, 2, 3], "score": 0.5}
        other, dropped = read_predictions(write([row]), NAMES)
        assert not dropped
        np.testing.assert_array_equal(other.boxes, found.boxes)
        assert (other.image[0], other.category[0]) == (1, 6)


def test_predictions_on_smaller_pictures_are_scaled(write):
    row = {"image_id": 1, "category_id": 1, "bbox": [1, 2, 2, 3], "score": 1}
    found, _ = read_predictions(write([row]), NAMES, (2.0, 3.0))
    assert found.boxes.tolist() == [[2, 6, 6, 15]]


def test_what_is_left_out_is_counted(write):
    good = {"category": "car", "score": 0.5, "box2d": BOX}
    labels = [
        good | {"category": "lane"},
        good | {"category": "trailer"},
        good | {"box2d": BOX | {"x2": 0}},
        good | {"box2d": BOX | {"x2": float("nan")}},
        good | {"box2d": None},
        good,
    ]
    rows = [
        {"image_id": 3, "category_id": 1, "bbox": [1, 2, 2, 3], "score": 1},
        {"image_id": 0, "category_id": 1, "bbox": [1, 2, 2, 3], "score": 1},
        {"image_id": 1, "category_id": 11, "bbox": [1, 2, 2, 3], "score": 1},
        {"image_id": 1, "category_id": 1, "bbox": [1, 2, 2], "score": 1},
        {"image_id": 1, "category_id": 1, "bbox": [1, 2, 0, 3], "score": 1},
    ]
    document = [{"name": "a.jpg", "labels": labels}, {"name": "z.jpg", "labels": [good]}, *rows]
    found, dropped = read_predictions(write(document), NAMES)
    assert len(found) == 1
    assert dropped == {"unknown_class": 3, "broken_box": 5, "unknown_picture": 3}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([3], "item 0 must be a mapping, not 3"),
        ([{"name": "a.jpg", "labels": 3}], "labels must be a list of mappings"),
        ([{"name": "a.jpg", "labels": [{"category": "car"}]}], "score in .0, 1., not None"),
        ([{"image_id": 1, "bbox": [1, 2, 3, 4], "score": 2}], "score in .0, 1., not 2"),
        ([{"image_id": 1, "bbox": [1, 2, 3, 4], "score": float("nan")}], "score in"),
        ([{"image_id": 1, "bbox": [1, 2, 3, 4], "score": True}], "score in"),
        (7, "not valid JSON: expected {, found 7"),
    ],
)
def test_malformed_predictions(write, document, message):
    path = write(document)
    with pytest.raises(PredictionError, match=message) as caught:
        read_predictions(path, NAMES)
    assert str(path) in str(caught.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(PredictionError, match="No such file"):
        read_predictions(tmp_path / "no.json", NAMES)


def test_the_real_labels_score_perfectly_as_predictions(real, tmp_path):
    path = real / "bdd100k_labels_test.json"
    document = json.loads(path.read_text())
    for one in document:
        for label in one["labels"]:
            label["score"] = 0.9
    (tmp_path / "predictions.json").write_text(json.dumps(document))
    frames = list(read(path))
    found, dropped = read_predictions(tmp_path / "predictions.json", [f.name for f in frames])
    assert not dropped
    assert evaluate(frames, found).map50 == pytest.approx(1.0)
