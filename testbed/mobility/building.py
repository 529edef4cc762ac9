"""Making the road network and the demand of a generated scenario.

The same settings give the same bytes: the programs of the installed SUMO are seeded, and
what they write about date and place is taken out.
"""

import gzip
import hashlib
import importlib.metadata
import os
import re
import sys
import tempfile
from pathlib import Path

from testbed import files
from testbed.errors import ConfigError
from testbed.mobility.headless import inflated
from testbed.mobility.scenarios import Generator, Options, Scenario, find
from testbed.mobility.sumo import program, run_tool, sumo_home

_COMMENT = re.compile(rb"<!--.*?-->\s*", re.DOTALL)


def build(name: str, density: float, out_dir: Path) -> Path:
    """Write the routes of a generated scenario for another density.

    Parameters
    ----------
    name : str
        A scenario's name or path.
    density : float
        Seconds between departures.
    out_dir : Path

    Returns
    -------
    Path
        The compressed route file; the same density gives the same bytes.

    Raises
    ------
    ConfigError
        If the scenario is not a generated one.
    """
    scenario = find(name)
    path = out_dir / f"{scenario.name}-{density!r}.rou.xml.gz"
    files.write_bytes(path, demand(scenario, density))
    return path


def cached_routes(scenario: Scenario, density: float) -> Path:
    """Return the routes for `density`: the committed ones, or from the user's cache.

    The cache is ``$XDG_CACHE_HOME/fsosa-testbed``, keyed by everything the routes depend
    on, so that it never has to be emptied.

    Raises
    ------
    ConfigError
        If the scenario is not a generated one.
    ResultsError
        If the cache cannot be written.
    """
    generator = _generator(scenario)
    if density == generator.density:
        return scenario.folder / generator.routes
    key = hashlib.sha256(inflated(scenario.folder / generator.net))
    key.update(repr((generator, density, importlib.metadata.version("eclipse-sumo"))).encode())
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = home / "fsosa-testbed" / "routes" / f"{scenario.name}-{key.hexdigest()[:16]}.rou.xml.gz"
    if not path.is_file():
        files.write_bytes(path, demand(scenario, density))
    return path


def demand(scenario: Scenario, density: float) -> bytes:
    """Return compressed routes: one departure every `density` seconds."""
    generator = _generator(scenario)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, str(sumo_home() / "tools" / "randomTrips.py")]
        command += ["-n", str((scenario.folder / generator.net).resolve())]
        command += ["-o", "trips.xml", "-r", "routes.xml", "--validate"]
        command += ["--seed", str(generator.seed), "-b", "0", "-e", f"{generator.end!r}"]
        command += ["-p", f"{density!r}", *_flags(generator.random_trips)]
        run_tool(command, folder)
        return _compressed(folder / "routes.xml")


def network(generator: Generator) -> bytes:
    """Return the compressed road network of a generated scenario."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [program("netgenerate"), "--seed", str(generator.seed), "-o", "net.xml"]
        run_tool([*command, *_flags(generator.netgenerate)], folder)
        return _compressed(folder / "net.xml")


def _generator(scenario: Scenario) -> Generator:
    if scenario.generator is None:
        raise ConfigError(
            f"density is only for generated scenarios and {scenario.name!r} is not one; "
            "leave mobility.density out, its route files set the traffic"
        )
    return scenario.generator


def _flags(options: Options) -> list[str]:
    return [part for name, value in options.items() for part in (f"--{name}", _text(value))]


def _text(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _compressed(path: Path) -> bytes:
    # Level 9 without a time stamp or a name: the bytes depend on the content alone.
    return gzip.compress(_COMMENT.sub(b"", path.read_bytes()), compresslevel=9, mtime=0)
