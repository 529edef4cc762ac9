"""What the runs of a sweep will need, found out by running them without learning.

Membership, subsets and modelled times do not depend on learned weights, so a run whose orders
are answered by placeholders asks for exactly what the real one will ask for.  Where clients'
work is refused, or time is measured, the real one may ask for more, and is given it then.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from testbed.config import Experiment
from testbed.errors import TestbedError
from testbed.execution import Blueprint, Crew, Store, task_of
from testbed.execution.training import Job, Wanted, jobs, missing
from testbed.experiments.grid import Grid
from testbed.experiments.run import Cell, cells
from testbed.experiments.traffic import Traffic
from testbed.learning.flops import CURVATURE_PASSES
from testbed.learning.task import Session
from testbed.mobility import MobilitySource, open_source
from testbed.simulation.costs import Costs
from testbed.simulation.outline import outline
from testbed.simulation.placeholder import Placeholder
from testbed.simulation.world import World


@dataclass(frozen=True)
class Ask:
    """One run of one point."""

    experiment: Experiment
    cell: Cell

    @property
    def point(self) -> str:
        """Name of the point, which is that of its folder."""
        return self.cell.folder.parents[1].name

    @property
    def blueprint(self) -> Blueprint:
        """What its task is prepared from."""
        return Blueprint.of(self.experiment, self.cell.seed)

    def __str__(self) -> str:
        return f"{self.point} {self.cell.method} seed={self.cell.seed}"


@dataclass(frozen=True)
class Need:
    """What one run asks for.

    Attributes
    ----------
    trainings : frozenset of (int, str)
        Partitions and statistics.
    tuning_flops : int
        Floating-point operations of models that are trained further, in rounds or not.
    fusion_flops : int
        Of fusions, with as many solver steps as are billed.
    releases : int
        Models that are evaluated.
    rows : int
        Of the ledger.
    """

    trainings: frozenset[tuple[int, str]]
    tuning_flops: int
    fusion_flops: int
    releases: int
    rows: int


@dataclass(frozen=True)
class Planned:
    """A run and what is known of it before it is done.

    Attributes
    ----------
    ask : Ask
    need : Need or str
        The reason, in one line, if it would fail.
    tape : Path or None
        The traffic that it will hear, if that is shared.
    """

    ask: Ask
    need: Need | str
    tape: Path | None


@dataclass(frozen=True)
class Plan:
    """What runs need together.

    Attributes
    ----------
    runs : tuple of Planned
    todo : tuple of Job
        The unique trainings, with all that is wanted of each.
    left : tuple of Job
        Those of which something is not in the store.
    """

    runs: tuple[Planned, ...]
    todo: tuple[Job, ...]
    left: tuple[Job, ...]

    @property
    def asked(self) -> int:
        """How many contributions the runs ask for, the same ones again and again."""
        return sum(len(run.need.trainings) for run in self.runs if isinstance(run.need, Need))


def trainings(experiment: Experiment, seed: int, method: str) -> frozenset[tuple[int, str]]:
    """Return which partitions train in one run, and the statistic that each sends.

    Raises
    ------
    TestbedError
        If the run would fail.
    """
    with open_source(experiment.mobility, seed) as source:
        return need(experiment, seed, method, source).trainings


def need(experiment: Experiment, seed: int, method: str, source: MobilitySource) -> Need:
    """Run a method without learning and return what it asks for; raises as `trainings`."""
    task = outline(experiment, seed)
    asked = Placeholder(task)
    world = World(experiment, method, task, asked, source)
    outcome, costs = world.run(), world.coordinator.costs
    return Need(
        trainings=frozenset(asked.trainings),
        tuning_flops=sum(
            times * _tuning_flops(costs, part, session)
            for (part, session), times in asked.tunings.items()
        ),
        fusion_flops=sum(
            times * costs.solve_flops(members) for members, times in asked.fusions.items()
        ),
        releases=sum(metric.triggered for metric in outcome.metrics),
        rows=len(outcome.ledger),
    )


def _tuning_flops(costs: Costs, part: int, session: Session) -> int:
    epochs = costs.epochs if session.epochs is None else session.epochs
    passes = epochs * (CURVATURE_PASSES if session.optimiser == "curvature" else 1)
    return costs.training[part] * passes // costs.epochs


def asks(grid: Grid, out: Path) -> tuple[Ask, ...]:
    """Return the runs of a sweep, point by point."""
    return tuple(
        Ask(point.experiment, cell)
        for point in grid.points
        for cell in cells(point.experiment, out / point.name)
    )


def groups(asked: Iterable[Ask]) -> tuple[tuple[Ask, ...], ...]:
    """Put runs together that hear the same traffic, if SUMO makes it, or are of one point."""
    found: dict[tuple[int, str], list[Ask]] = {}
    for ask in asked:
        mobility = ask.experiment.mobility
        name = mobility.model_dump_json() if mobility.source == "sumo" else ask.point
        found.setdefault((ask.cell.seed, name), []).append(ask)
    return tuple(map(tuple, found.values()))


def survey(asks: tuple[Ask, ...], tape: Path | None = None) -> tuple[Need | str, ...]:
    """Find out what runs of the same traffic need; work for a crew.

    Parameters
    ----------
    asks : tuple of Ask
    tape : Path, optional
        Where to leave the traffic for those who will hear it again.

    Returns
    -------
    tuple of Need or str
        For each run, the reason in one line if it would fail.
    """
    found: list[Need | str] = []
    with Traffic() as traffic:
        for ask in asks:
            experiment, cell = ask.experiment, ask.cell
            try:
                with traffic.open(experiment.mobility, cell.seed) as source:
                    found.append(need(experiment, cell.seed, cell.method, source))
            except Exception as error:  # it must not stop the others
                found.append(reason(error))
        if traffic.tape and tape:
            traffic.tape.save(tape)
    return tuple(found)


def make_plan(
    asked: Sequence[Ask],
    crew: Crew,
    store: Store,
    tapes: Path | None = None,
    on_done: Callable[[int, int], None] = lambda done, total: None,
) -> Plan:
    """Find out what runs need, and what of it is not in the store.

    Parameters
    ----------
    asked : sequence of Ask
    crew : Crew
    store : Store
    tapes : Path, optional
        A folder in which to leave the traffic that runs share.
    on_done : callable
        Told how many runs are planned, and of how many.
    """
    found = groups(asked)
    paths = [
        tapes / str(number) if tapes and group[0].experiment.mobility.source == "sumo" else None
        for number, group in enumerate(found)
    ]
    runs: list[Planned] = []
    if asked:
        on_done(0, len(asked))
    answers = crew.map(survey, found, paths)
    for group, path, needs in zip(found, paths, answers, strict=True):
        runs += (Planned(ask, each, path) for ask, each in zip(group, needs, strict=True))
        on_done(len(runs), len(asked))
    try:
        todo = jobs(_wanted(runs))
    except TestbedError:  # the data of some are broken: who are they?
        runs = list(map(_checked, runs))
        todo = jobs(_wanted(runs))
    return Plan(tuple(runs), todo, missing(todo, store))


def _checked(run: Planned) -> Planned:
    """Return a run with the reason why its task cannot be prepared, if that is so."""
    try:
        if isinstance(run.need, Need):
            task_of(run.ask.blueprint)
    except TestbedError as error:
        return replace(run, need=reason(error))
    return run


def _wanted(runs: Iterable[Planned]) -> Iterator[Wanted]:
    """Yield the contributions that runs ask for, many of them the same."""
    for run in runs:
        if isinstance(run.need, Need):
            for part, statistic in sorted(run.need.trainings):
                yield Wanted(run.ask.experiment, run.ask.cell.seed, part, statistic)


def reason(error: Exception) -> str:
    """Say in one line why a run failed."""
    text = " ".join(str(error).split())
    return text if isinstance(error, TestbedError) else f"{type(error).__name__}: {text}"
