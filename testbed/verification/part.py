"""What one part of the certificate found."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Part:
    """One verified property.

    Attributes
    ----------
    name : str
    passed : bool
    sentence : str
        What holds, or what does not, in plain words.
    numbers : mapping
        The figures behind the sentence; values that JSON can hold.
    """

    name: str
    passed: bool
    sentence: str
    numbers: Mapping[str, Any]
