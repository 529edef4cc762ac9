"""Predictions come back to the frames' pixels, and their scores are those of other tools."""

import json
import math
import sys
import warnings
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from drawn import make
from scores import by
from shared_data import bundle
from torch import nn

from bdd100k_tools import CLASSES, SIZE, read, write_yolo
from bdd100k_tools.evaluation import CONVENTIONS, evaluate
from bdd100k_tools.predictions import read_predictions
from testbed.errors import ConfigError
from testbed.learning.detection import network, scoring
from testbed.learning.detection.augment import plain
from testbed.learning.detection.pictures import load
from testbed.learning.detection.scoring import check_evaluator, details, predict, score, show
from testbed.learning.detection.training import DetectionRecipe, train
from testbed.learning.devices import CPU

if find_spec("ultralytics") is None:
    pytest.skip("detectors need the extra yolo", allow_module_level=True)

SIDE = 64


class Told(nn.Module):
    """A network that finds what it is told, picture by picture."""

    def __init__(self, rows):
        """`rows`: per picture (class, x1, y1, x2, y2, score) in letterbox pixels."""
        super().__init__()
        self.rows, self.seen = rows, 0

    def forward(self, images):
        most = max(8, *(len(each) for each in self.rows))
        answer = torch.zeros(len(images), 4 + len(CLASSES), most)
        for index in range(len(images)):
            for place, (category, x1, y1, x2, y2, sure) in enumerate(self.rows[self.seen]):
                answer[index, :4, place] = torch.tensor(
                    [(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1]
                )
                answer[index, 4 + category, place] = sure
            self.seen += 1
        return answer, {}


def perfect(pictures):
    """What is right, in pixels of the letterbox."""
    rows = []
    for frame, scale, (left, top) in zip(
        pictures.frames, pictures.scale, pictures.pad, strict=True
    ):
        rows.append(
            [
                (
                    box.index,
                    box.x1 * scale + left,
                    box.y1 * scale + top,
                    box.x2 * scale + left,
                    box.y2 * scale + top,
                    0.9,
                )
                for box in frame.boxes
                if not box.crowd
            ]
        )
    return rows


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Files of drawn pictures, wide enough for the letterbox as they are."""
    return make(tmp_path_factory.mktemp("drawn"), train=8, test=8, size=(SIDE, 36))


@pytest.fixture(scope="module")
def data(places, tmp_path_factory):
    return load(*places, (SIDE, SIDE), tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def model():
    return network.build("yolov8n", len(CLASSES), 0)


@pytest.fixture(scope="module")
def learned(model, data):
    """Weights that find something on the pictures learned from."""
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 0.3  # so that few steps are enough for the running statistics
    start = {name: value.clone() for name, value in model.state_dict().items()}
    recipe = DetectionRecipe(epochs=30, lr=1e-2, batch=8, momentum=0.9, optimiser="adamw")
    return train(model, start, data.train, np.arange(8), recipe, np.random.default_rng(0), CPU)


# Geometry -----------------------------------------------------------------------------


def test_a_perfect_detector_scores_one(data):
    found = predict(Told(perfect(data.test)), {}, data.test, CPU, batch=3)
    truth = [box for frame in data.test.frames for box in frame.boxes]
    assert len(found) == len(truth)
    owners = np.repeat(np.arange(8), [len(frame.boxes) for frame in data.test.frames])
    np.testing.assert_array_equal(found.image, owners)
    corners = np.array([(box.x1, box.y1, box.x2, box.y2) for box in truth])
    for image in range(8):  # within a picture all are as sure
        ours, theirs = found.boxes[found.image == image], corners[owners == image]
        np.testing.assert_allclose(np.sort(ours, axis=0), np.sort(theirs, axis=0), atol=1e-3)
    made = details(data.test.frames, found)
    assert by(made, "coco").ap == by(made, "coco").ap50 == pytest.approx(1.0)
    assert by(made, "bdd100k").ap == pytest.approx(1.0)
    # Ultralytics' envelope falls to 0 at recall 1, so the last of 100 steps counts half.
    assert by(made, "ultralytics").ap == pytest.approx(0.995)


def test_a_letterbox_of_any_shape(tmp_path):
    tall = load(*make(tmp_path, train=1, test=3, size=(320, 180)), (96, 64), tmp_path / "cache")
    found = predict(Told(perfect(tall.test)), {}, tall.test, CPU)
    assert by(details(tall.test.frames, found), "coco").ap == pytest.approx(1.0)


def test_boxes_are_cut_off_at_the_frame(data):
    one = data.test.frames[0]
    assert (one.width, one.height) == SIZE
    top = (SIDE - 36) / 2
    rows = [
        (2, -5.0, top - 7, 80.0, top + 50, 0.9),  # beyond the frame on all sides
        (3, 10.0, 0.0, 20.0, top - 1, 0.8),  # in the padding
        (4, 10.0, top, 20.0, top + 9, 0.7),
        (5, math.nan, top, 20.0, top + 9, 0.6),
    ]
    found = predict(Told([rows] * 8), {}, data.test, CPU)
    first = found.take(found.image == 0)
    assert first.category.tolist() == [2, 3, 4]
    np.testing.assert_allclose(
        first.boxes, [[0, 0, 1280, 720], [200, 0, 400, 0], [200, 0, 400, 180]], atol=1e-3
    )
    np.testing.assert_allclose(first.score, [0.9, 0.8, 0.7], atol=1e-6)


def test_overlapping_and_weak_boxes_are_suppressed(data):
    rows = [
        (2, 10, 20, 30, 40, 0.9),
        (2, 10, 20, 30, 39, 0.8),  # IoU 0.95
        (2, 10, 20, 30, 33.5, 0.7),  # IoU 0.675 of the first
        (3, 10, 20, 30, 40, 0.6),  # another class
        (2, 40, 20, 60, 40, 0.0009),
    ]
    found = predict(Told([rows] * 8), {}, data.test, CPU)
    assert found.score[found.image == 3] == pytest.approx([0.9, 0.7, 0.6])


def test_three_hundred_boxes_are_kept(data):
    rows = [
        (k, 2 * x, 2 * y, 2 * x + 2, 2 * y + 2, 0.1 + (20 * y + x) / 1000)
        for k in (2, 4)
        for x in range(20)
        for y in range(10)
    ]
    found = predict(Told([rows] * 8), {}, data.test, CPU)
    assert np.bincount(found.image).tolist() == [300] * 8
    assert found.score.min() == pytest.approx(0.15)  # the best of 2 x 200


def test_real_pictures(tmp_path):
    folder = bundle("bdd100k_640")
    real = load(
        folder / "images" / "train",
        folder / "bdd100k_labels_train.json",
        folder / "images" / "test",
        folder / "bdd100k_labels_test.json",
        (64, 96),
        tmp_path,
        limit=1,
        test_limit=6,
    )
    found = predict(Told(perfect(real.test)), {}, real.test, CPU)
    made = details(real.test.frames, found)
    boxes = sum(not box.crowd for frame in real.test.frames for box in frame.boxes)
    assert by(made, "coco").n == boxes
    # Of real cars that hide each other, suppression takes some.
    assert by(made, "coco").ap > 0.95


# Scores -------------------------------------------------------------------------------


def test_finding_nothing_scores_nothing(data):
    found = predict(Told([[]] * 8), {}, data.test, CPU)
    assert len(found) == 0
    made = details(data.test.frames, found)
    for each in made:
        expected = 0.0 if each.n else math.nan
        np.testing.assert_equal([each.ap, each.ap50], [expected, expected])


def test_details_are_complete(data, model, learned):
    made = score(model, learned, data.train, CPU).details
    for convention in CONVENTIONS:
        assert [
            each.category for each in made if each.convention == convention and each.group == "all"
        ] == ["all", *CLASSES]
    groups = [each for each in made if each.group != "all"]
    assert {(each.convention, each.category) for each in groups} == {("coco", "all")}
    assert [(each.group, each.pictures) for each in groups] == [
        ("weather=clear", 8),
        ("scene=city street", 8),
        ("timeofday=daytime", 4),
        ("timeofday=night", 4),
    ]
    boxes = sum(len(frame.boxes) for frame in data.train.frames)
    assert by(made, "coco").n == boxes
    assert sum(by(made, "coco", category=name).n for name in CLASSES) == boxes
    assert sum(each.n for each in groups if each.group.startswith("timeofday")) == boxes
    # All pictures are clear ones.
    assert by(made, "coco", "weather=clear").ap == by(made, "coco").ap > 0


def test_attributes_by_hand(data):
    """Everything by night is found, of the day nothing."""
    rows = [
        own if frame.attributes["timeofday"] == "night" else []
        for own, frame in zip(perfect(data.test), data.test.frames, strict=True)
    ]
    made = details(data.test.frames, predict(Told(rows), {}, data.test, CPU))
    assert by(made, "coco", "timeofday=night").ap == pytest.approx(1.0)
    assert by(made, "coco", "timeofday=daytime").ap50 == 0.0
    assert 0 < by(made, "coco").ap < 1


def test_the_score_is_cocos_and_the_loss_that_of_each_picture(data, model, learned):
    passes = []
    hook = model.model[0].register_forward_hook(lambda *_: passes.append(1))
    try:
        whole = score(model, learned, data.train, CPU)
    finally:
        hook.remove()
    assert len(passes) == 1  # boxes and loss of eight pictures
    coco = by(whole.details, "coco")
    assert (whole.map50_95, whole.map50) == (coco.ap, coco.ap50)
    assert math.isnan(whole.accuracy)
    found = predict(model, learned, data.train, CPU)
    assert whole.map50_95 == evaluate(data.train.frames, found).map50_95 > 0
    model.eval()
    alone = []
    for place in range(8):
        images, targets = plain(data.train, np.array([place]))
        with torch.no_grad():
            alone.append(float(network.loss(model, images.float() / 255, targets)))
    model.train()
    assert whole.loss == pytest.approx(np.mean(alone), rel=1e-5)


def test_a_picture_without_a_box_has_a_loss(data, model, learned):
    bare = replace(data.train, targets=tuple(np.empty((0, 5), np.float32) for _ in range(8)))
    assert 0 < score(model, learned, bare, CPU).loss < math.inf


def test_the_same_in_any_batches_and_again(data, model, learned):
    whole = predict(model, learned, data.train, CPU)
    again = predict(model, learned, data.train, CPU)
    for ours, theirs in zip(vars(whole).values(), vars(again).values(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    small = predict(model, learned, data.train, CPU, batch=3)
    sure = [each.take(each.score > 0.01) for each in (whole, small)]
    assert len(sure[0]) > 8
    np.testing.assert_array_equal(sure[0].image, sure[1].image)
    np.testing.assert_allclose(sure[0].boxes, sure[1].boxes, atol=0.1)
    np.testing.assert_allclose(sure[0].score, sure[1].score, atol=1e-4)


@pytest.mark.parametrize("training", [True, False])
def test_nothing_is_left_behind(data, model, learned, training):
    model.train(training)
    random = torch.get_rng_state()
    given = {name: value.clone() for name, value in learned.items()}
    score(model, learned, data.train, CPU)
    assert model.training is training
    assert all(module.training is training for module in model.modules())
    assert torch.equal(torch.get_rng_state(), random)
    assert all(value.device == CPU for value in model.state_dict().values())
    assert all(parameter.grad is None for parameter in model.parameters())
    for name, value in given.items():  # running statistics included
        assert torch.equal(learned[name], value)
        assert torch.equal(model.state_dict()[name], value)
    model.train()


def test_a_failure_leaves_nothing_behind(data, model, learned, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(network, "boxes_of", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        score(model, learned, data.train, CPU)
    assert model.training


def test_without_the_evaluator(data, monkeypatch):
    check_evaluator()
    monkeypatch.setitem(sys.modules, "faster_coco_eval", None)
    monkeypatch.setitem(sys.modules, "pycocotools.coco", None)
    with pytest.raises(ConfigError, match=r"pip install 'fsosa-testbed\[yolo\]'") as caught:
        check_evaluator()
    assert "\n" not in str(caught.value)


# Pictures to show ---------------------------------------------------------------------


def test_shown_pictures_are_always_the_same(data, model, learned, tmp_path):
    names = [frame["name"] for frame in show(model, learned, data.test, CPU)]
    assert len(set(names)) == scoring.SHOWN < len(data.test.frames)
    truth = {
        frame.name: rows for frame, rows in zip(data.test.frames, perfect(data.test), strict=True)
    }
    weak = (2, 0, 20, 9, 30, 0.19)
    frames = show(Told([[*truth[name], weak] for name in names]), {}, data.test, CPU)
    assert [frame["name"] for frame in frames] == names
    path = tmp_path / "found.json"
    path.write_text(json.dumps(frames))
    chosen = [frame for frame in data.test.frames if frame.name in names]
    assert [frame.name for frame in chosen] == names
    found, dropped = read_predictions(path, names)
    assert not dropped
    assert len(found) == sum(map(len, (truth[name] for name in names)))
    assert set(found.score) == {0.9}
    assert evaluate(chosen, found).map50_95 == pytest.approx(1.0)


def test_few_pictures_are_all_shown(data, model, learned):
    few = replace(
        data.train,
        frames=data.train.frames[:2],
        pixels=data.train.pixels[:2],
        targets=data.train.targets[:2],
        scale=data.train.scale[:2],
        pad=data.train.pad[:2],
    )
    assert [frame["name"] for frame in show(model, learned, few, CPU)] == [
        frame.name for frame in few.frames
    ]


# Ultralytics' own validation ----------------------------------------------------------


def validated(model, images, labels, folder):
    """Let the stock validator judge the model on picture files; return mAP50-95 and mAP50."""
    from ultralytics.models.yolo.detect import DetectionValidator

    (folder / "images").symlink_to(images)
    (folder / "labels").mkdir()
    write_yolo(read(labels), folder / "labels")
    settings = {"imgsz": SIDE, "batch": 8, "plots": False, "rect": False, "workers": 0}
    validator = DetectionValidator(save_dir=folder / "out", args={**settings, "verbose": False})
    validator.data = {"val": str(folder / "images"), "names": dict(enumerate(CLASSES)), "nc": 10,
                      "channels": 3}  # fmt: skip
    validator.device, validator.stride, validator.training = CPU, 32, True
    validator.dataloader = validator.get_dataloader(validator.data["val"], 8)
    model.names = validator.data["names"]
    validator.init_metrics(model)
    model.eval()
    with torch.no_grad():
        for batch in validator.dataloader:
            batch = validator.preprocess(batch)
            validator.update_metrics(validator.postprocess(model(batch["img"])), batch)
    model.train()
    stats = validator.get_stats()
    return stats["metrics/mAP50-95(B)"], stats["metrics/mAP50(B)"]


def test_the_stock_validator_says_the_same(places, data, model, learned, tmp_path, monkeypatch):
    """It reads the files with its own decoder and letterbox, and does not cut boxes off."""
    with monkeypatch.context() as uncut:
        uncut.setattr(np, "clip", lambda values, *_: values)
        ours = by(score(model, learned, data.train, CPU).details, "ultralytics")
    model.load_state_dict(learned)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = validated(model, places[0], places[1], tmp_path)
    assert theirs[0] > 0.02
    assert [ours.ap, ours.ap50] == pytest.approx(theirs, abs=1e-6)
