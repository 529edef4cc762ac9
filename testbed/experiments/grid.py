"""The points of a sweep: one experiment for every combination of the values of some keys."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import yaml

from testbed.config import Experiment, canonical, load, spec_hash
from testbed.config.documents import fault, parse, show
from testbed.config.schema import ExecutionConfig
from testbed.errors import ConfigError

SHORT = {"rho": "editing.rho", "density": "mobility.density", "alpha": "data.alpha"}
MOST = 10_000  # cells without --yes
_MOST_SEEDS = 1_000_000
TOGETHER = "*"  # the key of an axis whose values are several sections

# Keys that a point must not change, and what to do instead.
_FIXED = {
    "seeds": "give them with --seeds",
    "editing.methods": "give them with --methods",
    "name": "it changes no result",
    "execution": "it changes no result; use --set",
}
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")
_LONGEST = 120  # characters of a folder's name


@dataclass(frozen=True)
class Axis:
    """One ``--grid``.

    Attributes
    ----------
    key : str
        As written, perhaps one of `SHORT`.
    values : tuple
        As YAML gave them; of a whole section, or of several, mappings.
    """

    key: str
    values: tuple[Any, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The dotted keys of the configuration that change."""
        prefix = "" if self.key == TOGETHER else self.path
        leaves = dict.fromkeys(leaf for value in self.values for leaf in _leaves(value, prefix))
        return tuple(leaf.removeprefix(".") for leaf in leaves)

    @property
    def path(self) -> str:
        """The dotted key of the configuration."""
        return SHORT.get(self.key, self.key)


@dataclass(frozen=True)
class Point:
    """One combination of values.

    Attributes
    ----------
    name : str
        Of its folder, such as ``rho=0.3,mobility.density=3.6``.
    experiment : Experiment
        With the seeds and the methods of the sweep.
    """

    name: str
    experiment: Experiment

    @property
    def cells(self) -> int:
        """Number of runs: methods times seeds."""
        return len(self.experiment.editing.methods) * len(self.experiment.seeds)


@dataclass(frozen=True)
class Grid:
    """All points of a sweep, in the order of the axes, the last one fastest."""

    axes: tuple[Axis, ...]
    points: tuple[Point, ...]

    @property
    def cells(self) -> int:
        """Number of runs."""
        return sum(point.cells for point in self.points)

    @property
    def execution(self) -> ExecutionConfig:
        """How the work is done, which is the same for all points."""
        return self.points[0].experiment.execution

    def spread(self) -> "Grid":
        """Return the grid with its work done by a pool of processes, unless it says by what."""
        if "kind" in self.execution.model_fields_set:
            return self
        execution = self.execution.model_copy(update={"kind": "processes"})
        points = (
            replace(point, experiment=point.experiment.model_copy(update={"execution": execution}))
            for point in self.points
        )
        return replace(self, points=tuple(points))


def read_grid(
    config: Path,
    axes: Sequence[str],
    settings: Sequence[str] = (),
    seeds: str | None = None,
    methods: str | None = None,
    most: int | None = MOST,
) -> Grid:
    """Make the points of a sweep from what the command line says.

    Parameters
    ----------
    config : Path
        A configuration file.
    axes : sequence of str
        ``"rho=0.1,0.3"``: a dotted key or a short name, and YAML values.
    settings : sequence of str
        ``--set`` values, below the grid's.
    seeds : str, optional
        ``"0:3"`` for 0, 1, 2, or ``"0,4"``; default: the file's.
    methods : str, optional
        ``"fsosa,retrain"``; default: the file's.
    most : int or None
        The most cells allowed; None for any number.

    Raises
    ------
    ConfigError
        If a key or value is not allowed, or there are no cells or too many.
    """
    parsed = tuple(map(_axis, axes))
    if not parsed:
        raise ConfigError("a sweep needs at least one --grid KEY=V1,V2, as --grid rho=0.1,0.5")
    changed = Counter(key for axis in parsed for key in {axis.path, *axis.keys})
    twice = [path for path, n in changed.items() if n > 1]
    if twice:
        raise ConfigError(f"--grid {twice[0]} stands twice; write all its values in one")
    shared = list(settings)
    if seeds is not None:
        shared.append(f"seeds={list(_seeds(seeds))}")
    if methods is not None:
        shared.append(f"editing.methods=[{methods}]")
    combinations = product(*(axis.values for axis in parsed))
    first = _experiment(config, shared, parsed, next(combinations))
    _limit(prod(len(axis.values) for axis in parsed) * Point("", first).cells, most)
    experiments = [first, *(_experiment(config, shared, parsed, each) for each in combinations)]
    names = [_name(parsed, each) for each in experiments]
    points = tuple(map(Point, _unique(names, experiments), experiments))
    return Grid(parsed, points)


def _axis(text: str) -> Axis:
    key, sign, written = (part.strip() for part in text.partition("="))
    if not sign or not key:
        raise ConfigError(f"--grid {show(text)}: write KEY=V1,V2, for example rho=0.1,0.5")
    try:
        values = parse(f"[{written}]")
    except yaml.YAMLError as error:
        raise ConfigError(f"--grid {key}: {show(written)}{fault(error)}") from None
    if not values:
        raise ConfigError(
            f"--grid {key} has no values, so the grid has 0 cells; name at least one"
        )
    # Only what JSON knows can be written into a folder.
    axis = Axis(key, tuple(json.loads(json.dumps(values, default=str))))
    if key == TOGETHER and not all(isinstance(each, Mapping) and each for each in axis.values):
        raise ConfigError(
            f"--grid {key}: each value holds sections, as {{clients: {{pool: 50}}}}, not "
            f"{show(written)}"
        )
    for changed in {axis.path, *axis.keys}:
        for fixed, advice in _FIXED.items():
            if f"{changed}.".startswith(f"{fixed}."):
                raise ConfigError(f"--grid {key}: not a key to sweep over; {advice}")
    return axis


def _seeds(text: str) -> Sequence[int]:
    first, colon, end = text.partition(":")
    try:
        found = range(int(first), int(end)) if colon else [int(each) for each in text.split(",")]
    except ValueError:
        raise ConfigError(
            f"--seeds {show(text)}: write FIRST:END, for example 0:3, or a list 0,1,2"
        ) from None
    if len(found) > _MOST_SEEDS:
        raise ConfigError(f"--seeds {text} names {len(found):,} seeds, more than {_MOST_SEEDS:,}")
    if not found:
        raise ConfigError(f"--seeds {text} names no seed, so the grid has 0 cells; 0:3 is 0, 1, 2")
    return found


def _experiment(
    config: Path, shared: Sequence[str], axes: Sequence[Axis], values: Sequence[Any]
) -> Experiment:
    # JSON is YAML, and says what is text.
    own = [
        f"{key}={json.dumps(each)}"
        for axis, value in zip(axes, values, strict=True)
        for key, each in (value if axis.key == TOGETHER else {axis.path: value}).items()
    ]
    return load(config, [*shared, *own])


def _limit(count: int, most: int | None) -> None:
    if most is not None and count > most:
        raise ConfigError(
            f"the grid has {count:,} cells, more than {most:,}; name fewer values, or say --yes"
        )


def _name(axes: Sequence[Axis], experiment: Experiment) -> str:
    """Name a point by the values as they were understood."""
    parts = []
    for axis in axes:
        for key in axis.keys:
            value = reduce(getattr, key.split("."), experiment)
            written = key if axis.key == TOGETHER else axis.key + key.removeprefix(axis.path)
            parts.append(f"{written}={_word(value)}")
    return ",".join(parts)


def _leaves(value: Any, prefix: str) -> list[str]:
    """Return the dotted keys of a section; of any other value the empty one."""
    if not isinstance(value, Mapping):
        return [prefix]
    return [leaf for key, below in value.items() for leaf in _leaves(below, f"{prefix}.{key}")]


def _word(value: Any) -> str:
    if isinstance(value, Path):
        value = value.name
    if isinstance(value, tuple):
        return "+".join(map(_word, value))
    text = "unset" if value is None else str(value)
    return _UNSAFE.sub("_", text.removesuffix(".0") if isinstance(value, float) else text)


def _unique(names: Sequence[str], experiments: Sequence[Experiment]) -> list[str]:
    """Tell points of one name, and names that are too long, apart by their hash."""
    seen: set[str] = set()
    for name, experiment in zip(names, experiments, strict=True):
        if (content := canonical(experiment)) in seen:
            raise ConfigError(f"two points of the grid are the same, {name}; name each value once")
        seen.add(content)
    often = Counter(names)
    return [
        name
        if often[name] == 1 and len(name) <= _LONGEST
        else f"{name[:_LONGEST]}~{spec_hash(experiment)}"
        for name, experiment in zip(names, experiments, strict=True)
    ]
