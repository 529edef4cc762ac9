import contextlib
import io
from pathlib import Path

import pytest

from testbed.cli.verify import verify
from testbed.config import Experiment
from testbed.learning.client import Task, prepare
from testbed.verification.certificate import configured
from testbed.verification.part import Part

SMALL = ("clients.initial=5", "clients.pool=8", "learning.epochs=1")


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


def failed(part: Part) -> str:
    """Return the sentence of a part that must have failed: one plain line."""
    assert not part.passed
    assert part.sentence
    assert "\n" not in part.sentence
    return part.sentence
