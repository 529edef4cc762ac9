"""The installed SUMO: its programs, and how to start them so that none is left behind.

The programs are those of the ``eclipse-sumo`` wheel itself.  ``SUMO_HOME`` and ``PATH``
are never asked: a system-wide SUMO of another version would win without a word, and the
wheel's ``bin/sumo`` is a Python wrapper whose child outlives it.
"""

import contextlib
import importlib.util
import io
import os
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

# Becomes the program named on its command line, after it asked the kernel to be killed
# together with its parent.  Not a preexec_fn: that may deadlock in a threaded process.
_TETHER = """
import ctypes, os, sys
SET_PARENT_DEATH_SIGNAL, SIGKILL = 1, 9
ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


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
    """Run one of SUMO's programs to its end inside `folder`.

    Raises
    ------
    ScenarioError
        With the program's own last words, if it fails.
    """
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise ScenarioError(f"{Path(command[0]).name} failed: {last_words(done.stderr)}")


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
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _TETHER, str(os.getpid()), program("sumo"), *arguments],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
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
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
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


def read_log(log: IO[bytes]) -> str:
    """Return all that was written to an open log file."""
    return os.pread(log.fileno(), os.fstat(log.fileno()).st_size, 0).decode(errors="replace")
