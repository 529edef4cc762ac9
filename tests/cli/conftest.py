import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import CONFIG
from minute import MINUTE

from testbed.cli import main

Call = Callable[..., tuple[int, list[str], list[str]]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a configuration and the trace it replays."""
    (tmp_path / "tiny.yaml").write_text(CONFIG)
    (tmp_path / "minute.csv").write_text(MINUTE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def call(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Call]:
    """Return a function that runs ``testbed`` in `place`: its exit code and what it wrote."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def run(*arguments: object) -> tuple[int, list[str], list[str]]:
        monkeypatch.setattr(sys, "argv", ["testbed", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ending:
            main()
        told = capfd.readouterr()
        return int(ending.value.code or 0), told.out.splitlines(), told.err.splitlines()

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)
