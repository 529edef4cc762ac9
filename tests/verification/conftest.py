import contextlib
import io
from pathlib import Path

import pytest
from certified import SMALL

from testbed.cli.verify import verify
from testbed.config import Experiment
from testbed.learning.client import prepare
from testbed.learning.task import Task
from testbed.verification.certificate import configured


@pytest.fixture(scope="session")
def experiment() -> Experiment:
    """Five clients of eight partitions; P = 2."""
    return configured(None, SMALL)


@pytest.fixture(scope="session")
def task(experiment: Experiment) -> Task:
    return prepare(experiment, 0)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The whole command, run once and passed: its folder and what it printed."""
    out = tmp_path_factory.mktemp("verify") / "certificate"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert verify(None, SMALL, out)
    return out, printed.getvalue()
