"""The ten detection classes of BDD100K and the names that stand for them.

Source: the official toolkit's detection configuration.  Label files of 2018 use other
names than those of 2020; both are accepted everywhere.
"""

CLASSES = (
    "pedestrian",
    "rider",
    "car",
    "truck",
    "bus",
    "train",
    "motorcycle",
    "bicycle",
    "traffic light",
    "traffic sign",
)
"""In the official order: official ids are 1 to 10, YOLO ids 0 to 9."""

ALIASES = {
    "person": "pedestrian",
    "bike": "bicycle",
    "motor": "motorcycle",
    "caravan": "car",
    "van": "car",
}
"""Names of 2018 and their class."""

IGNORED = {
    "other person": "pedestrian",
    "other vehicle": "car",
    "trailer": "truck",
}
"""Kept as crowd: such a box neither rewards nor punishes a detector."""


_KNOWN = (
    {name: (name, False) for name in CLASSES}
    | {alias: (name, False) for alias, name in ALIASES.items()}
    | {ignored: (name, True) for ignored, name in IGNORED.items()}
)


def resolve(category: str) -> tuple[str, bool] | None:
    """Return a category's class and whether it only counts as crowd.

    None if the category is not a detection class, like ``"lane"``.

    >>> resolve("motor")
    ('motorcycle', False)
    >>> resolve("trailer")
    ('truck', True)
    """
    return _KNOWN.get(category)
