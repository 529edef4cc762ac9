"""Single runs of a sweep: how a crew does them, and what is left of one that fails."""

import errno
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testbed.errors import ResultsError
from testbed.execution import Clients, Place, Tuned, opened, task_of
from testbed.execution.store import Counts
from testbed.experiments.plan import Ask, reason
from testbed.experiments.run import Cell, finished, run_cell
from testbed.experiments.rundir import SCHEMA, OtherSchemaError
from testbed.experiments.traffic import EndOfTapeError, OpenSource, Traffic, load
from testbed.files import to_json, write_text
from testbed.fusion.fsosa import Fused
from testbed.fusion.rules import Rule
from testbed.learning.blocks import State
from testbed.learning.contribution import Contribution
from testbed.learning.evaluation import Score
from testbed.learning.task import Session
from testbed.mobility import open_source
from testbed.simulation.learning import Real, Timed
from testbed.simulation.outline import outline
from testbed.simulation.placeholder import Placeholder

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass
class Spent:
    """Measured seconds of one run.

    Attributes
    ----------
    tunings_s, fusions_s, releases_s : float
        Of models that clients trained further, of fusions and of evaluations.
    """

    tunings_s: float = 0.0
    fusions_s: float = 0.0
    releases_s: float = 0.0


@dataclass(frozen=True)
class Done:
    """A run that is over.

    Attributes
    ----------
    failed : str or None
        The reason, in one line.
    spent : Spent
    asked : Counts
        Of the store.
    """

    failed: str | None = None
    spent: Spent = field(default_factory=Spent)
    asked: Counts = field(default_factory=Counts)


@dataclass(frozen=True)
class Clocked(Real):
    """Real learning, of which is noted how long it took.

    Attributes
    ----------
    spent : Spent
        So far.
    """

    spent: Spent = field(default_factory=Spent)

    def tune(self, parts: Sequence[int], start: State, session: Session) -> list[Tuned]:
        """See `Learning.tune`."""
        tuned = super().tune(parts, start, session)
        self.spent.tunings_s += sum(one.train_s for one in tuned)
        return tuned

    def fuse(self, contributions: Sequence[Contribution], rule: Rule) -> Timed[Fused]:
        """See `Learning.fuse`."""
        fused = super().fuse(contributions, rule)
        self.spent.fusions_s += fused.seconds
        return fused

    def score(self, model: State) -> Timed[Score]:
        """See `Learning.score`."""
        score = super().score(model)
        self.spent.releases_s += score.seconds
        return score


def perform(asks: tuple[Ask, ...], tape: Path | None, place: Place) -> tuple[Done, ...]:
    """Do runs that hear the same traffic; work for a crew.

    Parameters
    ----------
    asks : tuple of Ask
    tape : Path or None
        The traffic, if somebody heard it before.
    place : (Path, int or None)
        The store.

    Raises
    ------
    ResultsError
        If the disk is full.  Any other failure is that of one run.
    """
    with Traffic(load(tape) if tape else None) as traffic:
        return tuple(_perform(ask, traffic, place) for ask in asks)


def _perform(ask: Ask, traffic: Traffic, place: Place) -> Done:
    try:
        try:
            done = _run(ask, place, traffic.open)
        except EndOfTapeError:
            done = _run(ask, place, open_source)
        mark_of(ask.cell).unlink(missing_ok=True)
    except Exception as error:  # it must not stop the others
        if _disk_is_full(error):
            raise ResultsError(
                f"{reason(error)}; free some space and run the same command again"
            ) from error
        return fail(ask, reason(error))
    return done


def _run(ask: Ask, place: Place, source: OpenSource) -> Done:
    experiment, cell = ask.experiment, ask.cell
    if experiment.fidelity == "cost":
        task = outline(experiment, cell.seed)
        run_cell(experiment, cell, task, Placeholder(task), open_source=source)
        return Done()
    task, store = task_of(ask.blueprint), opened(place)
    before, learning = store.counts, Clocked(task, Clients(task, store=store))
    run_cell(experiment, cell, task, learning, open_source=source)
    return Done(spent=learning.spent, asked=store.counts - before)


def fail(ask: Ask, why: str) -> Done:
    """Leave a mark of a run that failed, which is not finished and will be done again."""
    cell = ask.cell
    content = {"point": ask.point, "method": cell.method, "seed": cell.seed, "reason": why}
    try:
        write_text(mark_of(cell), to_json(content))
    except ResultsError as error:
        # Whatever else is wrong with the run's folder may be why it failed.
        if _disk_is_full(error):
            raise
    return Done(why)


def mark_of(cell: Cell) -> Path:
    """Return the file that says why a run failed."""
    return cell.folder.with_name(f"{cell.folder.name}.failed.json")


def is_over(ask: Ask) -> bool:
    """Whether a run was finished before; one whose manifest cannot be read was not."""
    try:
        return finished(ask.cell)
    except ResultsError:
        return False


def why_again(ask: Ask) -> str | None:
    """Say why a run that is there is none that counts, so that it is done again, if so it is."""
    try:
        finished(ask.cell)
    except OtherSchemaError:
        return f"their folders are not of schema version {SCHEMA}, the only one this testbed reads"
    except ResultsError:
        return "their manifests are damaged or another spec's"
    return None


def _disk_is_full(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, OSError) and error.errno in _DISK_FULL:
            return True
        error = error.__cause__
    return False
