"""Tools for BDD100K detection labels; independent of the testbed."""

from bdd100k_tools.classes import ALIASES, CLASSES, IGNORED, resolve
from bdd100k_tools.errors import LabelError
from bdd100k_tools.labels import Box, Dropped, Labels, Picture, read_labels

__all__ = [
    "ALIASES",
    "CLASSES",
    "IGNORED",
    "Box",
    "Dropped",
    "LabelError",
    "Labels",
    "Picture",
    "read_labels",
    "resolve",
]
