"""Several faults of one data set, told together."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from testbed.config.schema import DataConfig
from testbed.errors import DataError

T = TypeVar("T")


class FaultsError(DataError):
    """A data set has more than one fault.

    Attributes
    ----------
    lines : tuple of str
        One line per fault; the message is the first, and how many follow.
    """

    def __init__(self, lines: tuple[str, ...]) -> None:
        more = f"; {len(lines) - 1} more faults: see `testbed data check`"
        super().__init__(lines[0] + more.replace("1 more faults", "1 more fault"))
        self.lines = lines

    def __reduce__(self) -> tuple[type["FaultsError"], tuple[tuple[str, ...]]]:
        """Let a worker process hand it on whole."""
        return FaultsError, (self.lines,)


def faults_of(error: DataError) -> tuple[str, ...]:
    """Return the lines of an error, one per fault."""
    return error.lines if isinstance(error, FaultsError) else (str(error),)


def told(config: DataConfig) -> str:
    """Name the file or folder that a data set is read from, or the data set if none is named."""
    if config.name == "digits":
        return "scikit-learn's digits"
    return str(config.labels or config.path or config.name)


def gather(readers: Iterable[Callable[[], T]]) -> list[T]:
    """Call every reader, also after one has failed.

    Raises
    ------
    DataError
        If one failed; `FaultsError` with all their lines if several did.
    """
    results: list[T] = []
    lines: list[str] = []
    for read in readers:
        try:
            results.append(read())
        except DataError as error:
            lines += faults_of(error)
    refuse(lines)
    return results


def refuse(lines: list[str]) -> None:
    """Raise the faults in `lines`, if there are any."""
    if len(lines) == 1:
        raise DataError(lines[0])
    if lines:
        raise FaultsError(tuple(lines))
