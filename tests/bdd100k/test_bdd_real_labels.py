"""The label reader against the real files, where they are."""

import json
from collections import Counter

import numpy as np

from bdd100k_tools import CLASSES, Report, read


def test_the_real_labels(real):
    report = Report()
    parts = [list(read(real / f"bdd100k_labels_{p}.json", report)) for p in ("train", "test")]
    assert [len(part) for part in parts] == [1100, 261]
    boxes = [box for part in parts for one in part for box in one.boxes]
    table = Counter(box.category for box in boxes)
    assert (table["train"], table["motorcycle"], table["rider"]) == (2, 53, 91)
    assert set(table) == set(CLASSES)
    assert len(boxes) == report.boxes == 20075 + 4784
    # The annotation tool rounded: some boxes end at 1280.001.
    assert report.counts == Counter(clipped=98 + 22)
    assert report.generation == "2018"
    assert all(0 <= b.x1 < b.x2 <= 1280 and 0 <= b.y1 < b.y2 <= 720 for b in boxes)


def test_the_ten_thousand_official_pictures(all_labels, tmp_path):
    with np.load(all_labels) as data:
        table = {name: data[name] for name in data.files}
    starts = np.searchsorted(table["box_image"], np.arange(10_001))
    names = [str(name) for name in table["classes"]]
    path = tmp_path / "official.json"
    with path.open("w", encoding="utf-8") as stream:
        for number, name in enumerate(table["names"]):
            rows = slice(starts[number], starts[number + 1])
            labels = [
                {
                    "category": names[k],
                    "box2d": dict(zip(("x1", "y1", "x2", "y2"), map(float, box), strict=True)),
                }
                for k, box in zip(table["box_class"][rows], table["box_xyxy"][rows], strict=True)
            ]
            stream.write("," if number else '{"frames": [')
            json.dump({"name": str(name), "labels": labels}, stream)
        stream.write("]}")
    report = Report()
    counts = Counter(box.category for one in read(path, report) for box in one.boxes)
    lost = sum(report.counts[reason] for reason in ("empty_box", "outside", "broken_box"))
    assert (report.frames, report.boxes + lost) == (10_000, 185_526)
    assert counts["train"] == 15
    assert counts.most_common(1)[0][0] == "car"
