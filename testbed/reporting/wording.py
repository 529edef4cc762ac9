"""Words broken into lines that fit, by the width at which they are printed."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from testbed.experiments.rundir import Run
from testbed.reporting.settings import Setting, grouped, text, too_many
from testbed.reporting.style import TEXT

LINE = 0.13  # inches from one line to the next
_POINTS = 72  # per inch


@lru_cache(maxsize=4096)
def length(words: str, weight: str = "normal") -> float:
    """Return how many inches `words` take on one line."""
    if not words:
        return 0.0
    font = FontProperties(weight=weight)
    return float(TextPath((0, 0), words, size=TEXT, prop=font).get_extents().x1) / _POINTS


def broken(words: str, inches: float, weight: str = "normal") -> str:
    """Break `words` into lines of at most so many inches, after commas rather than elsewhere.

    A single word that is longer has a line of its own.

    >>> broken("ρ = 0.5, departure gap 3.6 s", 1.1).split(chr(10))
    ['ρ = 0.5,', 'departure gap 3.6 s']
    """
    lines: list[str] = []
    for line in _filled(words.replace(", ", ",\n").split("\n"), inches, weight):
        fits = length(line, weight) <= inches
        lines += [line] if fits else _filled(line.split(" "), inches, weight)
    return "\n".join(lines)


def _filled(parts: Sequence[str], inches: float, weight: str) -> list[str]:
    """Put as many parts on each line as there is room for."""
    lines = [parts[0]]
    for part in parts[1:]:
        longer = f"{lines[-1]} {part}"
        if length(longer, weight) <= inches:
            lines[-1] = longer
        else:
            lines.append(part)
    return lines


def names(
    runs: Sequence[Run],
    keys: Sequence[str],
    what: str,
    inches: float,
    most: int = 3,
    weight: str = "normal",
) -> Mapping[Setting, str]:
    """Name the settings of `runs`, each in at most so many lines of so many inches.

    Raises
    ------
    ResultsError
        If that is no room for one of them, as where they differ in many keys.
    """
    found = {
        values: broken(text(keys, values, group[0]), inches, weight)
        for values, group in grouped(runs, keys).items()
    }
    for name in found.values():
        lines = name.split("\n")
        if len(lines) > most or max(length(line, weight) for line in lines) > inches:
            raise too_many(runs, keys, what, unnamed=True)
    return found
