"""What a measure is: numbers of finished runs in, one figure with its interval out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from testbed.errors import ConfigError
from testbed.experiments.rundir import Run
from testbed.reporting.comparison import by_method
from testbed.reporting.intervals import Interval
from testbed.reporting.paper.quantities import BYTES, TIME, Quantity, pairs
from testbed.reporting.table import REFERENCE

OWN = "fsosa"


@dataclass(frozen=True)
class Evidence:
    """The runs on one data set that differ in seed and method only.

    Attributes
    ----------
    runs : tuple of Run
        Empty where a claim is worked out and not run.
    tariff : str
        By which the card wants bytes priced; empty where it has none.
    """

    runs: tuple[Run, ...] = ()
    tariff: str = ""

    def of(self, method: str) -> tuple[Run, ...]:
        """Return the runs of a method.

        Raises
        ------
        ConfigError
            If the card has it run no such method.
        """
        found = by_method(self.runs)
        if method not in found:
            raise ConfigError(
                f"the study runs {', '.join(found)} and not {method}; add it to study.methods"
            )
        return found[method]

    def paired(self, method: str, other: str = REFERENCE) -> list[tuple[Run, Run]]:
        """Return the runs of a method beside those of another one with the same seeds."""
        return pairs(self.of(method), self.of(other))

    def quantity(self, of: Literal["time", "bytes"]) -> Quantity:
        """Return a cost by its name.

        Raises
        ------
        ConfigError
            If bytes have no tariff.
        """
        if of == "time":
            return TIME
        if not self.tariff:
            raise ConfigError("bytes need the card's tariff; name incremental, broadcast or paper")
        return BYTES[self.tariff]


@dataclass(frozen=True)
class Measured:
    """One figure.

    Attributes
    ----------
    value : Interval
        Over seeds, of shape ().
    beside : mapping of str to float
        The same by the tariffs that the card did not name.
    """

    value: Interval
    beside: Mapping[str, float] = field(default_factory=dict)


Setting = tuple[Any, ...]
Settings = Mapping[Setting, Evidence]
# Of one setting's evidence, or of all settings', which are in order of their values.
Measure = Callable[..., Measured]


def exactly(value: float, n: int = 1) -> Interval:
    """Return a number that no seed changes, known from `n` of something."""
    whole = np.asarray(value, dtype=np.float64)
    return Interval(whole, whole, whole, n)


def need_several(settings: Sequence[object], what: str) -> None:
    """Refuse a comparison of settings where there is one.

    Raises
    ------
    ConfigError
    """
    if len(settings) < 2:
        raise ConfigError(f"{what} compares settings; give study.grid several values")
