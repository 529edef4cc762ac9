"""What all tests share: one torch thread, as in every run of the testbed; real cities."""

import os
from pathlib import Path

import pytest
import torch

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def bologna() -> Path:
    """Return the folder of the two cities, which are not part of the project."""
    given = os.environ.get("TESTBED_SCENARIOS")
    folder = Path(given) if given else REPOSITORY.parent / "shared" / "scenarios"
    if not (folder / "bologna_acosta").is_dir():
        pytest.skip("set TESTBED_SCENARIOS to the folder of bologna_acosta and bologna_pasubio")
    return folder
