"""Scores of the golden predictions are those that other tools gave them."""

import json
import math
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from scores import by

from bdd100k_tools import CLASSES, read
from bdd100k_tools.predictions import Detections, read_predictions
from testbed.learning.detection.scoring import details

if find_spec("ultralytics") is None:
    pytest.skip("detectors need the extra yolo", allow_module_level=True)

GOLDEN = Path(__file__).parents[1] / "bdd100k" / "golden"


def golden():
    frames = list(read(GOLDEN / "labels_2020.json"))
    found, _ = read_predictions(GOLDEN / "predictions.json", [frame.name for frame in frames])
    return frames, found


def official(value):
    return math.nan if value is None else value / 100


def test_pycocotools_says_the_same():
    """The official toolkit's numbers, which pycocotools 2.0.11 computed, to 1e-6."""
    theirs = json.loads((GOLDEN / "official.json").read_text())["evaluation"]
    frames, found = golden()
    made = details(frames, found)
    # Boxes of one pixel more are to `coco` what boxes are to the official toolkit.
    wider = [
        replace(frame, boxes=tuple(replace(b, x2=b.x2 + 1, y2=b.y2 + 1) for b in frame.boxes))
        for frame in frames
    ]
    larger = Detections(
        found.image, found.category, found.boxes + np.eye(4)[2:].sum(axis=0), found.score
    )
    for convention, scores in (("bdd100k", made), ("coco", details(wider, larger))):
        for name in ("all", *CLASSES):
            each = by(scores, convention, category=name)
            key = "OVERALL" if name == "all" else name
            expected = official(theirs["AP"][key]), official(theirs["AP50"][key])
            np.testing.assert_allclose([each.ap, each.ap50], expected, atol=1e-6, rtol=0)
    # The convention is no detail.
    assert by(made, "bdd100k").ap - by(made, "coco").ap > 0.005


def test_ultralytics_numbers_on_golden_predictions():
    theirs = json.loads((GOLDEN / "ultralytics.json").read_text())
    made = details(*golden())
    each = by(made, "ultralytics")
    assert [each.ap, each.ap50] == pytest.approx([theirs["AP"], theirs["AP50"]], abs=1e-9)
