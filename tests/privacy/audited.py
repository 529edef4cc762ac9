"""Small federations, what is audited of them, and unlearners that are wrong on purpose."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from testbed.config import Experiment
from testbed.editing import fsosa
from testbed.editing.clients import Change, Client
from testbed.editing.fsosa import Diagnostics, Parameters, State
from testbed.editing.methods import METHODS, Method
from testbed.editing.orders import Work
from testbed.execution import Clients, Trained, Tuned
from testbed.experiments.rundir import read_run
from testbed.learning.classification import Classification
from testbed.learning.client import prepare
from testbed.learning.contribution import Contribution
from testbed.privacy.audit import Audit, Sizes, audit
from testbed.privacy.federation import Federation
from testbed.privacy.subject import Subject, subject

SETTINGS: dict[str, Any] = {
    "name": "audited",
    "mobility": {"source": "trace", "warmup": 10},
    "clients": {"initial": 8, "pool": 12},
    "data": {"alpha": 0.3, "holdout": 0.2, "limit": 600},
    "learning": {"model": "mlp", "width": 24, "epochs": 20, "lr": 0.1, "batch": 16},
    "fisher": {"kind": "diagonal"},
    "rounds": {"rounds": 4, "retraining": 2},
    "editing": {"requests": 8, "methods": ["fsosa", "finetune"]},
}
TRACE = "# end: 120.0\ntime,vehicle,kind\n" + "".join(
    f"{time:.1f},{vehicle},{kind}\n"
    for time, vehicle, kind in [
        *((1, f"v{number}", "join") for number in range(8)),
        (20, "v8", "join"),
        (30, "v1", "leave"),
        (40, "v9", "join"),
        (50, "v3", "leave"),
        (60, "v10", "join"),
        (70, "v5", "leave"),
        (80, "v6", "leave"),
        (90, "v1", "join"),
    ]
)
QUICK = Sizes(shadows=60, releases=30, repeats=30, clients=2, pictures=30, relearns=3)


def settings(folder: Path, **sections: Any) -> Experiment:
    """Return the small experiment with some keys changed, section by section."""
    trace = folder / "trace.csv"
    trace.write_text(TRACE)
    merged = {**SETTINGS, "mobility": {**SETTINGS["mobility"], "trace": trace}}
    for name, value in sections.items():
        merged[name] = {**merged.get(name, {}), **value} if isinstance(value, dict) else value
    return Experiment.model_validate(merged)


def folder(runs: Path, method: str) -> Path:
    """Return the run directory of a method in a results folder."""
    (found,) = runs.glob(f"{method}-*/seed=0")
    return found


@dataclass(frozen=True, eq=False)
class Finished:
    """A finished run and its clients."""

    folder: Path
    experiment: Experiment
    task: Classification
    executor: Clients

    @classmethod
    def of(cls, folder: Path) -> "Finished":
        experiment = Experiment.model_validate(read_run(folder).manifest["config"])
        task = prepare(experiment, 0)
        assert isinstance(task, Classification)
        return cls(folder, experiment, task, Clients(task))

    @property
    def subject(self) -> Subject:
        read = read_run(self.folder)
        return subject(
            self.experiment, self.task, self.executor, self.folder, read.manifest, read.metrics
        )

    def federation(self, method: Method | str = "fsosa", size: int = 4) -> Federation:
        chosen = METHODS[method] if isinstance(method, str) else method
        return Federation.of(self.experiment, self.task, self.executor, chosen, size)

    def audit(self, methods: Mapping[str, Method], sizes: Sizes = QUICK) -> Audit:
        return audit(self.subject, self.executor, methods, sizes)


def fleet(count: int) -> tuple[Client, ...]:
    return tuple(Client(f"v{number:02d}", number) for number in range(count))


@dataclass
class Spoiling:
    """An executor whose clients with the given partitions send numbers that are not finite."""

    inner: Clients
    bad: Collection[int]
    counts: None = None

    def train(self, parts: Sequence[int], statistic: str = "fisher") -> list[Trained]:
        return [
            replace(one, contribution=spoiled(one.contribution)) if part in self.bad else one
            for part, one in zip(parts, self.inner.train(parts, statistic), strict=True)
        ]

    def tune(self, parts: Sequence[int], *more: Any) -> list[Tuned]:
        return self.inner.tune(parts, *more)


def spoiled(contribution: Contribution) -> Contribution:
    model = {name: value * float("nan") for name, value in contribution.model.items()}
    return replace(contribution, model=model)


# --- wrong unlearners ------------------------------------------------------------------


def keeping(
    state: State, change: Change, parameters: Parameters, rng: Any
) -> Work[tuple[State, Diagnostics]]:
    """The subset is edited, and the departed's contribution is fused all the same."""
    edited, diagnostics = yield from fsosa.apply(state, change, parameters, rng)
    kept = {**state.contributions, **edited.contributions}
    members = tuple(sorted({*edited.subset, *set(state.subset) & set(change.departures)}))
    wrong = yield from fsosa.build(edited.population, members, kept)
    return replace(edited, fused=wrong.fused), diagnostics


def stale(
    state: State, change: Change, parameters: Parameters, rng: Any
) -> Work[tuple[State, Diagnostics]]:
    """The model released before the edit is released again."""
    edited, diagnostics = yield from fsosa.apply(state, change, parameters, rng)
    return replace(edited, fused=state.fused), diagnostics


def averaging(
    state: State, change: Change, parameters: Parameters, rng: Any
) -> Work[tuple[State, Diagnostics]]:
    """The edited model is averaged with the one before, as smoothing would."""
    edited, diagnostics = yield from fsosa.apply(state, change, parameters, rng)
    model = {
        name: (value + state.fused.model[name]) / 2 for name, value in edited.fused.model.items()
    }
    return replace(edited, fused=replace(edited.fused, model=model)), diagnostics


WRONG = {each.__name__: Method(fsosa.init, each) for each in (keeping, stale, averaging)}
