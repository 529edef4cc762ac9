"""What a running simulation tells whoever watches."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Progress:
    """A snapshot of one run.

    Attributes
    ----------
    method : str
    seed : int
    phase : {"warm-up", "training", "editing"}
    time : float
        Simulated seconds.
    population, subset : int
        M and P now.
    done, wanted : int
        Requests handled, and after how many the run ends.
    triggered : int
        Requests that changed the model.
    bytes : mapping of str to int
        Cumulative over the requests, by tariff.
    quality : (str, float) or None
        What is measured of the released model, and its value; None before there is one.
    """

    method: str
    seed: int
    phase: Literal["warm-up", "training", "editing"]
    time: float
    population: int
    subset: int
    done: int
    wanted: int
    triggered: int
    bytes: Mapping[str, int]
    quality: tuple[str, float] | None


Observer = Callable[[Progress], None]


def ignore(progress: Progress) -> None:
    """Watch nothing."""
