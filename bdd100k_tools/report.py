"""What a reader repaired or left out, counted."""

from collections import Counter
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

REASONS = MappingProxyType(
    {
        "no_box": "labels without a box (lanes, drivable areas), left out",
        "unknown_class": "boxes of no detection class, left out",
        "broken_box": "boxes without four finite numbers, left out",
        "empty_box": "boxes without area, left out",
        "outside": "boxes wholly outside the picture, left out",
        "reversed": "boxes with swapped corners, repaired",
        "clipped": "boxes past the picture's edge, clipped",
        "unlabelled": "pictures without labels, kept as background",
        "duplicate": "pictures listed again, left out",
    }
)
"""Every reason for a repair or an omission, and its meaning."""

_EXAMPLES = 5
_NAMES = 100
_OLD, _NEW = {"person", "bike", "motor"}, {"pedestrian", "bicycle", "motorcycle"}


@dataclass
class Report:
    """Counts that a reader fills while it reads.

    Attributes
    ----------
    frames, boxes, crowd : int
        What was read; `crowd` boxes are part of `boxes`.
    counts : Counter
        Of the `REASONS`.
    examples : dict
        Per reason the places of the first five.
    categories : Counter
        Names that are not a detection class; the first hundred different ones.
    """

    frames: int = 0
    boxes: int = 0
    crowd: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    categories: Counter[str] = field(default_factory=Counter)
    _generations: set[str] = field(default_factory=set, repr=False)

    def add(self, reason: str, where: str, label: int | None = None) -> None:
        """Count one of the `REASONS`, for a picture or for one of its labels."""
        self.counts[reason] += 1
        places = self.examples.setdefault(reason, [])
        if len(places) < _EXAMPLES:
            places.append(where if label is None else f"{where}, label {label}")

    def name(self, category: str) -> None:
        """Take note of a name that is not a detection class."""
        if category in self.categories or len(self.categories) < _NAMES:
            self.categories[category] += 1

    def see(self, category: str) -> None:
        """Take note of the generation a detection class's name belongs to."""
        if category in _OLD:
            self._generations.add("2018")
        elif category in _NEW:
            self._generations.add("2020")

    @property
    def generation(self) -> str:
        """``2018`` or ``2020`` after the names used, ``mixed``, or ``unknown``."""
        if len(self._generations) == 1:
            return next(iter(self._generations))
        return "mixed" if self._generations else "unknown"

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values; every reason is listed, also with 0."""
        return {
            "frames": self.frames,
            "boxes": self.boxes,
            "crowd": self.crowd,
            "generation": self.generation,
            "counts": {reason: self.counts[reason] for reason in REASONS},
            "examples": self.examples,
            "other_categories": dict(self.categories.most_common()),
        }
