"""Numbers as people read them: three significant digits and a unit."""

from collections.abc import Iterable
from dataclasses import dataclass

# Decimal units, as network rates use them: 1 MB = 1e6 bytes.
_BYTES = (("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12))
_SECONDS = (("s", 1.0), ("min", 60.0), ("h", 3600.0))
_ROUNDS_TO_1000 = 999.5
_LONG = 119.5  # of one unit of time, before the next one reads better


@dataclass(frozen=True)
class Unit:
    """A unit and how many bytes or seconds it holds."""

    name: str
    size: float


def byte_unit(largest: float) -> Unit:
    """Return the unit in which numbers of bytes up to `largest` read best."""
    fitting = (Unit(*unit) for unit in _BYTES if largest / unit[1] < _ROUNDS_TO_1000)
    return next(fitting, Unit(*_BYTES[-1]))


def time_unit(largest: float) -> Unit:
    """Return the unit in which seconds up to `largest` read best."""
    fitting = (Unit(*unit) for unit in _SECONDS if largest / unit[1] < _LONG)
    return next(fitting, Unit(*_SECONDS[-1]))


def bytes_text(count: float) -> str:
    """Write a number of bytes.

    >>> bytes_text(12_345_678)
    '12.3 MB'
    """
    unit = byte_unit(count)
    # There are no fractions of a byte, except in a mean over seeds.
    exact = unit.size == 1 and float(count).is_integer()
    return f"{int(count) if exact else _three_digits(count / unit.size)} {unit.name}"


def time_text(seconds: float) -> str:
    """Write a duration.

    >>> time_text(150), time_text(42)
    ('2.50 min', '42.0 s')
    """
    unit = time_unit(seconds)
    return f"{_three_digits(seconds / unit.size)} {unit.name}"


def saving_text(percent: float | None) -> str:
    """Write a saving in percent with the two decimals published figures have; None is a dash.

    >>> saving_text(25), saving_text(None)
    ('25.00 %', '–')
    """
    # The sum turns a negative zero into a plain one.
    return "–" if percent is None else f"{round(percent, 2) + 0.0:.2f} %"


def count_text(count: float) -> str:
    """Write a count, with one decimal where it is a mean that is not whole.

    >>> count_text(31.0), count_text(14.333)
    ('31', '14.3')
    """
    return f"{count:.0f}" if float(count).is_integer() else f"{count:.1f}"


def range_text(counts: Iterable[int]) -> str:
    """Write how many there are of each of several.

    >>> range_text([3, 3]), range_text([1200, 3, 40])
    ('3', '3 to 1,200')
    """
    several = set(counts)
    least, most = min(several), max(several)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    for decimals, limit in ((2, 9.995), (1, 99.95)):
        if abs(value) < limit:
            return f"{value:.{decimals}f}"
    return f"{value:.0f}"
