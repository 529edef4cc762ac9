"""A drawn data set in a folder."""

import json
from pathlib import Path

import pytest
from drawn import make

from testbed.errors import DataError
from testbed.learning.detection.pictures import DetectionData, load


class Folder:
    """A drawn data set, and how it is loaded."""

    def __init__(self, place: Path, **how: object) -> None:
        self.place = place
        self.images, self.labels, self.test_images, self.test_labels = make(place, **how)
        self.cache = place / "cache"

    def load(self, size=(64, 64), limit=None, test_limit=None) -> DetectionData:
        return load(
            self.images,
            self.labels,
            self.test_images,
            self.test_labels,
            size,
            self.cache,
            limit,
            test_limit,
        )

    def refusal(self, **how: object) -> str:
        with pytest.raises(DataError) as caught:
            self.load(**how)
        line = str(caught.value)
        assert "\n" not in line
        return line

    def frames(self) -> list[dict]:
        return json.loads(self.labels.read_text())

    def relabel(self, frames: object) -> None:
        self.labels.write_text(json.dumps(frames))


def faults(data: DetectionData) -> dict[str, int]:
    kept = ("pictures", "boxes", "crowd")
    return {key: n for key, n in data.counts.items() if n and not key.endswith(kept)}


def drawn_names(data: DetectionData) -> list[str]:
    return [frame.name for frame in data.train.frames]
