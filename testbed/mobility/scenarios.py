"""Finding a traffic scenario by name or by path.

A scenario is a folder with one ``.sumocfg`` and, where the testbed should know more than
SUMO does, a ``scenario.yaml`` (which names the ``.sumocfg`` if there are several); a lone
``.sumocfg`` is enough.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import testbed
from testbed.config.documents import fault
from testbed.errors import ScenarioError

DESCRIPTION = "scenario.yaml"
Options = Mapping[str, str | int | float | bool]


@dataclass(frozen=True)
class Generator:
    """How a generated scenario was made.

    Attributes
    ----------
    net, routes : str
        File names inside the scenario's folder.
    density : float
        Seconds between departures of the committed routes.
    seed : int
        Seed of the programs that make the network and the demand.
    end : float
        Seconds of demand.
    netgenerate, random_trips : mapping
        Options of SUMO's ``netgenerate`` and ``randomTrips.py``.
    """

    net: str
    routes: str
    density: float
    seed: int
    end: float
    netgenerate: Options
    random_trips: Options


@dataclass(frozen=True)
class Scenario:
    """A place where traffic can be simulated.

    Attributes
    ----------
    name : str
    folder : Path
    config : Path
        The ``.sumocfg`` file.
    title, origin : str
        What it shows and where it comes from.
    rsu : tuple of (x, y, radius) or None
        Default roadside unit, metres in the network's coordinates.
    warmup : float or None
        Seconds after the start before the clients are counted.
    generator : Generator or None
        Present when demand of another density can be made.
    """

    name: str
    folder: Path
    config: Path
    title: str
    origin: str
    rsu: tuple[float, float, float] | None
    warmup: float | None
    generator: Generator | None


def find(name: str) -> Scenario:
    """Return the scenario called `name`, or the one at the path `name`.

    Parameters
    ----------
    name : str
        A folder of ``sumo_scenarios/``, a ``.sumocfg`` file, or a folder that holds one.

    Raises
    ------
    ScenarioError
        If there is none, with the nearest known name.
    """
    names = known()
    path = names.get(name, Path(name).expanduser())
    if path.is_file() and path.suffix == ".sumocfg":
        return _describe(path.parent, path)
    if path.is_dir():
        return _describe(path, None)
    if path.is_file():
        raise ScenarioError(f"{name!r} is not a .sumocfg file; give one, or its folder")
    nearest = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    raise ScenarioError(
        f"no scenario called {name!r} and no such file; {hint}"
        f"known: {', '.join(names) or 'none'}; or give the path of a .sumocfg"
    )


def known() -> dict[str, Path]:
    """Return the folders of the scenarios that can be called by name.

    ``sumo_scenarios/`` is looked for beside the package (a checkout installed with
    ``pip install -e``), then in the current folder.
    """
    found: dict[str, Path] = {}
    for base in (Path(testbed.__file__).resolve().parents[1], Path.cwd()):
        for description in sorted((base / "sumo_scenarios").glob(f"*/{DESCRIPTION}")):
            found.setdefault(description.parent.name, description.parent)
    return found


def _describe(folder: Path, config: Path | None) -> Scenario:
    described = folder / DESCRIPTION
    about = _mapping(described) if described.is_file() else {}
    if config is None:
        config = folder / about["config"] if "config" in about else _only_config(folder)
    try:
        return _scenario(folder, config, about)
    except (KeyError, TypeError, ValueError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ScenarioError(f"{described}: {what}; see docs/scenarios.md") from error


def _only_config(folder: Path) -> Path:
    configs = sorted(folder.glob("*.sumocfg"))
    if len(configs) != 1:
        raise ScenarioError(
            f"{folder} holds {len(configs)} .sumocfg files; give the path of the one to run"
        )
    return configs[0]


def _scenario(folder: Path, config: Path, about: Mapping[str, Any]) -> Scenario:
    unknown = set(about) - {"title", "origin", "config", "rsu", "warmup", "generator"}
    if unknown:
        raise ValueError(f"unknown key {min(unknown)!r}")
    place = folder.resolve().name
    name = place if about or config.stem == place else f"{place}-{config.stem}"
    rsu, warmup, generator = (about.get(key) for key in ("rsu", "warmup", "generator"))
    return Scenario(
        name=name,
        folder=folder,
        config=config,
        title=str(about.get("title", name)),
        origin=str(about.get("origin", "not described")),
        rsu=(float(rsu["x"]), float(rsu["y"]), float(rsu["radius"])) if rsu else None,
        warmup=None if warmup is None else float(warmup),
        generator=Generator(**generator) if generator else None,
    )


def _mapping(path: Path) -> Mapping[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"cannot read {path}: {' '.join(str(error).split())}") from error
    except yaml.YAMLError as error:
        raise ScenarioError(f"{path}{fault(error)}") from error
    if not isinstance(content, dict):
        raise ScenarioError(f"{path} must hold keys and values; see docs/scenarios.md")
    return content
