"""The settings of a sweep, found by comparing the configurations of its runs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from testbed.config.documents import parse
from testbed.errors import ResultsError
from testbed.experiments.grid import SHORT
from testbed.experiments.rundir import Run, find_runs
from testbed.reporting.comparison import manifest_value, remembered

Setting = tuple[Any, ...]

# Of keys that change together, the first one here stands for all; then the schema's order.
_FIRST = (
    "data.name",
    "data.path",
    "editing.rho",
    "mobility.density",
    "mobility.arrivals.per_minute",
    "clients.initial",
    "data.alpha",
)
_TEXTS = {
    "clients.initial": "M0 = {}",
    "clients.pool": "{} partitions",
    "data.alpha": "α = {}",
    "data.name": "{}",
    "data.partition": "{}",
    "data.path": "{}",
    "editing.handling": "{}",
    "editing.requests": "{} requests",
    "editing.rho": "ρ = {}",
    "fisher.kind": "{} Fisher",
    "fusion.preset": "{} preset",
    "learning.epochs": "{} epochs",
    "learning.model": "{}",
    "mobility.arrivals.mean_stay": "stay {} s",
    "mobility.arrivals.per_minute": "{} arrivals/min",
    "mobility.density": "departure gap {} s",
    "mobility.membership": "{}",
    "mobility.scale": "traffic × {}",
    "mobility.scenario": "{}",
    "mobility.schedule.interval": "change every {} s",
    "mobility.schedule.kind": "{}",
    "mobility.schedule.vehicles": "{} vehicles",
    "time.mode": "{} time",
}
_BUNDLE = "npz"  # the format of data that have the name of their file
# What does not change a result, or is no setting of a single run.
_APART = ("name", "scale", "seeds", "execution", "editing.methods")


def read(folder: Path, where: Sequence[str] = ()) -> tuple[Run, ...]:
    """Read the runs below `folder`, of one experiment or of several.

    Parameters
    ----------
    folder : Path
    where : sequence of str
        ``"rho=0.5"``: keep the runs whose configuration has this value.

    Raises
    ------
    ResultsError
        If there are none, one is damaged, two are of the same setting, method and seed, or
        `where` names what no run has.
    """
    runs = find_runs(folder)
    seen: dict[tuple[str, int, str], Path] = {}
    for run in runs:
        cell = run.method, run.seed, json.dumps(configuration(run), sort_keys=True)
        other = seen.setdefault(cell, run.folder)
        if other != run.folder:
            raise ResultsError(
                f"{folder}: holds {run.method} with seed {run.seed} twice, in {other} and "
                f"{run.folder}; name a folder that holds one of them"
            )
    for condition in where:
        runs = _selected(runs, condition)
    return runs


@remembered
def configuration(run: Run) -> Mapping[str, Any]:
    """Return the values of a run's configuration by dotted key, lists as JSON."""
    return {
        key: value
        for key, value in _flat(manifest_value(run, "config"), "")
        if not any(f"{key}.".startswith(f"{apart}.") for apart in _APART)
    }


def _flat(section: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, Any]]:
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(value) if isinstance(value, list) else value


def changing(runs: Iterable[Run]) -> tuple[str, ...]:
    """Return every key whose value is not the same in all runs."""
    all_of_them = [configuration(run) for run in runs]
    keys = dict.fromkeys(key for values in all_of_them for key in values)
    return tuple(key for key in keys if len({values.get(key) for values in all_of_them}) > 1)


def varying(runs: Iterable[Run], first: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the fewest keys that tell the settings apart, those of `first` before others.

    A key whose value follows from keys before it, as ``data.path`` from ``data.name``, is
    left out.
    """
    runs = tuple(runs)
    wanted = (*first, *_FIRST)
    candidates = sorted(
        changing(runs), key=lambda key: wanted.index(key) if key in wanted else len(wanted)
    )
    kept: tuple[str, ...] = ()
    told = 1
    for key in candidates:
        settings = {setting(run, (*kept, key)) for run in runs}
        if len(settings) > told:
            kept, told = (*kept, key), len(settings)
    return kept


def setting(run: Run, keys: Sequence[str]) -> Setting:
    """Return the values of some keys."""
    values = configuration(run)
    return tuple(values.get(key) for key in keys)


def grouped(runs: Iterable[Run], keys: Sequence[str]) -> Mapping[Setting, tuple[Run, ...]]:
    """Group runs by the values of some keys, in order of these."""
    groups: dict[Setting, list[Run]] = {}
    for run in runs:
        groups.setdefault(setting(run, keys), []).append(run)
    return {values: tuple(groups[values]) for values in sorted(groups, key=_place)}


def _place(values: Setting) -> list[tuple[int, float, str]]:
    """Order numbers by size, before text by alphabet."""
    return [
        (0, value, "") if isinstance(value, int | float) else (1, 0.0, str(value))
        for value in values
    ]


def text(keys: Sequence[str], values: Setting, of: Run | None = None) -> str:
    """Name a setting; `of`, one of its runs, tells the file of data without another name.

    >>> text(["editing.rho", "data.name", "fusion.rtol"], (0.5, "mnist", 1e-06))
    'ρ = 0.5, mnist, fusion.rtol = 1e-06'
    """
    named: Mapping[str, Any] = dict(zip(keys, values, strict=True))
    if of and named.get("data.name") == _BUNDLE:
        named = {**named, "data.path": configuration(of)["data.path"]}
    if "data.path" in named:
        named = _data(named)
    return ", ".join(
        _TEXTS.get(key, f"{key} = {{}}").format(_word(value)) for key, value in named.items()
    )


def _data(named: Mapping[str, Any]) -> Mapping[str, Any]:
    """Name data by their format or their file, by both where one does not tell."""
    name, path = named.get("data.name"), named["data.path"]
    file = Path(str(path)).stem if path is not None else ""
    if not file or (name and file.startswith(str(name))):
        hidden = "data.path"
    else:
        hidden = "data.name" if name == _BUNDLE else ""
    shown = {**named, "data.path": file or None}
    return {key: value for key, value in shown.items() if key != hidden or len(shown) == 1}


def short(key: str) -> str:
    """Return the name by which a key is written on the command line."""
    return next((name for name, dotted in SHORT.items() if dotted == key), key)


def one_setting(runs: Sequence[Run], what: str) -> None:
    """Refuse runs of several settings for a drawing that shows one.

    Raises
    ------
    ResultsError
        Saying how to choose one.
    """
    keys = varying(runs)
    if keys:
        first = grouped(runs, keys)
        raise ResultsError(
            f"{what} shows one setting and these runs have {len(first)}; choose one with "
            f"{_conditions(keys, next(iter(first)))}, or name its folder"
        )


def _conditions(keys: Sequence[str], values: Setting) -> str:
    return " ".join(
        f"--where {short(key)}={_word(value)}" for key, value in zip(keys, values, strict=True)
    )


def too_many(
    runs: Sequence[Run],
    keys: Sequence[str],
    what: str,
    wider: bool = False,
    unnamed: bool = False,
) -> ResultsError:
    """Return the error that a drawing has no room for all settings of these `keys`.

    `wider` says that there is room at the width of two columns, `unnamed` that only their
    names are too long.
    """
    groups = grouped(runs, keys)
    last = next(iter(groups))[-1]
    names = f" with names as long as theirs (keys that differ: {len(keys)})" if unnamed else ""
    return ResultsError(
        f"{what} has no room for {len(groups)} settings{names}; choose some, as with "
        f"{_conditions(keys[-1:], (last,))}{', or take --width double' if wider else ''}"
    )


def _selected(runs: Sequence[Run], condition: str) -> tuple[Run, ...]:
    key, sign, written = (part.strip() for part in condition.partition("="))
    key = SHORT.get(key, key)
    known = dict.fromkeys(name for run in runs for name in configuration(run))
    if not sign or key not in known:
        names = ", ".join(map(short, changing(runs))) or "nothing"
        raise ResultsError(f"--where {condition}: write KEY=VALUE; what differs here: {names}")
    try:
        wanted = parse(written)
    except yaml.YAMLError:
        wanted = written
    chosen = tuple(run for run in runs if configuration(run)[key] in (wanted, written))
    if not chosen:
        values = ", ".join(_word(value) for (value,) in grouped(runs, [key]))
        raise ResultsError(f"--where {condition}: no run has that; {short(key)} is {values} here")
    return chosen


def _word(value: Any) -> str:
    if value is None:
        return "unset"
    return f"{value:g}" if isinstance(value, float) else str(value)
