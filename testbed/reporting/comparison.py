"""The runs below a folder, checked to be one experiment and grouped by method."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from testbed.config.spec import differences
from testbed.errors import ResultsError
from testbed.experiments.rundir import Run, find_runs
from testbed.ledger import RequestCost, in_order
from testbed.reporting.intervals import Interval, Series, mean
from testbed.reporting.names import label, order

_MOST = 2000  # points of a curve, more than any printer tells apart
Value = TypeVar("Value")


@dataclass(frozen=True)
class Curve:
    """One method's values over the requests.

    Attributes
    ----------
    requests : array of shape (n,)
        0 is the initial training; of very many requests every second, third, ...
    values : Interval
        Over its seeds, up to the shortest run; each of shape (n,).
    """

    requests: Series
    values: Interval


def remembered(function: Callable[[Run], Value]) -> Callable[[Run], Value]:
    """Have `function` work out each run once, as every figure asks again."""
    known: WeakKeyDictionary[Run, Value] = WeakKeyDictionary()

    def recall(run: Run) -> Value:
        if run not in known:
            known[run] = function(run)
        return known[run]

    recall.__doc__ = function.__doc__
    return recall


@remembered
def costs(run: Run) -> tuple[RequestCost, ...]:
    """Return what each request cost, the initial training first."""
    return tuple(in_order(run.ledger))


def load(folder: Path) -> tuple[Run, ...]:
    """Read the runs below `folder` and check that they can be compared.

    Raises
    ------
    ResultsError
        If there are none, one is damaged, or they belong to different experiments.
    """
    runs = find_runs(folder)
    seen: dict[tuple[str, int], Path] = {}
    for run in runs:
        other = seen.setdefault((run.method, run.seed), run.folder)
        unlike = differences(_setting(runs[0]), _setting(run))
        if other != run.folder:
            _refuse(
                folder, f"{run.method} with seed {run.seed} twice, in {other} and {run.folder}"
            )
        if unlike:
            _refuse(folder, f"runs of different experiments ({unlike[0]}, in {run.folder})")
    return runs


def _refuse(folder: Path, content: str) -> NoReturn:
    raise ResultsError(f"{folder}: holds {content}; name the folder of one experiment")


def _setting(run: Run) -> dict[str, Any]:
    """Return the part of the configuration that runs of one comparison share."""
    config = manifest_value(run, "config")
    shared = {key: config[key] for key in config if key not in ("name", "seeds", "execution")}
    editing = dict(manifest_value(run, "config", "editing"))
    editing.pop("methods", None)
    return {**shared, "editing": editing}


def by_method(runs: Iterable[Run]) -> Mapping[str, tuple[Run, ...]]:
    """Group runs by method, in display order."""
    runs = tuple(runs)
    methods = order(run.method for run in runs)
    return {method: tuple(run for run in runs if run.method == method) for method in methods}


def notes(runs: Iterable[Run]) -> list[str]:
    """Return what a reader should know of the methods, each sentence once."""
    found = [
        f"{label(method)}: {sentence}"
        for method, several in by_method(runs).items()
        for run in several
        for sentence in manifest_value(run, "notes")
    ]
    return list(dict.fromkeys(found))


def requests(run: Run) -> int:
    """Return how many requests were made."""
    return int(run.metrics["request"].max())


def column(run: Run, name: str) -> Series:
    """Return a column of the metrics, in order of request, the initial training first."""
    ordered = run.metrics.sort_values("request")[name]
    return np.asarray(ordered, dtype=np.float64)


def cumulative(run: Run, value: Callable[[RequestCost], float]) -> Series:
    """Add up `value` over requests 0, 1, ..., n.

    The initial training counts as 0, unless it is all there is.  A batch is billed on its last
    request, so the sum stands still at the others.
    """
    steps = np.zeros(requests(run) + 1)
    everything = costs(run)
    for cost in [cost for cost in everything if cost.request > 0] or everything:
        steps[cost.request] = value(cost)
    return np.cumsum(steps)


def curve(series: Iterable[Series]) -> Curve:
    """Summarise the series of several seeds."""
    series = tuple(series)
    shortest = min(len(values) for values in series)
    shown = np.arange(0, shortest, -(-shortest // _MOST))
    return Curve(shown.astype(np.float64), mean([values[shown] for values in series]))


def manifest_value(run: Run, *keys: str) -> Any:
    """Return an entry of the manifest.

    Raises
    ------
    ResultsError
        If it is not there.
    """
    value: Any = run.manifest
    for key in keys:
        if not isinstance(value, Mapping) or key not in value:
            raise ResultsError(
                f"{run.folder}: its manifest has no {'.'.join(keys)}; "
                "remove that folder and run the same command again"
            )
        value = value[key]
    return value
