"""Running every point of a grid, with every client trained once.

A sweep first runs everything without learning to see what is needed, then has the clients
train that no store knows, and then runs everything with what they sent.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from testbed.execution import Store, open_store
from testbed.execution.store import Counts
from testbed.experiments.cells import is_over, mark_of, why_again
from testbed.experiments.grid import Grid
from testbed.experiments.lock import exclusive
from testbed.experiments.plan import Ask, asks
from testbed.experiments.stages import Hands, Observer, Stage, Stages
from testbed.experiments.sweepdir import TAPES, claimed, write_outcome

__all__ = ["Cost", "Observer", "Result", "Stage", "reasons_again", "store_of", "sweep"]

STORE = ".store"


@dataclass(frozen=True)
class Cost:
    """What a sweep took.

    Attributes
    ----------
    wall_s : float
        From its beginning to its end.
    workers : int
        How many worked at a time.
    runs, trained, reused : int
        Runs that were done, clients that trained, and clients whose work was in the store.
    trainings_s : float
        Measured seconds of the trainings that were done, each once, with their statistics.
    tunings_s, fusions_s, releases_s : float
        Measured seconds of training on, of fusions and of evaluations in the runs.
    """

    wall_s: float
    workers: int
    runs: int
    trained: int
    reused: int
    trainings_s: float
    tunings_s: float
    fusions_s: float
    releases_s: float

    @property
    def unique_s(self) -> float:
        """Seconds of unique trainings and fusions."""
        return self.trainings_s + self.tunings_s + self.fusions_s

    @property
    def ratio(self) -> float | None:
        """Wall time over that of unique trainings and fusions; None if that is not known.

        A store that is too small forgets what trainings took.
        """
        forgotten = self.trained > 0 and not self.trainings_s
        return self.wall_s / self.unique_s if self.unique_s and not forgotten else None


@dataclass(frozen=True)
class Result:
    """What came of a sweep.

    Attributes
    ----------
    skipped : int
        Runs that had been finished before.
    failed : mapping of str to str
        The reason, in one line, of each run that failed.
    cost : Cost
    store : Counts
        How often what was asked of the store was there.
    again : mapping of str to int
        Runs that were there and did not count, so that they were done again, by the reason.
    """

    skipped: int
    failed: Mapping[str, str]
    cost: Cost
    store: Counts
    again: Mapping[str, int] = field(default_factory=dict)


def sweep(grid: Grid, out: Path, observer: Observer = lambda stage: None) -> Result:
    """Run every point of a grid, except what was finished before.

    Parameters
    ----------
    grid : Grid
    out : Path
        The sweep's folder.
    observer : callable
        Told about progress.

    Returns
    -------
    Result
        Which runs failed, and what it took; both stand in ``sweep.json`` too.

    Raises
    ------
    ResultsError
        If the folder belongs to something else or cannot be written, or the disk is full.
    ConfigError
        If the crew that the configuration names cannot be had.
    """
    begin = time.perf_counter()
    with exclusive(out), claimed(grid, out), ExitStack() as stack:
        asked = asks(grid, out)
        todo = []
        for ask in asked:
            if is_over(ask):
                mark_of(ask.cell).unlink(missing_ok=True)
            else:
                todo.append(ask)
        again = reasons_again(todo)
        tapes = Path(stack.enter_context(TemporaryDirectory(prefix=TAPES, dir=out)))
        hands = stack.enter_context(Hands(grid.execution))
        stages = Stages(hands, store_of(grid, out), tapes, observer)
        stages.do(todo)
        cost = Cost(time.perf_counter() - begin, hands.crew.size, **asdict(stages.tally))
        if todo:
            write_outcome(out, {**asdict(cost), "ratio": cost.ratio}, stages.failed)
    return Result(len(asked) - len(todo), stages.failed, cost, stages.counts, again)


def reasons_again(todo: Iterable[Ask]) -> dict[str, int]:
    """Count the runs that are there and do not count, by the reason."""
    return dict(Counter(why for ask in todo if (why := why_again(ask)) is not None))


def store_of(grid: Grid, out: Path) -> Store:
    """Return the store of a sweep: the one its configuration names, or one in its folder."""
    execution = grid.execution
    return open_store(execution) or Store(out / STORE, execution.store_limit_bytes)
