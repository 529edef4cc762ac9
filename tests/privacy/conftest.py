import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from audited import Finished, settings

from testbed.cli import main
from testbed.experiments.run import run

Call = Callable[..., tuple[int, list[str], list[str]]]


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


@pytest.fixture
def runs(results: Path, tmp_path: Path) -> Path:
    """A copy of the finished runs."""
    shutil.copytree(results, tmp_path / "results")
    return tmp_path / "results"


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Call]:
    """Return a function that runs ``testbed``: its exit code and what it wrote."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def command(*arguments: object) -> tuple[int, list[str], list[str]]:
        monkeypatch.setattr(sys, "argv", ["testbed", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ending:
            main()
        told = capfd.readouterr()
        return int(ending.value.code or 0), told.out.splitlines(), told.err.splitlines()

    yield command
    for number, handler in handlers.items():
        signal.signal(number, handler)
