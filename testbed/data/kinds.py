"""What is known beforehand of each data set: the size of its pictures and its classes."""

import string
from collections.abc import Mapping
from dataclasses import dataclass

DIGITS = tuple(string.digits)
GARMENTS = (
    "t-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
OBJECTS = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
# LEAF numbers the characters of NIST Special Database 19 in this order.
CHARACTERS = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)


@dataclass(frozen=True)
class Kind:
    """A data set as its name defines it.

    Attributes
    ----------
    name : str
        As in `data.name`.
    shape : tuple of int or None
        Height, width and, of coloured pictures, 3; None: what the files say.
    classes : tuple of str or None
        None: what the files say.
    """

    name: str
    shape: tuple[int, ...] | None = None
    classes: tuple[str, ...] | None = None


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("mnist", (28, 28), DIGITS),
        Kind("fashion-mnist", (28, 28), GARMENTS),
        Kind("cifar10", (32, 32, 3), OBJECTS),
        Kind("svhn", (32, 32, 3), DIGITS),
        Kind("femnist", (28, 28), CHARACTERS),
        Kind("npz"),
        Kind("folder"),
    )
}
