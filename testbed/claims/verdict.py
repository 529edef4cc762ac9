"""Verdicts: a figure beside the paper's, within a tolerance that was named beforehand."""

from dataclasses import dataclass
from typing import Literal

from testbed.config.cards import FigureConfig

Verdict = Literal["met", "missed", "not run at this scale"]
MET: Verdict = "met"
MISSED: Verdict = "missed"
NOT_RUN: Verdict = "not run at this scale"
NONE = "–"  # where there is no number


@dataclass(frozen=True)
class Row:
    """One line of the table of claims.

    Attributes
    ----------
    claim, figure : str
        Names of the card and of its figure.
    setting : str
        Data set and what varies; empty where nothing is run.
    expected : str
        What the paper says, with the tolerance.
    unit : str
    value, low, high : float or None
        What was measured and its 95 % interval; None where nothing was.
    n : int
        Seeds, or cases of what is worked out.
    basis : str
        Of bytes, how they are counted: the tariff, and that they are serialised.
    beside : str
        The same figure by the other tariffs.
    scale : str
    verdict : {"met", "missed", "not run at this scale"}
    gap : float or None
        How far the value is above the band, negative below it; 0 where the figure is met.
    why : str
        One sentence where the claim is not met.
    """

    claim: str
    figure: str
    setting: str
    expected: str
    unit: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    basis: str
    beside: str
    scale: str
    verdict: Verdict
    gap: float | None
    why: str


def judge(figure: FigureConfig, value: float) -> Verdict:
    """Return whether a value lies in the band of a figure, whose ends belong to it.

    Examples
    --------
    >>> half = FigureConfig(name="saved", measure="saved", at=25, within=1)
    >>> judge(half, 26), judge(half, 26.5)
    ('met', 'missed')
    """
    low, high = band(figure)
    return MET if low <= value <= high else MISSED


def band(figure: FigureConfig) -> tuple[float, float]:
    """Return the least and the largest value that meet a figure."""
    low, high = float("-inf"), float("inf")
    if figure.at is not None:
        low = high = figure.at
    elif figure.between is not None:
        low, high = figure.between
    elif figure.at_least is not None:
        low = figure.at_least
    elif figure.at_most is not None:
        high = figure.at_most
    return low - figure.within, high + figure.within


def expected(figure: FigureConfig) -> str:
    """Write what the paper says.

    >>> expected(FigureConfig(name="saved", measure="saved", between=(22, 25.76), within=1))
    '22 to 25.76, within 1'
    """
    if figure.at is not None:
        said = f"{figure.at:g}"
    elif figure.between is not None:
        said = f"{figure.between[0]:g} to {figure.between[1]:g}"
    elif figure.at_least is not None:
        said = f"at least {figure.at_least:g}"
    else:
        said = f"at most {figure.at_most:g}"
    return f"{said}, within {figure.within:g}" if figure.within else said


def gap(figure: FigureConfig, value: float) -> float:
    """Return how far a value is above the band, negative below it; 0 inside.

    >>> gap(FigureConfig(name="saved", measure="saved", at=25, within=1), 20)
    -4.0
    """
    low, high = band(figure)
    return value - high if value > high else min(0.0, value - low)


def shown(row: Row) -> str:
    """Write a row's value with its interval.

    >>> from dataclasses import replace
    >>> row = Row("a", "b", "", "", "%", 25.04, 24.0, 26.0, 3, "", "", "small", "met", 0.0, "")
    >>> shown(row), shown(replace(row, low=25.04, high=25.04, unit=""))
    ('25.0 [24.0, 26.0] %', '25.0')
    """
    if row.value is None or row.low is None or row.high is None:
        return NONE
    unit = f" {row.unit}" if row.unit else ""
    value = number(row.value)
    if row.low == row.high:
        return f"{value}{unit}"
    return f"{value} [{number(row.low)}, {number(row.high)}]{unit}"


def number(value: float) -> str:
    """Write at most two decimals of what is small, and none of what is large.

    >>> number(0.0), number(0.004), number(9.1e-3), number(25.04), number(1234.5)
    ('0', '0.004', '0.009', '25.0', '1234')
    """
    size = abs(value)
    if not size:
        return "0"
    if 1e-9 < size < 0.01:
        return f"{value:.1g}"
    return f"{value:.2f}" if size < 10 else f"{value:.1f}" if size < 1000 else f"{value:.0f}"
