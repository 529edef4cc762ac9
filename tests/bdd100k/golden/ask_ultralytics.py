"""Let Ultralytics score the predictions; run by ``make.py`` in an environment that has it."""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import ultralytics
from ultralytics.engine.validator import BaseValidator
from ultralytics.utils.metrics import ap_per_class, box_iou

NAMES = ("pedestrian", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle",
         "traffic light", "traffic sign")  # fmt: skip
folder = Path(sys.argv[1])


def load(name):
    return json.loads((folder / name).read_text(encoding="utf-8"))


found = {frame["name"]: frame["labels"] for frame in load("predictions.json")}


class Matching:
    """As much of a validator as its matching needs."""

    iouv = torch.linspace(0.5, 0.95, 10)


def rows(labels):
    corners = [[label["box2d"][key] for key in ("x1", "y1", "x2", "y2")] for label in labels]
    boxes = torch.tensor(corners, dtype=torch.float64).reshape(-1, 4)
    return boxes, torch.tensor([NAMES.index(label["category"]) for label in labels])


hits, scores, guesses, truths = [], [], [], []
for frame in sorted(
    json.loads((folder / "labels_2020.json").read_text()), key=lambda f: f["name"]
):
    real = [
        label
        for label in frame.get("labels", [])
        if label["category"] in NAMES and not label["attributes"]["crowd"]
    ]
    guessed = sorted(found.get(frame["name"], []), key=lambda label: -label["score"])
    boxes, classes = rows(real)
    candidates, guess = rows(guessed)
    truths.append(classes)
    scores += [label["score"] for label in guessed]
    guesses.append(guess)
    if len(real) and len(guessed):
        overlap = box_iou(boxes, candidates)
        hits.append(BaseValidator.match_predictions(Matching(), guess, classes, overlap))
    else:
        hits.append(torch.zeros((len(guessed), 10), dtype=torch.bool))
outcome = ap_per_class(
    torch.cat(hits).numpy(),
    np.array(scores),
    torch.cat([g.long() for g in guesses]).numpy(),
    torch.cat([t.long() for t in truths]).numpy(),
)
ap, classes = outcome[5], outcome[6]
answer = {
    "version": ultralytics.__version__,
    "AP": float(ap.mean()),
    "AP50": float(ap[:, 0].mean()),
    "AP75": float(ap[:, 5].mean()),
    "classes": {
        NAMES[k]: [float(row.mean()), float(row[0])] for k, row in zip(classes, ap, strict=True)
    },
}
(folder / "ultralytics.json").write_text(json.dumps(answer) + "\n", encoding="utf-8")
