"""The installed SUMO: its programs, and how to start them so that none is left behind.

The programs are those of the ``eclipse-sumo`` wheel itself.  ``SUMO_HOME`` and ``PATH``
are never asked: a system-wide SUMO of another version would win without a word, and the
wheel's ``bin/sumo`` is a Python wrapper whose child outlives it.
"""

import contextlib
import importlib.util
import io
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import IO

from testbed.errors import ScenarioError

QUIET = ("--no-step-log", "--no-warnings", "--duration-log.disable", "--xml-validation", "never")

_STANDARD = (1, 2)

# Asks the kernel for a signal when the parent dies, then becomes the program named on the
# command line.  Not a preexec_fn: that may deadlock in a threaded process.
_TIE = """
import ctypes, os, signal, sys
SET_PARENT_DEATH_SIGNAL = 1
def tie(parent, number):
    ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, number)
    if os.getppid() != parent:
        os._exit(1)
def become(parent):
    tie(parent, signal.SIGKILL)
    os.execv(sys.argv[2], sys.argv[2:])
parent = int(sys.argv[1])
"""
_TETHER = _TIE + "become(parent)"
# For a program that starts others, which the kernel would not end with it: stays beside it
# and kills the whole group when the parent dies; ends as the program did.
_GUARD = (
    _TIE
    + """
signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
tie(parent, signal.SIGTERM)
guard = os.getpid()
child = os.fork()
if child == 0:
    become(guard)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
if code < 0:
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(guard, -code)
sys.exit(code)
"""
)


@cache
def sumo_home() -> Path:
    """Return the folder of the installed ``eclipse-sumo`` wheel.

    Raises
    ------
    ScenarioError
        If the wheel is not installed.
    """
    spec = importlib.util.find_spec("sumo")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(place) / "bin" / "sumo").is_file():
            return Path(place)
    raise ScenarioError("SUMO is not installed; run: pip install eclipse-sumo libsumo traci")


def environment() -> dict[str, str]:
    """Return the environment of SUMO's programs, with the wheel as ``SUMO_HOME``."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_BINARY")}
    return {**kept, "SUMO_HOME": str(sumo_home())}


def program(name: str) -> str:
    """Return the path of one of SUMO's programs, for example ``"netgenerate"``."""
    return str(sumo_home() / "bin" / name)


def run_tool(command: Sequence[str], folder: Path) -> None:
    """Run one of SUMO's programs to its end inside `folder`; what it starts ends with it.

    Raises
    ------
    ScenarioError
        With the program's own last words, or how it ended, if it fails.
    """
    with tempfile.TemporaryFile() as log:
        process = _start(_GUARD, command, folder, subprocess.DEVNULL, log)
        try:
            code = process.wait()
        except BaseException:
            # The guard still waits, so that the group's number is its own.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        said = last_words(read_log(log))
    if code != 0:
        # A script is known by its own name, not by Python's.
        name = Path(command[1 if command[0] == sys.executable else 0]).name
        ended = f"ended by signal {-code}" if code < 0 else f"exit status {code}"
        raise ScenarioError(f"{name} failed: {said or ended}")


def start_tethered(
    arguments: Sequence[str], folder: Path, log: IO[bytes]
) -> "subprocess.Popen[bytes]":
    """Start ``sumo`` in its own process group, tied to the life of the calling thread.

    Parameters
    ----------
    arguments : sequence of str
    folder : Path
        Working folder of the process.
    log : binary file
        Receives what SUMO says.
    """
    return _start(_TETHER, [program("sumo"), *arguments], folder, log, log)


def _start(
    launcher: str, command: Sequence[str], folder: Path, out: IO[bytes] | int, err: IO[bytes]
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", launcher, str(os.getpid()), *command],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        process_group=0,
    )


def last_words(text: str) -> str:
    r"""Return SUMO's error messages on one line, or the last thing it said.

    >>> last_words("Loading...\nError: No such file.\n In 'a.xml'\nQuitting (on error).\n")
    "No such file. In 'a.xml'"
    """
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("Quitting", "Warning"))]
    first = next((n for n, line in enumerate(lines) if line.startswith("Error")), len(lines) - 1)
    said = (line.removeprefix("Error:").strip() for line in lines[max(first, 0) :])
    return " ".join(dict.fromkeys(said))


@contextlib.contextmanager
def captured() -> Iterator[Callable[[], str]]:
    """Keep what is written to standard output and error, at the level of descriptors.

    libsumo, its import and the traci client print there, beside the exceptions they
    raise; a program whose output is parsed must not see that.  Yields a function that
    returns what was written.
    """
    for descriptor, stream in zip(_STANDARD, (sys.stdout, sys.stderr), strict=True):
        if stream is not None:
            stream.flush()
        _occupy(descriptor)
    saved = [os.dup(descriptor) for descriptor in _STANDARD]
    with tempfile.TemporaryFile() as log, io.StringIO() as printed:
        try:
            for descriptor in _STANDARD:
                os.dup2(log.fileno(), descriptor)
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                yield lambda: read_log(log)
        finally:
            for descriptor, copy in zip(_STANDARD, saved, strict=True):
                os.dup2(copy, descriptor)
                os.close(copy)


def _occupy(descriptor: int) -> None:
    """Open a standard descriptor that is closed, or the next file opened would get it."""
    try:
        os.fstat(descriptor)
    except OSError:
        null = os.open(os.devnull, os.O_RDWR)
        if null != descriptor:
            os.dup2(null, descriptor)
            os.close(null)


def read_log(log: IO[bytes]) -> str:
    """Return all that was written to an open log file."""
    return os.pread(log.fileno(), os.fstat(log.fileno()).st_size, 0).decode(errors="replace")
