from pathlib import Path

import pytest
from audited import Finished, settings

from testbed.experiments.run import run


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of F-SOSA and of fine-tuning; read-only."""
    folder = tmp_path_factory.mktemp("audited")
    list(run(settings(folder), folder / "results"))
    return folder / "results"


@pytest.fixture(scope="session")
def ran(results: Path) -> Finished:
    """F-SOSA's run; its clients train once for all tests."""
    (folder,) = results.glob("fsosa-*/seed=0")
    return Finished.of(folder)
