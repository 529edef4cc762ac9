"""Part *erasure*: nothing of an erased client is left, in memory or on disk.

A real run: a recorded trace is replayed through the simulation with the configured method.
After every handled request the coordinator's state is searched, object by object, for the
tensors of all clients that once contributed and are no longer in the subset.  Then the same
run writes its run directory, and every file there is searched in the same way.

The executor, which stands for the clients' own machines, may keep what it computed (see
`testbed.execution.executor`); the state must not refer to it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.config import Experiment
from testbed.editing.methods import METHODS, Method
from testbed.execution.executor import Clients, Trained, Tuned
from testbed.experiments.run import cells, run
from testbed.learning.acceptance import Unusable
from testbed.learning.blocks import State as Model
from testbed.learning.contribution import serialise_model
from testbed.learning.task import ONE_SHOT, Session, Task
from testbed.mobility import MobilityEvent, Trace, open_source, write_trace
from testbed.simulation.world import World
from testbed.verification.changes import tally
from testbed.verification.federation import Plan, plan
from testbed.verification.part import Part
from testbed.verification.remains import Fragment, buffers, files, fragments, occurring

Run = Callable[[Experiment, Path], Iterable[Any]]

_METHOD = "fsosa"
# Long enough for any edit to end before the next change comes.
_BEGIN, _APART = 10.0, 1e6


@dataclass
class Watched:
    """An executor that remembers whose contribution it handed out."""

    inner: Clients
    initial: Model
    fragments: dict[int, tuple[Fragment, ...]] = field(default_factory=dict)

    def train(self, parts: Sequence[int], statistic: str = "fisher") -> list[Trained]:
        """See `testbed.execution.executor.Executor`."""
        trained = self.inner.train(parts, statistic)
        for part, one in zip(parts, trained, strict=True):
            if not isinstance(one.contribution, Unusable):
                self.fragments[part] = fragments(one.contribution, self.initial)
        return trained

    def tune(self, parts: Sequence[int], start: Model, session: Session = ONE_SHOT) -> list[Tuned]:
        """See `testbed.execution.executor.Executor`."""
        return self.inner.tune(parts, start, session)


@dataclass
class Search:
    """What was looked for so far, where, and what was found."""

    executor: Watched
    looks: int = 0
    erased: set[int] = field(default_factory=set)
    memory: int = 0
    found: list[str] = field(default_factory=list)

    def state(self, state: Any) -> None:
        """Search everything reachable from the coordinator's state."""
        self.looks += 1
        gone = self.gone(state)
        self.erased |= gone
        for memory in buffers(state):
            self.memory += len(memory)
            self.within(memory, gone, f"reachable from the state after request {self.looks - 1}")

    def gone(self, state: Any) -> set[int]:
        """Partitions whose clients contributed and are not in the subset any more."""
        return set(self.executor.fragments) - {client.partition for client in state.subset}

    def within(self, memory: bytes, parts: Iterable[int], where: str) -> None:
        """Search `memory` for the tensors of `parts`."""
        for part in sorted(parts):
            self.found += [
                f"{tensor} of the erased client with partition {part} is still {where}."
                for tensor in occurring(self.executor.fragments[part], memory)
            ]


def erasure(
    experiment: Experiment,
    task: Task,
    changes: int,
    work: Path,
    method: Method = METHODS[_METHOD],
    run: Run = run,
) -> Part:
    """Verify that evicted and departed clients are forgotten.

    Parameters
    ----------
    experiment : Experiment
    task : Task
    changes : int
        Length of the sequence.
    work : Path
        An empty folder for the trace and the run directory.
    method : Method
        The method under test.
    run : callable
        What writes the run directory, with the signature of `testbed.experiments.run.run`.
    """
    schedule = plan(experiment, task.streams, changes, "traffic")
    replayed = _replay(experiment, task.streams.seed, schedule, work / "trace.csv")
    search = Search(Watched(Clients(task), task.initial))
    with open_source(replayed.mobility, task.streams.seed) as source:
        world = World(replayed, _METHOD, task, search.executor, source)
        coordinator = world.coordinator
        coordinator.method = method
        coordinator.watch = lambda rows: search.state(coordinator.state)
        outcome = world.run()
    out = work / "results"
    for _ in run(replayed, out):
        pass
    written = files(out)
    gone = search.gone(coordinator.state)
    for path in written:
        search.within(path.read_bytes(), gone, f"on disk, in {path.name} of the results folder")
    (cell,) = cells(replayed, out)
    same = serialise_model(outcome.model) == (cell.folder / "model.safetensors").read_bytes()
    failure = _failure(search, changes, same)
    return Part(
        name="erasure",
        passed=failure is None,
        sentence=failure
        or f"After each of {changes} changes, nothing of the {len(search.erased)} clients "
        "erased on the way was reachable from the coordinator's state, and nothing of the "
        f"{len(gone)} erased at the end is in the {len(written)} files of the results folder.",
        numbers={
            "changes": changes,
            "states_searched": search.looks,
            "bytes_searched_in_memory": search.memory,
            "clients_erased": len(search.erased),
            "clients_erased_at_end": len(gone),
            "fragments": sum(len(search.executor.fragments[part]) for part in search.erased),
            "files_searched": len(written),
            "found": len(search.found),
            **tally(schedule.changes),
        },
    )


def _failure(search: Search, changes: int, same: bool) -> str | None:
    if search.found:
        return search.found[0]
    if not search.erased:
        return f"No client was erased in {changes} changes, so nothing was verified."
    if not same:
        return "The run directory's model is not that of the run that was watched."
    return None


def _replay(experiment: Experiment, seed: int, schedule: Plan, trace: Path) -> Experiment:
    """Turn the plan into a trace, and the experiment into its replay by one method."""
    events = [MobilityEvent(1.0, client.vehicle, "join") for client in schedule.population]
    for number, change in enumerate(schedule.changes):
        time = _BEGIN + (number + 1) * _APART
        events += [MobilityEvent(time, client.vehicle, "leave") for client in change.departures]
        events += [MobilityEvent(time, client.vehicle, "join") for client in change.arrivals]
    write_trace(trace, Trace(tuple(events), end=events[-1].time), {})
    document = experiment.model_dump()
    document["name"] = "certificate"
    document["mobility"] = {"source": "trace", "trace": trace, "warmup": _BEGIN}
    document["clients"]["initial"] = len(schedule.population)
    document["editing"] |= {
        "methods": (_METHOD,),
        "requests": len(events) - len(schedule.population),
        "handling": "batch",
    }
    document["time"] = {"mode": "modelled"}
    document["execution"] = {}
    document["seeds"] = (seed,)
    return Experiment.model_validate(document)
