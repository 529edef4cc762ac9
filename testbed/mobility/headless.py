"""A scenario's ``.sumocfg`` without its outputs, so that its folder can be read-only.

SUMO itself reads the file (it knows every synonym and notation) and writes it back with
canonical names and sections; outputs, logs and GUI options are then dropped.  What the
network, the routes and the additional files themselves ask to be written (by detectors,
devices of vehicles, actuated traffic lights) keeps its effect and goes to ``/dev/null``.
"""

import gzip
import hashlib
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from testbed.errors import ScenarioError
from testbed.mobility.sumo import program, run_tool

_DROPPED_SECTIONS = {"configuration", "output", "report", "gui_only", "traci_server"}
# Rerouting threads make runs differ; seed and step length come from the experiment.
_DROPPED = re.compile(
    r"seed|random|step-length|device\.rerouting\.threads|device\.toc\.file"
    r"|device\.(rerouting|taxi)\..*output"
)
_FALSE = {"0", "no", "false", "off", "-", "f"}
_NOWHERE = "/dev/null"
_FILES = ("net-file", "route-files", "additional-files", "weight-files", "load-state")
# Elements that write, and the attribute that names the file.
_WRITERS = {
    **dict.fromkeys(
        (
            "e1Detector", "inductionLoop", "instantInductionLoop", "e2Detector",
            "laneAreaDetector", "e3Detector", "entryExitDetector", "edgeData", "laneData",
            "routeProbe", "vTypeProbe",
        ),
        "file",
    ),
    "timedEvent": "dest",
    "calibrator": "output",
}  # fmt: skip
# Parameters of vehicles, their types and traffic lights that name a file to write.
_WRITING_KEYS = ("device.ssm.file", "device.toc.file", "file")
_MARKS = tuple(
    mark.encode()
    for mark in (
        *(f"<{tag}" for tag in _WRITERS),
        *(f"={sign}{key}{sign}" for key in _WRITING_KEYS for sign in "\"'"),
    )
)
_SILENCED = ("net-file", "route-files", "additional-files")
_POINTERS = ("file", "href", "imgFile")


@dataclass(frozen=True)
class Headless:
    """A configuration that writes nothing.

    Attributes
    ----------
    config : Path
        The file to give to ``sumo -c``.
    fingerprint : str
        SHA-256 of the original configuration and of every input file, inflated.
    """

    config: Path
    fingerprint: str


def headless(sumocfg: Path, folder: Path, routes: Path | None = None) -> Headless:
    """Write a copy of `sumocfg` that writes nothing into `folder`.

    Parameters
    ----------
    sumocfg : Path
    folder : Path
        An existing folder for the copy.
    routes : Path, optional
        Route file to use instead of the configured ones.

    Raises
    ------
    ScenarioError
        If SUMO cannot read the configuration, an input file is missing, or the
        configuration asks for randomness that no seed repeats.
    """
    canonical = folder / "canonical.sumocfg"
    try:
        run_tool(
            [
                program("sumo"),
                "-c",
                str(sumocfg.resolve()),
                "--save-configuration",
                canonical.name,
            ],
            folder,
        )
    except ScenarioError as error:
        raise ScenarioError(f"{sumocfg} cannot be read: {error}") from error
    tree = ET.parse(canonical)
    root = tree.getroot()
    for section in list(root):
        for option in list(section):
            if option.tag == "random" and option.get("value", "").lower() not in _FALSE:
                raise ScenarioError(
                    f"{sumocfg} sets random to {option.get('value')!r}: no two runs would be "
                    "alike; remove it, the experiment's seed is used"
                )
            if _DROPPED.fullmatch(option.tag):
                section.remove(option)
        if section.tag in _DROPPED_SECTIONS:
            root.remove(section)
    inputs = _inputs(root, sumocfg, folder, routes)
    config = folder / "headless.sumocfg"
    tree.write(config, encoding="utf-8", xml_declaration=True)
    return Headless(config, fingerprint([sumocfg, *inputs]))


def fingerprint(files: Iterable[Path]) -> str:
    """SHA-256 over the inflated contents of `files`, in order, lengths included."""
    digest = hashlib.sha256()
    for path in files:
        content = inflated(path)
        digest.update(f"{len(content)}:".encode())
        digest.update(content)
    return digest.hexdigest()


def inflated(path: Path) -> bytes:
    """Read a file, through gzip when its name says so.

    Raises
    ------
    ScenarioError
        If it cannot be read.
    """
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError) as error:
        raise ScenarioError(f"cannot read {path}: {error}") from error


def _inputs(root: ET.Element, sumocfg: Path, folder: Path, routes: Path | None) -> list[Path]:
    """Make the input paths of a canonical configuration absolute and return them."""
    found: list[Path] = []
    for option in root.findall("./input/*"):
        if option.tag not in _FILES:
            continue
        paths = [folder / unquote(part) for part in option.get("value", "").split(",") if part]
        if option.tag == "route-files" and routes is not None:
            paths = [routes]
        for path in paths:
            if not path.is_file():
                fault = "is a folder, not a file" if path.is_dir() else "does not exist"
                raise ScenarioError(
                    f"{sumocfg} names {option.tag} {path.resolve()}, which {fault}"
                )
        found += [path.resolve() for path in paths]
        if option.tag in _SILENCED:
            paths = [
                _silenced(path, folder / f"{option.tag}-{number}.xml")
                for number, path in enumerate(paths)
            ]
        # SUMO reads these values percent-encoded, as it wrote them.
        option.set("value", ",".join(quote(str(path.resolve())) for path in paths))
    if root.find("./input/net-file") is None:
        raise ScenarioError(f"{sumocfg} names no net-file; a scenario needs a road network")
    return found


def _silenced(source: Path, copy: Path) -> Path:
    """Return `source`, or `copy` with every output of `source` sent nowhere."""
    content = inflated(source)
    if not any(mark in content for mark in _MARKS):
        return source
    try:
        root = ET.fromstring(content)
    except ET.ParseError as error:
        raise ScenarioError(f"{source} is not well-formed XML: {error}") from error
    for element in root.iter():
        output = _WRITERS.get(element.tag)
        if element.tag == "param" and element.get("key") in _WRITING_KEYS:
            output = "value"
        for name in list(element.attrib):
            if name == output:
                element.set(name, _NOWHERE)
            elif name in _POINTERS:
                element.set(name, str(source.parent / element.get(name, "")))
    ET.ElementTree(root).write(copy, encoding="utf-8", xml_declaration=True)
    return copy
