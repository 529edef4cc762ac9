"""What tests of detectors need: the library they are built with."""

from importlib.util import find_spec

import pytest
from drawn_folder import Folder


@pytest.fixture(scope="session")
def yolo() -> None:
    """Skip where the extra is not installed; without importing it, which has side effects."""
    if find_spec("ultralytics") is None:
        pytest.skip("needs the extra yolo: pip install 'fsosa-testbed[yolo]'")


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path / "drawn")
