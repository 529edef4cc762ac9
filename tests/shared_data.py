"""Where the real bundles lie that some tests use when they are there."""

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("TESTBED_DATA", Path(__file__).parents[2] / "shared" / "data"))


def bundle(name: str) -> Path:
    """Return a bundle's path, or skip the test."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"no {name} in the folder that TESTBED_DATA names")
    return path
