"""``testbed doctor``: is everything here that a run needs, and if not, how to get it."""

import ctypes
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

PYTHON = (3, 11)
PROJECT = "fsosa-testbed"
LIBRARIES = {
    "libGL.so.1": "libgl1",
    "libX11.so.6": "libx11-6",
    "libXext.so.6": "libxext6",
    "libXrender.so.1": "libxrender1",
    "libexpat.so.1": "libexpat1",
    "libatomic.so.1": "libatomic1",
    "libglib-2.0.so.0": "libglib2.0-0",
}
"""What SUMO's wheels and OpenCV's (extra yolo) need but do not bundle, and Debian's packages."""

_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(>=(?P<minimum>[\d.]+))?")
_APT_INSTALL = ("apt-get", "install", "-y", "--no-install-recommends")
_SUMO_SECONDS = 60


@dataclass(frozen=True)
class Check:
    """One thing a run needs.

    Attributes
    ----------
    what, found : str
    need : str
        What to install or do; empty if all is well.
    by : {"apt", "pip", "hand"}
        How `need` is met.
    """

    what: str
    found: str
    need: str = ""
    by: Literal["apt", "pip", "hand"] = "hand"


def doctor(fix: bool, libraries: Mapping[str, str] = LIBRARIES) -> bool:
    """Print what is here and what is missing; with `fix`, install what Debian offers.

    Parameters
    ----------
    fix : bool
        As root on a Debian-like system, install the packages of missing libraries.
    libraries : mapping of str to str
        Needed system libraries and the Debian package of each.

    Returns
    -------
    bool
        Whether all is well, after fixing.
    """
    console = Console(highlight=False, soft_wrap=True)
    if fix:
        _install([check.need for check in check_libraries(libraries) if check.need], console)
    checks = [
        check_python(),
        *check_distributions(),
        *check_libraries(libraries),
        check_sumo(),
    ]
    table = Table("needed", "found", "")
    for check in checks:
        verdict = "[red]see below[/]" if check.need else "ok"
        table.add_row(escape(check.what), escape(check.found), verdict)
    console.print(table)
    for line in remedies(checks):
        console.print(line, markup=False)
    return not any(check.need for check in checks)


def remedies(checks: Sequence[Check]) -> list[str]:
    """Return what to do about the checks that failed: one command per installer."""
    needs = {
        by: [check.need for check in checks if check.need and check.by == by]
        for by in ("apt", "pip", "hand")
    }
    lines = list(dict.fromkeys(needs["hand"]))
    if needs["apt"]:
        command = shlex.join([*_APT_INSTALL, *needs["apt"]])
        lines.append(
            f"as root: apt-get update && {command}"
            if shutil.which("apt-get")
            else f"with your package manager (Debian's names): {' '.join(needs['apt'])}"
        )
    if needs["pip"]:
        lines.append(f"{sys.executable} -m {shlex.join(['pip', 'install', *needs['pip']])}")
    return lines


def check_python(needed: tuple[int, ...] = PYTHON) -> Check:
    """Check the version of Python."""
    need = (
        "" if sys.version_info >= needed else f"use Python {'.'.join(map(str, needed))} or newer"
    )
    return Check("Python", ".".join(map(str, sys.version_info[:3])), need)


def check_distributions(project: str = PROJECT) -> list[Check]:
    """Check every distribution that `project` requires, without importing any."""
    try:
        required = metadata.requires(project) or []
    except metadata.PackageNotFoundError:
        return [Check(project, "no", "install the testbed itself: pip install -e .")]
    return [check_distribution(line) for line in required if "extra ==" not in line]


def check_distribution(requirement: str) -> Check:
    """Check one requirement: a name and perhaps a least version, like ``"numpy>=1.26"``."""
    match = _REQUIREMENT.match(requirement)
    name, minimum = match.group("name", "minimum") if match else (requirement, None)
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Check(name, "no", requirement, "pip")
    old = _numbers(version) < _numbers(minimum or "")
    return Check(name, version, requirement if old else "", "pip")


def check_libraries(libraries: Mapping[str, str] = LIBRARIES) -> list[Check]:
    """Check that the dynamic linker can load each library."""
    return [
        Check(library, "yes") if _loads(library) else Check(library, "no", package, "apt")
        for library, package in libraries.items()
    ]


def check_sumo(package: str = "sumo") -> Check:
    """Run the SUMO binary that came with the ``eclipse-sumo`` wheel and read its version."""
    spec = find_spec(package)
    folders = (spec.submodule_search_locations if spec else None) or []
    binary = next(
        (path for path in (Path(f, "bin", "sumo") for f in folders) if path.exists()), None
    )
    if binary is None:
        return Check("sumo", "no", "eclipse-sumo", "pip")
    try:
        done = subprocess.run(
            [binary, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SUMO_SECONDS,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        reason = _first_line(error.stderr) or f"exit status {error.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = _first_line(str(error))
    else:
        return Check("sumo", _first_line(done.stdout))
    return Check("sumo", reason, f"SUMO does not start ({binary}): {reason}")


def _install(packages: list[str], console: Console) -> None:
    """Run apt-get for `packages` if that can work here; `remedies` has the words if not."""
    if not packages or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], [*_APT_INSTALL, *packages]):
        console.print(f"+ {shlex.join(command)}", markup=False)
        status = subprocess.run(command, env=environment).returncode
        if status:
            console.print(f"{shlex.join(command)} failed with exit status {status}", markup=False)
            return


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, without trailing zeros: 2.0 equals 2."""
    text = re.match(r"[\d.]*", version)
    numbers = [int(part) for part in (text.group() if text else "").split(".") if part]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
