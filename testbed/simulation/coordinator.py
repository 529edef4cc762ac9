"""The coordinator as a SimPy process: a queue of edit requests, handled in order."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import simpy

from testbed.editing.clients import Client, normal_form
from testbed.editing.fsosa import Diagnostics, Parameters
from testbed.editing.methods import EditState, Method
from testbed.editing.orders import Fuse, Order, Train, Tune, Work
from testbed.errors import EditError, ScenarioError
from testbed.fusion.rules import Rule
from testbed.learning.acceptance import Unusable
from testbed.learning.blocks import State as Model
from testbed.learning.evaluation import Score
from testbed.learning.task import Session, Task
from testbed.ledger import COORDINATOR, EVERYONE, LedgerRow
from testbed.ledger.rows import Phase, RequestKind, Result
from testbed.simulation.billing import Account, Step
from testbed.simulation.clock import seconds
from testbed.simulation.costs import Costs
from testbed.simulation.fleet import EditRequest
from testbed.simulation.jobs import Assignment, Events, Jobs
from testbed.simulation.learning import Learning
from testbed.simulation.metric import Judged, Metric

Steps = list[Step]
Upload = TypeVar("Upload")


@dataclass(frozen=True)
class Refusal:
    """Work of which nothing usable came; its client is treated as if it had left.

    Attributes
    ----------
    request : int
        In whose handling it came; 0 for the initial training.
    client : Client
    reason : str
        In a few words.
    phase : {"train", "fisher", "upload"}
        What could not be used: as a rule the upload.
    """

    request: int
    client: Client
    reason: str
    phase: Phase = "upload"


@dataclass
class Coordinator:
    """Drives one editing method through the requests of one run.

    Attributes
    ----------
    env : Environment
    task : Task
    learning : Learning
        What comes of orders.
    costs : Costs
    jobs : Jobs
        The clients' work.
    account : Account
    method : Method
    rule : Rule
        Of the method.
    handling : {"sequential", "batch"}
        Whether requests that wait together are handled one by one or as one change.
    bill : callable
        Receives the ledger rows of each handled change.
    note : callable
        Receives the metrics of the requests in it, the initial training first.
    judged : list of Judged
        One per released detector.
    refusals : list of Refusal
        Work of which nothing usable came.
    ignored : int
        Requests without effect: a leave of somebody who is no client any more, a second join.
    state : EditState or None
        The method's state; None until the initial training is over.
    before : mapping of str to Tensor, or None
        The model that the released one has replaced.
    watch : callable
        Called with the ledger rows of each handled change when all is noted.
    """

    env: simpy.Environment
    task: Task
    learning: Learning
    costs: Costs
    jobs: Jobs
    account: Account
    method: Method
    rule: Rule
    handling: Literal["sequential", "batch"]
    bill: Callable[[Sequence[LedgerRow]], None]
    note: Callable[[Sequence[Metric]], None]
    judged: list[Judged] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    ignored: int = 0
    state: EditState | None = None
    before: Model | None = None
    watch: Callable[[Sequence[LedgerRow]], None] = lambda rows: None
    _made: set[int] = field(default_factory=set)
    _score: Score = field(init=False)
    _stored: int = 0

    def __post_init__(self) -> None:
        self._queue: simpy.Store = simpy.Store(self.env)

    def ask(self, request: EditRequest | None) -> None:
        """Put a request into the queue; None says that no more will come."""
        self._queue.put(request)

    def run(self, population: Sequence[Client], parameters: Parameters) -> Events:
        """Train the initial model, then answer requests until there are no more.

        Raises
        ------
        ScenarioError
            If the last client leaves: then there is nobody to make a model of.
        EditError
            If too few clients deliver a usable upload.
        """
        streams = self.task.streams
        work = self.method.init(population, parameters, streams.rng("coordinator", 0))
        state = yield from self._answer((), work)
        while (requests := (yield from self._next())) is not None:
            form = normal_form(state.population, ((each.kind, each.client) for each in requests))
            change = form.change
            self.ignored += len(form.ignored)
            if not change.applied(state.population):
                raise ScenarioError(
                    f"no client is left after request {requests[-1].number}, at "
                    f"{requests[-1].time:g} s, so there is no model to release; raise "
                    "clients.initial, mobility.participation or the traffic's density"
                    f"{self._refused()}"
                )
            rng = streams.rng("coordinator", requests[-1].number)
            work = self.method.apply(state, change, parameters, rng)
            state = yield from self._answer(requests, work)

    def _next(self) -> Events:
        """Wait for a request; in batch handling take all that wait."""
        first = yield self._queue.get()
        if first is None:
            return None
        requests = [first]
        waiting = self._queue.items
        while self.handling == "batch" and waiting and waiting[0] is not None:
            requests.append(waiting.pop(0))
        return requests

    def _answer(self, requests: Sequence[EditRequest], work: Work[Any]) -> Events:
        """Carry out one change, release the model, write it down; return the new state."""
        start = int(self.env.now)
        steps: Steps = []
        number = requests[-1].number if requests else 0
        result = yield from self._drive(work, number, steps)
        state, diagnostics = result if requests else (result, None)
        # Work whose result was refused does not make a new model.
        triggered = self.state is None or state.fused is not self.state.fused
        if triggered and self.state is not None:
            self.before = self.state.fused.model
        self.state = state
        if triggered:
            self._stored = self.learning.stored(state)
        yield from self._release(steps, state.population, triggered)
        if triggered:
            self._score = self._evaluate(state.fused.model, steps)
            if self._score.details:
                self.judged.append(Judged(number, self._score.details))
        rows = self.account.rows(
            steps,
            number,
            _kind(requests),
            population=len(state.population),
            subset=len(state.subset),
            triggered=triggered,
        )
        self.bill(rows)
        self.note(self._metrics(requests, state, diagnostics, start, triggered))
        self.watch(rows)
        return state

    def _drive(self, work: Work[Any], number: int, steps: Steps) -> Events:
        """Feed a method's orders until it returns."""
        known = len(self.refusals)
        try:
            order = next(work)
            while True:
                answer = yield from self._execute(order, number, steps)
                order = work.send(answer)
        except StopIteration as finished:
            return finished.value
        except EditError as error:
            raise EditError(f"{error}{self._refused(known)}") from error

    def _refused(self, known: int = 0) -> str:
        """Say who left with work in hand and name the first refusal after the `known` ones.

        It ends the line of an error.
        """
        lost = self.jobs.lost
        text = f"; {lost} sampled clients left before they delivered" if lost else ""
        if len(self.refusals) == known:
            return text
        first = self.refusals[known]
        return (
            f"{text}; {len(self.refusals) - known} uploads were refused, the first of vehicle "
            f"{first.client.vehicle}: {first.reason}; if training diverged, lower learning.lr"
        )

    def _usable(
        self, uploads: Mapping[Client, Upload | Unusable], lost: Collection[Client], number: int
    ) -> dict[Client, Upload]:
        """Return the uploads that came and can be used; write down whose are refused."""
        usable: dict[Client, Upload] = {}
        for client, upload in uploads.items():
            if client in lost:
                continue
            if isinstance(upload, Unusable):
                self.refusals.append(Refusal(number, client, upload.reason, upload.phase))
            else:
                usable[client] = upload
        return usable

    def _execute(self, order: Order, number: int, steps: Steps) -> Events:
        match order:
            case Train(clients):
                trained = self.learning.train([each.partition for each in clients], self.rule)
                wanted = [
                    self._training(client, one.train_s, one.fisher_s, _useless(one.contribution))
                    for client, one in zip(clients, trained, strict=True)
                ]
                lost = yield from self.jobs.work_on(wanted, steps)
                sent = (one.contribution for one in trained)
                return self._usable(dict(zip(clients, sent, strict=True)), lost, number)
            case Tune(clients, given, epochs, turn, optimiser):
                model = self.task.initial if given is None else given
                clients = tuple(dict.fromkeys(clients))
                session = Session(epochs, turn, optimiser)
                tuned = self.learning.tune([each.partition for each in clients], model, session)
                wanted = [
                    self._tuning(client, one.train_s, session, _useless(one.model))
                    for client, one in zip(clients, tuned, strict=True)
                ]
                lost = yield from self.jobs.work_on(wanted, steps)
                models = (one.model for one in tuned)
                return self._usable(dict(zip(clients, models, strict=True)), lost, number)
            case Fuse(contributions):
                fused = self.learning.fuse(contributions, self.rule)
                micros = self.costs.solve(len(contributions), fused.seconds)
                met = all(solve.converged for solve in fused.value.solves.values())
                result: Result = "ok" if met else "unconverged"
                start = int(self.env.now)
                end, took = start + micros, fused.seconds
                yield self.env.timeout(micros)
                steps.append(Step(COORDINATOR, "solve", start, end, measured=took, result=result))
                return fused.value

    def _training(
        self, client: Client, train_s: float, fisher_s: float, useless: Phase | None
    ) -> Assignment:
        """Ask for a contribution; a prepared one was made on an earlier visit and is only sent."""
        stages = self.costs.contribution(client, train_s, fisher_s)
        reused = client.partition in self._made
        self._made.add(client.partition)
        return Assignment(client, stages, reused, useless)

    def _tuning(
        self, client: Client, train_s: float, session: Session, useless: Phase | None
    ) -> Assignment:
        """Ask for a model made from the present one, which nobody could prepare or keep."""
        stages = self.costs.tuning(client, train_s, session)
        return Assignment(client, stages, useless=useless, repeatable=False, round=session.round)

    def _release(self, steps: Steps, population: Sequence[Client], triggered: bool) -> Events:
        """Send the model to every active client, see `Air.broadcast`.

        An unchanged model need not be sent; its row takes no time and lets tariffs that
        broadcast at every request charge its bytes.
        """
        size, start = self.costs.model_bytes, int(self.env.now)
        if triggered:
            vehicles = [client.vehicle for client in population]
            yield self.env.timeout(self.jobs.air.broadcast(vehicles, size))
        end = int(self.env.now)
        down = size * len(population)
        steps.append(Step(EVERYONE, "broadcast", start, end, network=True, down=down))

    def _evaluate(self, model: Model, steps: Steps) -> Score:
        """Score the released model; the experimenter's work, billed with no time."""
        scored, now = self.learning.score(model), int(self.env.now)
        steps.append(Step(COORDINATOR, "evaluate", now, now, measured=scored.seconds))
        return scored.value

    def _metrics(
        self,
        requests: Sequence[EditRequest],
        state: EditState,
        diagnostics: Diagnostics | None,
        start: int,
        triggered: bool,
    ) -> tuple[Metric, ...]:
        """Return the metrics of the requests that were just handled."""
        solves = list(state.fused.solves.values()) if triggered else []
        replaced = len(diagnostics.admitted) if diagnostics else 0
        return tuple(
            Metric(
                request=request.number if request else 0,
                t=request.time if request else seconds(start),
                kind=request.kind if request else "init",
                vehicle=request.client.vehicle if request else "",
                partition=request.client.partition if request else -1,
                t_start=seconds(start),
                t_end=seconds(int(self.env.now)),
                batch=max(1, len(requests)),
                population=len(state.population),
                subset=len(state.subset),
                subset_changed=bool(diagnostics and (diagnostics.evicted or replaced)),
                replaced=replaced,
                triggered=triggered,
                server_bytes=self._stored,
                accuracy=self._score.accuracy,
                loss=self._score.loss,
                map50_95=self._score.map50_95,
                map50=self._score.map50,
                iterations=max((solve.iterations for solve in solves), default=0),
                residual=max((solve.residual for solve in solves), default=0.0),
                converged=all(solve.converged for solve in solves),
            )
            for request in requests or (None,)
        )


def _useless(upload: object) -> Phase | None:
    """Return the phase of which nothing usable came, if there is one."""
    return upload.phase if isinstance(upload, Unusable) else None


def _kind(requests: Sequence[EditRequest]) -> RequestKind:
    if not requests:
        return "init"
    return requests[0].kind if len(requests) == 1 else "batch"
