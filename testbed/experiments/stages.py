"""The stages of a sweep: planning, training, running."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from testbed.config.schema import ExecutionConfig
from testbed.errors import ResultsError
from testbed.execution import Blueprint, Crew, Store, open_crew
from testbed.execution.crew import WorkerLostError
from testbed.execution.store import Counts
from testbed.execution.training import Job, train_all
from testbed.experiments.cells import Done, fail, is_over, perform
from testbed.experiments.plan import Ask, Need, Planned, groups, make_plan, reason

StageName = Literal["planning", "training", "running", "auditing"]


@dataclass(frozen=True)
class Stage:
    """How far a sweep is.

    Attributes
    ----------
    name : {"planning", "training", "running"}
    done, total : int
        Runs that were planned, clients that trained, runs that are over.
    share : float
        Of the stage's work, from 0 to 1.
    failed : int
        Runs that failed so far.
    """

    name: StageName
    done: int
    total: int
    share: float
    failed: int


Observer = Callable[[Stage], None]


class Hands:
    """A crew, or another one when a worker of it was lost.

    Attributes
    ----------
    crew : Crew
    """

    crew: Crew

    def __init__(self, execution: ExecutionConfig) -> None:
        self._execution, self._stack = execution, ExitStack()

    def __enter__(self) -> Self:
        """Open the crew."""
        self.crew = self._stack.enter_context(open_crew(self._execution))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the crew; in the middle of its work if there is an error."""
        self._stack.__exit__(kind, error, traceback)

    def renew(self) -> None:
        """End what is left of the crew and open another."""
        self._stack.close()
        self.__enter__()


@dataclass
class Tally:
    """What `testbed.experiments.sweep.Cost` says, so far."""

    runs: int = 0
    trained: int = 0
    reused: int = 0
    trainings_s: float = 0.0
    tunings_s: float = 0.0
    fusions_s: float = 0.0
    releases_s: float = 0.0


@dataclass(frozen=True)
class _Piece:
    """Runs that one worker does in turn.

    Attributes
    ----------
    asks : tuple of Ask
    tape : Path or None
        The traffic that they hear, if it was heard before.
    weight : int
        How much work they are, in floating-point operations.
    """

    asks: tuple[Ask, ...]
    tape: Path | None = None
    weight: int = 1


class Stages:
    """Does runs in three stages.

    Parameters
    ----------
    hands : Hands
    store : Store
    tapes : Path
        An empty folder for the traffic that runs share.
    observer : callable

    Attributes
    ----------
    failed : dict of str to str
        Why runs failed.
    tally : Tally
    """

    def __init__(self, hands: Hands, store: Store, tapes: Path, observer: Observer) -> None:
        self._hands, self._store, self._tapes, self._observer = hands, store, tapes, observer
        self.failed: dict[str, str] = {}
        self.tally = Tally()
        self._asked = Counts()
        # Whether results that were written elsewhere are known to be here.
        self._shared = False

    @property
    def counts(self) -> Counts:
        """How often what was asked of the store was there, whoever asked."""
        return self._store.counts + self._asked

    def do(self, asked: Sequence[Ask]) -> None:
        """Do all stages.

        Raises
        ------
        TestbedError
            If the store or the results cannot be written, or there is no crew.
        """
        learning = [ask for ask in asked if ask.experiment.fidelity == "train"]
        plan = make_plan(
            learning,
            self._hands.crew,
            self._store,
            self._tapes,
            lambda done, total: self._tell("planning", done, total, done / total),
        )
        for run in plan.runs:
            if isinstance(run.need, str):
                self._note(run.ask, fail(run.ask, run.need))
        self._train(plan.todo, plan.left)
        cheap = groups(ask for ask in asked if ask.experiment.fidelity == "cost")
        self._run([*_pieces(plan.runs), *map(_Piece, cheap)], len(asked))

    def _train(self, todo: Sequence[Job], left: Sequence[Job]) -> None:
        """Have the clients train whose work the store has not."""
        # Workers keep to themselves why an entry was not there, so it is asked for here.
        fresh = [key for key in absent(left, self._store) if not self._store.get(key)]
        known, total = len(todo) - len(left), sum(job.flops for job in left)
        shares = [0.0, *(done / total for done in accumulate(job.flops for job in left))]

        def tell(done: int) -> None:
            self._tell("training", done, len(todo), shares[done - known])

        try:
            report = train_all(todo, self._hands.crew, self._store, tell)
            self.tally.trained, self.tally.reused = report.trained, report.reused
        except WorkerLostError:
            # The runs do what is missing, and show which of them it is that loses workers.
            self._hands.renew()
        records = (self._store.record(key) for key in fresh)
        self.tally.trainings_s = sum(record.seconds for record in records if record)

    def _run(self, pieces: Sequence[_Piece], runs: int) -> None:
        """Do the runs; where a worker is lost, find out whose run it was."""
        left, alone = deque(pieces), 0
        total = sum(piece.weight for piece in pieces)
        self._tell("running", self.tally.runs, runs, 0.0)
        while left:
            batch = [left[0]] if alone else list(left)
            alone = max(0, alone - 1)
            undone = sum(piece.weight for piece in left)
            try:
                for outcomes in self._outcomes(batch):
                    piece = left.popleft()
                    for ask, outcome in zip(piece.asks, outcomes, strict=True):
                        self._note(ask, outcome)
                    undone -= piece.weight
                    self._tell("running", self.tally.runs, runs, 1 - undone / total)
            except WorkerLostError as error:
                self._hands.renew()
                if len(batch) == 1:
                    for ask in left.popleft().asks:
                        self._note(ask, Done() if is_over(ask) else fail(ask, reason(error)))
                else:  # whoever was at work then is tried alone
                    alone = self._hands.crew.size
                left = deque(self._unfinished(left))

    def _outcomes(self, pieces: Sequence[_Piece]) -> Iterator[tuple[Done, ...]]:
        place = self._store.folder, self._store.limit_bytes
        return self._hands.crew.map(
            perform,
            [piece.asks for piece in pieces],
            [piece.tape for piece in pieces],
            [place] * len(pieces),
        )

    def _unfinished(self, pieces: Iterable[_Piece]) -> Iterator[_Piece]:
        """Return what is left of pieces; others of the crew may have been faster."""
        for piece in pieces:
            over = [ask for ask in piece.asks if is_over(ask)]
            for ask in over:
                self._note(ask, Done())
            if len(over) < len(piece.asks):
                yield replace(piece, asks=tuple(ask for ask in piece.asks if ask not in over))

    def _note(self, ask: Ask, outcome: Done) -> None:
        """Take down what came of a run."""
        self.tally.runs += 1
        self.tally.tunings_s += outcome.spent.tunings_s
        self.tally.fusions_s += outcome.spent.fusions_s
        self.tally.releases_s += outcome.spent.releases_s
        self._asked += outcome.asked
        if outcome.failed is not None:
            self.failed[str(ask)] = outcome.failed
        elif not self._shared and not is_over(ask):
            raise ResultsError(
                f"{ask.cell.folder}: a worker wrote it, and it is not here; name a folder with "
                "--out that all machines share"
            )
        self._shared |= outcome.failed is None

    def _tell(self, name: StageName, done: int, total: int, share: float) -> None:
        if total:
            self._observer(Stage(name, done, total, share, len(self.failed)))


def absent(left: Iterable[Job], store: Store) -> list[str]:
    """Return the keys of entries that jobs ask for and of which a store has no record."""
    keys = (key for job in left for key in (job.key, *job.keys))
    return [key for key in keys if not store.record(key)]


def _pieces(runs: Iterable[Planned]) -> list[_Piece]:
    """Order runs task by task, so that a worker prepares each once; long ones come first."""
    tasks: dict[Blueprint, list[_Piece]] = {}
    for run in runs:
        if isinstance(run.need, Need):
            weight = 1 + run.need.tuning_flops + run.need.fusion_flops
            piece = _Piece((run.ask,), run.tape, weight)
            tasks.setdefault(run.ask.blueprint, []).append(piece)
    return [
        piece for own in tasks.values() for piece in sorted(own, key=lambda each: -each.weight)
    ]
