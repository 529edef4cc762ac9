"""One run: traffic, vehicles, link and coordinator in one SimPy environment."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

import simpy

from testbed.config import Experiment, spec_hash, subset_size
from testbed.editing.fsosa import Parameters
from testbed.editing.methods import METHODS
from testbed.editing.rounds import Rounds
from testbed.errors import ConfigError, ScenarioError
from testbed.execution import Executor
from testbed.fusion.rules import rule
from testbed.learning.blocks import State
from testbed.learning.statistics import chooses
from testbed.learning.task import Task
from testbed.ledger import TARIFFS, LedgerRow
from testbed.mobility import (
    MadeSource,
    MobilityEvent,
    MobilitySource,
    Recorder,
    Recording,
    Step,
)
from testbed.simulation import remarks
from testbed.simulation.air import Air
from testbed.simulation.billing import Account
from testbed.simulation.books import Books
from testbed.simulation.clock import Moment, micros, seconds
from testbed.simulation.contact import Contact, contact
from testbed.simulation.coordinator import Coordinator
from testbed.simulation.costs import costs
from testbed.simulation.fleet import Fleet
from testbed.simulation.jobs import Jobs
from testbed.simulation.learning import Learning, Real
from testbed.simulation.metric import Judged, Metric
from testbed.simulation.progress import Observer, Progress, ignore
from testbed.simulation.proxy import Proxy
from testbed.simulation.tally import Tally

_REPORT_EVERY = 10.0


@dataclass(frozen=True)
class Outcome:
    """What a run leaves behind.

    Attributes
    ----------
    ledger : tuple of LedgerRow
    metrics : tuple of Metric
    trace : Recording
        The membership events that were used, before participation, and where members were.
        All three are empty where they were written down elsewhere, see `Books`.
    covered : float
        Simulated seconds of traffic that were used.
    judged : tuple of Judged
        One per released detector.
    model : mapping of str to Tensor
        The model released last.
    before : mapping of str to Tensor, or None
        The one that it replaced.
    population_initial, subset_size : int
        M0 and P; M0 counts clients whose first contribution was refused.
    counts : mapping of str to int
        Of the traffic, of the fleet and of the coordinator.
    contact : Contact
        Whether contact times sufficed and how long requests waited.
    notes : tuple of str
        What a reader of the results should know of the method, one sentence each.
    warnings : tuple of str
        Assumptions that did not hold and clients whose work could not be used, one sentence each.
    """

    ledger: tuple[LedgerRow, ...]
    metrics: tuple[Metric, ...]
    trace: Recording
    covered: float
    judged: tuple[Judged, ...]
    model: State
    before: State | None
    population_initial: int
    subset_size: int
    counts: Mapping[str, int]
    contact: Contact
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass
class World:
    """Brings the processes of one run together.

    Attributes
    ----------
    experiment : Experiment
    method : str
    task : Task
    executor : Executor or Learning
        Where clients train, or what answers orders in their place: a `Placeholder` makes it a
        run without learning, whatever `experiment.fidelity` says.
    source : MobilitySource
    observer : callable
        Told about progress.
    books : Books or None
        Where to write down what happens; None keeps it for the outcome.
    covered : float
        Simulated seconds of traffic so far.
    parameters : Parameters or None
        Of the method; None until the warm-up is over.
    """

    experiment: Experiment
    method: str
    task: Task
    executor: Executor | Learning
    source: MobilitySource
    observer: Observer = ignore
    books: Books | None = None
    covered: float = 0.0
    parameters: Parameters | None = None
    _most: int = 0
    _joined: bool = False
    _reported: float = float("-inf")
    _coordinating: simpy.Process | None = None

    def __post_init__(self) -> None:
        self._rows: list[LedgerRow] = []
        self._metrics: list[Metric] = []
        self._recorder, self._tally = Recorder(), Tally(initial=0, size=0)
        self._books = self.books or Books(
            self._rows.extend, self._metrics.extend, self._recorder.add
        )
        experiment = self.experiment
        editing = experiment.editing
        self.env = simpy.Environment(initial_time=0)
        self.fleet = Fleet(
            self.task.streams,
            experiment.clients.pool,
            experiment.mobility.participation,
            returning=not isinstance(self.source, MadeSource),
        )
        # A replayed trace says itself under which rule it was recorded.
        rules = (experiment.mobility.membership, self.source.provenance.get("membership"))
        located = any(rule in ("rsu", "multi_rsu") for rule in rules)
        self.air = Air(self.env, experiment, self.task.streams, located)
        self.jobs = Jobs(self.env, self.air, experiment.work, self.fleet.holds)
        self.proxy = (
            Proxy(self.env, self.jobs, experiment.work.proxy_s, self._ask)
            if experiment.work.departure == "withdraw_by_proxy"
            else None
        )
        # Where nobody's going changes work in hand, the world may stand still after the last
        # request.
        self._ends_at_once = not located and experiment.work.departure == "finish"
        # A hand-written trace may say anything here.
        density = self.source.provenance.get("density")
        method = METHODS[self.method]
        if method.in_rounds:
            Rounds.from_config(experiment.rounds, experiment.learning.epochs).check()
        by = rule(
            method.rule,
            experiment.fusion,
            experiment.fisher,
            experiment.server.billed_iterations,
            experiment.rounds.distillation,
        )
        if chooses(by.statistic) and not any(map(len, self.task.holdouts)):
            raise ConfigError(
                f"{self.method} chooses by pictures that clients hold out, and data.holdout "
                f"{experiment.data.holdout:g} leaves none; raise data.holdout"
            )
        self.coordinator = Coordinator(
            env=self.env,
            task=self.task,
            learning=(
                self.executor
                if isinstance(self.executor, Learning)
                else Real(self.task, self.executor)
            ),
            costs=costs(experiment, self.task, by),
            jobs=self.jobs,
            account=Account(
                run=f"{self.method}-{spec_hash(experiment, self.method)}",
                seed=self.task.streams.seed,
                method=self.method,
                rho=editing.rho,
                density=float(density) if isinstance(density, int | float) else None,
                measured=experiment.time.mode == "measured",
            ),
            method=method,
            rule=by,
            handling=editing.handling,
            bill=self._books.rows,
            note=self._note,
            watch=self._count,
        )
        self._bytes = dict.fromkeys(TARIFFS, 0)
        self._triggered = 0

    def run(self) -> Outcome:
        """Run to the last request, or to the end of the traffic.

        Raises
        ------
        ScenarioError
            If nobody joins, or fewer than the wanted initial clients.
        ConfigError
            If rho gives an empty subset of those who are there.
        """
        self.env.process(self._traffic())
        self.env.run()
        if self.coordinator.state is None or self.parameters is None:
            raise self._never_started()
        return Outcome(
            ledger=tuple(self._rows),
            metrics=tuple(self._metrics),
            trace=Recording(self._recorder.columns(), self.covered),
            covered=self.covered,
            judged=tuple(self.coordinator.judged),
            model=self.coordinator.state.fused.model,
            before=self.coordinator.before,
            population_initial=self._tally.initial,
            subset_size=self.parameters.size,
            counts={
                **self.source.counts(),
                "requests": self._tally.requests,
                "without_partition": self.fleet.without_partition,
                "not_participating": self.fleet.not_participating,
                "refused": len(self.coordinator.refusals),
                "ignored": self.coordinator.ignored,
                "lost": self.jobs.lost,
            },
            contact=contact(self._tally, self.jobs),
            notes=remarks.notes(
                METHODS[self.method], self.coordinator.rule.statistic, self.parameters, self.task
            ),
            warnings=remarks.warnings(
                self.experiment,
                self._tally,
                self.source.warmup,
                self.jobs,
                self.coordinator.refusals,
            ),
        )

    def _traffic(self) -> Generator[simpy.Event, Any, None]:
        """Follow the traffic step by step; the clock advances with it."""
        start = micros(self.source.warmup)
        wanted, told = self.experiment.editing.requests, False
        for step in self.source.steps():
            now = micros(step.time)
            if self.parameters is None and start <= now and self._ready():
                # The warm-up ends between two events, at the same time in a live run and
                # in a replay.
                yield Moment(self.env, max(start, int(self.env.now)))
                self._begin()
            yield Moment(self.env, now)
            if self._answered():
                return
            self._follow(step)
            if self.parameters is None and start <= now and self._ready():
                self._begin()
            self._report(step.time)
            if not told and self.fleet.requests >= wanted:
                self.coordinator.ask(None)
                told = True
                if self._ends_at_once:
                    return
        if self.parameters is None and self._ready():
            # A trace may say nothing between its last event and the end of the warm-up.
            yield Moment(self.env, max(start, int(self.env.now)))
            self._begin()
        self.air.end()
        self.jobs.moved()
        if not told:
            if self.proxy:
                yield self.proxy.settled()
            self.coordinator.ask(None)

    def _follow(self, step: Step) -> None:
        """Take in one step of the traffic."""
        self._books.steps(step)
        self._joined = self._joined or bool(step.events)
        self.covered = step.time
        self.air.follow(step.events, step.distances)
        if self.proxy:
            self._ask(self.proxy.hear(step.events))
        else:
            for event in step.events:
                if event.kind == "leave":
                    self.jobs.left(event.vehicle)
            self._ask(step.events)
        self.jobs.moved()

    def _ask(self, events: Sequence[MobilityEvent]) -> None:
        """Pass on the requests that follow from changes of the membership."""
        for request in self.fleet.take(events):
            if request.number <= self.experiment.editing.requests:
                self.coordinator.ask(request)

    def _answered(self) -> bool:
        """Whether the coordinator has answered all requests, so that nobody need move on."""
        return self._coordinating is not None and not self._coordinating.is_alive

    def _ready(self) -> bool:
        """Whether enough vehicles take part now; remembers the most there were."""
        self._most = max(self._most, self.fleet.present)
        return self.fleet.present >= (self.experiment.clients.initial or 1)

    def _begin(self) -> None:
        """End the warm-up: fix M0 and P and let the coordinator train."""
        population = self.fleet.start(self.experiment.clients.initial)
        rho = self.experiment.editing.rho
        size = subset_size(rho, len(population))
        if size < 1:
            raise ConfigError(
                f"editing.rho {rho} of {len(population)} initial clients gives an empty subset "
                "(P = 0); raise editing.rho or let more vehicles take part"
            )
        self._tally = Tally(len(population), size)
        experiment = self.experiment
        rounds = Rounds.from_config(experiment.rounds, experiment.learning.epochs)
        self.parameters = Parameters(size, experiment.editing.below_subset, rounds)
        self._coordinating = self.env.process(self.coordinator.run(population, self.parameters))

    def _never_started(self) -> ScenarioError:
        if not self._joined:
            return ScenarioError(
                f"no vehicle ever joined in {self.covered:g} simulated seconds; "
                "check the scenario's demand, the RSU position and mobility.membership"
            )
        return ScenarioError(
            f"clients.initial asks for {self.experiment.clients.initial or 1} vehicles that "
            f"take part; after the warm-up there were never more than {self._most} at a time; "
            "lower it, or raise mobility.participation or the traffic's density"
        )

    def _note(self, metrics: Sequence[Metric]) -> None:
        self._tally.add(metrics)
        self._books.metrics(metrics)

    def _count(self, rows: Sequence[LedgerRow]) -> None:
        if self.observer is ignore:
            return
        if rows[0].request > 0:
            for tariff, price in TARIFFS.items():
                self._bytes[tariff] += price(rows).total
            self._triggered += rows[0].triggered
        self._report(seconds(int(self.env.now)), force=True)

    def _report(self, time: float, force: bool = False) -> None:
        if self.observer is ignore or (not force and time < self._reported + _REPORT_EVERY):
            return
        self._reported = time
        last, state = self._tally.last, self.coordinator.state
        started = self.parameters is not None
        self.observer(
            Progress(
                method=self.method,
                seed=self.task.streams.seed,
                phase=("editing" if last else "training") if started else "warm-up",
                time=time,
                population=self.fleet.size if started else self.fleet.present,
                subset=len(state.subset) if state else 0,
                done=last.request if last else 0,
                wanted=self.experiment.editing.requests,
                triggered=self._triggered,
                bytes=dict(self._bytes),
                quality=_quality(last) if last else None,
            )
        )


def _quality(metric: Metric) -> tuple[str, float] | None:
    """Return the name of what was measured of a model, and the value."""
    measured = {"accuracy": metric.accuracy, "mAP50-95": metric.map50_95}
    for name, value in measured.items():
        if value is not None and not isnan(value):
            return name, value
    return None
