"""Make the golden files of this folder: synthetic labels, and what the reference tools say.

The official toolkit (bdd100k 1.0.1, scalabel 0.3.1) needs pydantic 1, so it is installed
into an environment of its own, in a temporary folder:

    python tests/bdd100k/golden/make.py

writes ``labels_2018.json``, ``labels_2020.json``, ``predictions.json`` and
``official.json``.  Where an environment with the toolkit exists, ``--official PYTHON``
names its interpreter.  ``--ultralytics PYTHON`` names that of an environment with
Ultralytics 8.4, which writes ``ultralytics.json``; it is used as a measuring device only.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TOOLKIT = ("bdd100k==1.0.1", "scalabel==0.3.1", "pydantic<2")
OLD = {"pedestrian": "person", "motorcycle": "motor", "bicycle": "bike"}
# Train is left out: a class without a box must be left out of the means.
COMMON = ("pedestrian", "rider", "car", "truck", "bus", "motorcycle", "bicycle",
          "traffic light", "traffic sign")  # fmt: skip
IGNORED = ("other person", "other vehicle", "trailer")
WIDTH, HEIGHT, PICTURES = 1280, 720, 24

Frames = list[dict[str, Any]]


def box(draw: random.Random) -> dict[str, float]:
    width, height = draw.choice((12, 30, 80, 250)), draw.choice((10, 25, 70, 200))
    width, height = width * draw.uniform(0.7, 1.3), height * draw.uniform(0.7, 1.3)
    x, y = draw.uniform(0, WIDTH - 1 - width), draw.uniform(0, HEIGHT - 1 - height)
    corners = {"x1": x, "y1": y, "x2": x + width, "y2": y + height}
    return {key: round(value, 3) for key, value in corners.items()}


def moved(corners: dict[str, float], draw: random.Random) -> dict[str, float]:
    """Return a box near another one, still with an area and inside the picture."""
    size = min(corners["x2"] - corners["x1"], corners["y2"] - corners["y1"])
    shifts = {key: draw.gauss(0, 0.08 * size) for key in corners}
    near = {key: round(value + shifts[key], 3) for key, value in corners.items()}
    near["x2"] = max(near["x2"], near["x1"] + 1)
    near["y2"] = max(near["y2"], near["y1"] + 1)
    return near


def synthetic(seed: int = 7) -> tuple[Frames, Frames]:
    """Return labels of 2020 and predictions for them."""
    draw = random.Random(seed)
    labels, predictions = [], []
    names = [f"{draw.getrandbits(32):08x}-{draw.getrandbits(32):08x}.jpg" for _ in range(PICTURES)]
    for number, name in enumerate(names):
        attributes = {
            "weather": draw.choice(("clear", "rainy", "overcast")),
            "scene": draw.choice(("city street", "highway")),
            "timeofday": draw.choice(("daytime", "night", "dawn/dusk")),
        }
        truth, found = [], []
        for index in range(0 if number == 5 else draw.randint(3, 14)):
            category = draw.choice(COMMON + IGNORED)
            one = {
                "id": str(index),
                "category": category,
                "attributes": {"occluded": draw.random() < 0.3, "crowd": draw.random() < 0.05},
                "box2d": box(draw),
            }
            truth.append(one)
            for _ in range(draw.choice((0, 1, 1, 1, 2))):
                guess = category if category in COMMON and draw.random() < 0.85 else "car"
                found.append(prediction(guess, moved(one["box2d"], draw), draw))
        # One picture has more predictions of a class than are counted.
        for _ in range(120 if number == 9 else draw.randint(0, 8)):
            guess = "car" if number == 9 else draw.choice((*COMMON, "train"))
            found.append(prediction(guess, box(draw), draw))
        labels.append({"name": name, "attributes": attributes, "timestamp": 10000})
        if number != 5:  # a picture of 2020 without objects has no list of labels at all
            labels[-1]["labels"] = truth
        if number != 3:  # and a detector may be silent about a picture
            predictions.append({"name": name, "labels": found})
    return labels, predictions[::-1]


def prediction(category: str, corners: dict[str, float], draw: random.Random) -> dict[str, Any]:
    score = round(draw.betavariate(2, 2), 6)
    return {"id": "0", "category": category, "score": score, "box2d": corners}


def as_2018(frames: Frames) -> Frames:
    """Return the same labels under the names of 2018."""
    old = json.loads(json.dumps(frames))
    for frame in old:
        for label in frame.get("labels", []):
            label["category"] = OLD.get(label["category"], label["category"])
    return old


def write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, separators=(",", ":")) + "\n", encoding="utf-8")


def environment(folder: Path) -> Path:
    """Install the official toolkit into a new environment; return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *TOOLKIT], check=True)
    return python


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--official", type=Path, metavar="PYTHON")
    parser.add_argument("--ultralytics", type=Path, metavar="PYTHON")
    chosen = parser.parse_args()
    labels, predictions = synthetic()
    write(HERE / "labels_2020.json", labels)
    write(HERE / "labels_2018.json", as_2018(labels))
    write(HERE / "predictions.json", predictions)
    if chosen.ultralytics:
        subprocess.run([chosen.ultralytics, HERE / "ask_ultralytics.py", HERE], check=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        python = chosen.official or environment(Path(folder))
        subprocess.run([python, HERE / "ask_official.py", HERE], check=True)


if __name__ == "__main__":
    main()
