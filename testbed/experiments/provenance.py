"""What produced a run: versions, commit, host."""

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = (
    "fsosa-testbed",
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "torch",
    "simpy",
    "eclipse-sumo",
    "libsumo",
    "traci",
    "safetensors",
    "scikit-learn",
)


@cache
def versions() -> dict[str, str | None]:
    """Versions of the packages that can influence a result; None where one is absent."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


@cache
def commit() -> str | None:
    """Return the git commit of the running source tree, ``-dirty`` if it was changed.

    None when the testbed does not run from a checkout.
    """
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    head = _git(root, "rev-parse", "HEAD")
    if head is None:
        return None
    return f"{head}-dirty" if _git(root, "status", "--porcelain", "-uno") else head


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


@cache
def host() -> dict[str, str | int | None]:
    """Describe the machine."""
    return {
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }
