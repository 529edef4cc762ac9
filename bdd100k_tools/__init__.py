"""Tools for BDD100K detection labels; independent of the testbed.

>>> from bdd100k_tools import Report, read
>>> report = Report()
>>> for frame in read(Path("bdd100k_labels_images_val.json"), report):  # doctest: +SKIP
...     print(frame.name, frame.attributes["timeofday"], len(frame.boxes))

Counting, partitions, evaluation and pictures are in the modules of those names, which load
what they need (numpy, Pillow, matplotlib) when they are imported; nothing here needs torch.
"""

from bdd100k_tools.classes import ALIASES, CLASSES, IGNORED, resolve
from bdd100k_tools.coco import write_coco
from bdd100k_tools.errors import (
    EvaluationError,
    LabelError,
    OutputError,
    PartitionError,
    PictureError,
    PredictionError,
    ToolsError,
)
from bdd100k_tools.labels import SIZE, Box, Frame, fingerprint, read
from bdd100k_tools.report import REASONS, Report
from bdd100k_tools.yolo import targets, write_yolo

__all__ = [
    "ALIASES",
    "CLASSES",
    "IGNORED",
    "REASONS",
    "SIZE",
    "Box",
    "EvaluationError",
    "Frame",
    "LabelError",
    "OutputError",
    "PartitionError",
    "PictureError",
    "PredictionError",
    "Report",
    "ToolsError",
    "fingerprint",
    "read",
    "resolve",
    "targets",
    "write_coco",
    "write_yolo",
]
