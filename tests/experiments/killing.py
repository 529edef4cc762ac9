"""Runs of the testbed that are killed at a given moment, as a process can be killed at any.

As a program, this file is a server: it imports once what takes seconds to import, then does each
run in a fork of itself, told by a line of JSON on its standard input.
"""

import gc
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
_WRITES = os.O_WRONLY | os.O_RDWR
_PATIENCE_S = 5.0


@dataclass(frozen=True)
class Death:
    """When a run is killed; by default never.

    Attributes
    ----------
    step : int or None
        Before its so-manieth change of a file or folder in the results, 1 being the first:
        opening for writing, renaming, removing, making a folder, waiting for the disk.
    before : (str, str) or None
        Before the first change of this kind whose last path ends so.
    size : int or None
        While it writes, when a file is to become longer than so many bytes; what fits is written.
    full : bool
        In that case the write fails, as on a full disk, and the process lives.
    seconds : float or None
        So long after it has begun.
    sent : int
        The signal, where it is not the system that sends it.
    """

    step: int | None = None
    before: tuple[str, str] | None = None
    size: int | None = None
    full: bool = False
    seconds: float | None = None
    sent: int = signal.SIGKILL


NEVER = Death()


@dataclass(frozen=True)
class End:
    """How a run ended.

    Attributes
    ----------
    code : int
        Exit code, or the negative of a signal.
    steps : int
        Changes of files, see `Death.step`; of a run that was killed 0.
    told : str
        What it wrote to standard output and error.
    orphans : tuple of str
        Names of processes that outlive it.
    """

    code: int
    steps: int
    told: str
    orphans: tuple[str, ...]

    @property
    def killed(self) -> bool:
        return self.code < 0


@dataclass
class Killer:
    """Starts runs and kills them.

    Parameters
    ----------
    environment : mapping of str to str, optional
        More of it.
    """

    environment: Mapping[str, str] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self._server = subprocess.Popen(
            [sys.executable, "-W", "error", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1", **self.environment},
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate()

    def start(self, config: Path, out: Path, death: Death = NEVER, command: str = "run") -> End:
        """Run a configuration, whether begun before or not.

        Parameters
        ----------
        config, out : Path
        death : Death
        command : {"run", "testbed run", "sweep"}
            All runs; as the command line does them, with figures; for two values of rho.
        """
        order = {"config": str(config), "out": str(out), "command": command, **asdict(death)}
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(f"{json.dumps(order)}\n")
        self._server.stdin.flush()
        told = json.loads(self._server.stdout.readline())
        return End(told["code"], told["steps"], told["told"], tuple(told["orphans"]))


def _serve() -> None:
    import torch._dynamo  # at the first step of a training

    from testbed.cli import running, sweep_view
    from testbed.experiments.resume import running_code

    assert all((torch, running, sweep_view))
    running_code()  # which may be another one on the disk, later
    gc.freeze()  # else collections would write to every page that forks share
    for line in sys.stdin:
        order = json.loads(line)
        sys.stdout.write(f"{json.dumps(_fork(order))}\n")
        sys.stdout.flush()


def _fork(order: Mapping[str, Any]) -> dict[str, Any]:
    log, count = (Path(f"{order['out']}.{name}") for name in ("log", "count"))
    count.unlink(missing_ok=True)
    log.touch()
    child = os.fork()
    if child == 0:
        _run(order, log, count)
    if order["seconds"] is not None:
        time.sleep(order["seconds"])
        os.kill(child, order["sent"])
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    steps = int(count.read_text()) if count.exists() else 0
    told = log.read_text()
    for file in (log, count):
        file.unlink(missing_ok=True)
    return {"code": code, "steps": steps, "told": told, "orphans": _survivors(child)}


def _run(order: Mapping[str, Any], log: Path, count: Path) -> None:
    """Do a run in this process, which does not return from here."""
    os.setsid()
    writing = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(writing, 1)
    os.dup2(writing, 2)
    code = 70
    try:
        steps = _Steps(order["out"], order["step"], order["before"], order["sent"])
        if order["size"] is not None:
            _limit_sizes(order["size"], order["full"])
        _command(order)
        code = 0
    except SystemExit as ending:
        code = int(ending.code or 0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        count.write_text(str(steps.done))
        os._exit(code)


def _command(order: Mapping[str, Any]) -> None:
    from testbed.cli import main
    from testbed.config import load
    from testbed.experiments.grid import read_grid
    from testbed.experiments.run import run
    from testbed.experiments.sweep import sweep

    config, out = Path(order["config"]), Path(order["out"])
    match order["command"]:
        case "run":
            for _ in run(load(config), out):
                pass
        case "sweep":
            sweep(read_grid(config, ["rho=0.6,0.8"]), out)
        case _:
            sys.argv = ["testbed", "run", str(config), "--out", str(out)]
            main()


class _Steps:
    """Counts changes of files below a folder, and kills this process before one of them."""

    def __init__(self, out: str, last: int | None, before: list[str] | None, sent: int) -> None:
        self.done = 0
        self._out, self._last, self._before, self._sent = out, last, before, sent
        sync = os.fsync

        def counted(descriptor: int) -> None:
            self._step("os.fsync", "")
            sync(descriptor)

        os.fsync = counted
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if not isinstance(path, int) and flags & _WRITES:
                self._change(event, path)
        elif event in _CHANGES:
            self._change(event, arguments[1 if event == "os.rename" else 0])

    def _change(self, event: str, path: str | os.PathLike[str]) -> None:
        name = os.fspath(path)
        # A relative one is in a folder that is being removed.
        if name.startswith(self._out) or not os.path.isabs(name):
            self._step(event, name)

    def _step(self, event: str, path: str) -> None:
        self.done += 1
        met = self._before is not None and event == self._before[0]
        if self.done == self._last or (met and path.endswith(self._before[1])):
            os.kill(os.getpid(), self._sent)


def _limit_sizes(size: int, full: bool) -> None:
    """Let no file become longer; the system kills who tries, or fails the write if `full`."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN if full else signal.SIG_DFL)


def _survivors(session: int) -> list[str]:
    """Wait for the processes of a session to end; return the names of those that do not."""
    deadline = time.monotonic() + _PATIENCE_S
    while (left := _members(session)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def _members(session: int) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
            except (FileNotFoundError, ProcessLookupError):
                continue
            state, _, _, its_session = rest.split()[:4]
            if state != "Z" and int(its_session) == session:
                found.append(name)
    return found


if __name__ == "__main__":
    _serve()
