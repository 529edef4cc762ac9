"""Counts of a label file: per class, per size, per attribute; as a table or a figure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bdd100k_tools.classes import CLASSES
from bdd100k_tools.labels import Frame
from bdd100k_tools.output import new_file
from bdd100k_tools.partition import ATTRIBUTES, UNDEFINED

SMALL, MEDIUM = 32**2, 96**2
"""COCO's limits in square pixels: below, between and above are small, medium and large."""


@dataclass
class ClassCounts:
    """One class: boxes by COCO size, crowd boxes, and the pictures it is on.

    `small`, `medium` and `large` add up to the boxes that are not crowd.
    """

    small: int = 0
    medium: int = 0
    large: int = 0
    crowd: int = 0
    pictures: int = 0

    @property
    def boxes(self) -> int:
        """Boxes that are not crowd."""
        return self.small + self.medium + self.large


@dataclass
class Statistics:
    """Counts of a label file.

    Attributes
    ----------
    pictures, background : int
        `background` pictures have no box, crowd included.
    classes : dict
        Every class has an entry: one without boxes is what one must not overlook.
    attributes : dict of Counter
        Pictures per value of weather, scene and time of day.
    """

    pictures: int = 0
    background: int = 0
    classes: dict[str, ClassCounts] = field(
        default_factory=lambda: {name: ClassCounts() for name in CLASSES}
    )
    attributes: dict[str, Counter[str]] = field(
        default_factory=lambda: {name: Counter() for name in ATTRIBUTES}
    )

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "pictures": self.pictures,
            "background": self.background,
            "classes": {name: vars(counts) for name, counts in self.classes.items()},
            "attributes": {name: dict(values) for name, values in self.attributes.items()},
        }


def count(frames: Iterable[Frame]) -> Statistics:
    """Count the boxes and attributes of pictures."""
    total = Statistics()
    for frame in frames:
        total.pictures += 1
        total.background += not frame.boxes
        for name, values in total.attributes.items():
            values[frame.attributes.get(name, UNDEFINED)] += 1
        for box in frame.boxes:
            counts = total.classes[box.category]
            area = (box.x2 - box.x1) * (box.y2 - box.y1)
            if box.crowd:
                counts.crowd += 1
            elif area < SMALL:
                counts.small += 1
            elif area < MEDIUM:
                counts.medium += 1
            else:
                counts.large += 1
        for category in {box.category for box in frame.boxes if not box.crowd}:
            total.classes[category].pictures += 1
    return total


def draw(total: Statistics, path: Path, title: str) -> None:
    """Draw the counts into a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    grid = figure.add_gridspec(3, 2, width_ratios=(1.25, 1), height_ratios=(7, 7, 4))
    boxes = figure.add_subplot(grid[:, 0])
    names = list(reversed(CLASSES))
    left = [0] * len(names)
    for size, colour in (("small", "#9ecae1"), ("medium", "#4292c6"), ("large", "#084594")):
        widths = [getattr(total.classes[name], size) for name in names]
        label = {"small": "< 32² px", "medium": "32² to 96² px", "large": "≥ 96² px"}[size]
        boxes.barh(names, widths, left=left, color=colour, label=f"{size}, {label}")
        left = [sum(pair) for pair in zip(left, widths, strict=True)]
    longest = max(*left, 1)
    for place, value in enumerate(left):
        boxes.text(value + longest * 0.01, place, f"{value:,}", va="center", fontsize=8)
    boxes.set(title="boxes per class (crowd left out)", xlim=(0, longest * 1.16))
    boxes.legend(loc="lower right", fontsize=8, frameon=False)
    for row, (attribute, values) in enumerate(total.attributes.items()):
        axes = figure.add_subplot(grid[row, 1])
        ranked = values.most_common()[::-1]
        axes.barh([name for name, _ in ranked], [n for _, n in ranked], color="#969696")
        most = max(values.values(), default=1)
        for place, (_, value) in enumerate(ranked):
            axes.text(value + most * 0.01, place, f"{value:,}", va="center", fontsize=8)
        title = attribute.replace("timeofday", "time of day")
        axes.set(title=f"pictures per {title}", xlim=(0, most * 1.16))
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.title.set_fontsize(10)
    with new_file(path) as partial:
        figure.savefig(partial, format="png", dpi=120)
