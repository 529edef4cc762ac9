"""Following a running SUMO, in this process or in its own, step by step.

Both back ends answer through the same calls: one subscription for the simulation and,
where coverage matters, one context subscription around each roadside unit.  No vehicle is
ever asked by itself, which over a socket costs fifteen times the simulation.
"""

import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, TypeVar

from testbed.errors import ScenarioError
from testbed.mobility.membership import Circle
from testbed.mobility.sumo import captured, last_words, read_log, start_tethered

Backend = Literal["libsumo", "traci"]
T = TypeVar("T")

_HOST = "127.0.0.1"
_RETRY_SECONDS = 0.02
_RETRIES = 30_000
_PATIENCE_SECONDS = 2.0
_TRANSPARENT = (0, 0, 0, 0)
_RSU = "testbed-rsu"

# SUMO's numbers for the variables; traci.constants is not imported for libsumo's sake.
_TIME = 0x66
_END = 0x1D
_LOADED = 0x71
_DEPARTED = 0x74
_TELEPORTS = 0x75
_ARRIVED = 0x7A
_EXPECTED = 0x7D
_COLLIDING = 0x80
_VARIABLES = (_TIME, _LOADED, _DEPARTED, _TELEPORTS, _ARRIVED, _EXPECTED, _COLLIDING)
_VEHICLES = 0xA4
_POSITION = 0x42
_position = itemgetter(_POSITION)


@dataclass(frozen=True, slots=True)
class Reading:
    """What SUMO reports after a step.

    Attributes
    ----------
    clock : float
        SUMO's time, one step later than the stamps of what happened in the step.
    expected : int
        Vehicles driving or still to come, as far as SUMO knows; 0 when all is over.
    loaded, teleports, colliding : int
        Vehicles newly read from the demand, newly teleported, in a collision.
    departed, arrived : sequence of str
    positions : mapping of str to (float, float)
        Vehicles within reach of any roadside unit; empty without one.
    """

    clock: float
    expected: int
    loaded: int
    teleports: int
    colliding: int
    departed: Sequence[str]
    arrived: Sequence[str]
    positions: Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Standing:
    """SUMO's own count of vehicles at one moment.

    Attributes
    ----------
    running : int
        On the road, parked, or being teleported.
    pending : int
        Due, but without room to be inserted.
    known : int
        Read from the demand, and neither arrived nor given up.
    """

    running: int
    pending: int
    known: int


class Link:
    """A simulation that was started and is followed.

    Parameters
    ----------
    api : module or traci connection
        What answers SUMO's calls.
    errors : tuple of exception types
        What `api` raises when SUMO refuses or dies.
    explain : callable
        Turns such an exception into SUMO's own words.
    stop : callable
        Ends the simulation and everything that belongs to it.
    """

    def __init__(
        self,
        api: Any,
        errors: tuple[type[Exception], ...],
        explain: Callable[[Exception], str],
        stop: Callable[[], None],
    ) -> None:
        self._api = api
        self._errors = errors
        self._explain = explain
        self._stop: Callable[[], None] | None = stop
        self._watched: list[str] = []

    def version(self) -> str:
        """Return SUMO's version, for example ``"1.28.0"``."""
        return str(self._call(self._api.getVersion)[1]).removeprefix("SUMO ")

    def watch(self, circles: Sequence[Circle]) -> Reading:
        """Subscribe, with `circles` for the positions within their reach; report the start."""
        api = self._api
        self._call(api.simulation.subscribe, _VARIABLES)
        for number, circle in enumerate(circles):
            name = f"{_RSU}-{number}"
            self._call(api.poi.add, name, circle.x, circle.y, _TRANSPARENT)
            self._call(api.poi.subscribeContext, name, _VEHICLES, circle.reach, [_POSITION])
            self._watched.append(name)
        return self._call(self._read)

    def end(self) -> float:
        """Return the end that the configuration sets, negative when it sets none."""
        return float(self._call(self._api.simulation.getEndTime))

    def step(self) -> Reading:
        """Simulate one step and report it.

        Raises
        ------
        ScenarioError
            If SUMO dies or refuses its input, with its own words.
        """
        return self._call(self._advance)

    def standing(self) -> Standing:
        """Return SUMO's own count of the vehicles that are on their way or wait for room."""

        def number(name: str) -> int:
            return int(self._call(self._api.simulation.getParameter, "", f"stats.vehicles.{name}"))

        known = len(self._call(self._api.vehicle.getLoadedIDList))
        return Standing(number("running"), number("waiting"), known)

    def vehicles(self) -> tuple[str, ...]:
        """Return the vehicles on the road."""
        return tuple(self._call(self._api.vehicle.getIDList))

    def close(self) -> None:
        """End the simulation; closing twice does no harm."""
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()

    def _advance(self) -> Reading:
        self._api.simulationStep()
        return self._read()

    def _read(self) -> Reading:
        seen = self._api.simulation.getSubscriptionResults()
        positions: dict[str, tuple[float, float]] = {}
        for name in self._watched:
            around = self._api.poi.getContextSubscriptionResults(name)
            positions.update(zip(around, map(_position, around.values()), strict=True))
        return Reading(
            clock=seen[_TIME],
            expected=seen[_EXPECTED],
            loaded=seen[_LOADED],
            teleports=seen[_TELEPORTS],
            colliding=seen[_COLLIDING],
            departed=seen[_DEPARTED],
            arrived=seen[_ARRIVED],
            positions=positions,
        )

    def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        if self._stop is None:
            raise ScenarioError("the simulation is closed; open the source again")
        try:
            return function(*arguments)
        except self._errors as error:
            raise ScenarioError(f"SUMO stopped: {self._explain(error)}") from error


def start(backend: Backend, arguments: Sequence[str], folder: Path) -> Link:
    """Start SUMO and connect to it.

    Parameters
    ----------
    backend : {"libsumo", "traci"}
    arguments : sequence of str
        SUMO's command line without the program.
    folder : Path
        Working folder of SUMO's own process.

    Raises
    ------
    ScenarioError
        If SUMO refuses its input, or libsumo is already in use in this process.
    """
    if backend == "libsumo":
        return _start_libsumo(arguments)
    return _start_traci(arguments, folder)


# libsumo holds one simulation per process and forgets the first one without a word.
_libsumo_in_use = threading.Lock()


def _release_in_child() -> None:
    if _libsumo_in_use.locked():
        _libsumo_in_use.release()


os.register_at_fork(after_in_child=_release_in_child)


def _start_libsumo(arguments: Sequence[str]) -> Link:
    if not _libsumo_in_use.acquire(blocking=False):
        raise ScenarioError(
            "a libsumo simulation is already open in this process, which holds one at a time; "
            "close it first, or set mobility.backend to traci"
        )
    try:
        with captured():
            import libsumo
        errors = (libsumo.TraCIException, libsumo.FatalTraCIError)
        with captured() as said:
            try:
                libsumo.start(["sumo", *arguments])
            except errors as error:
                words = last_words(f"{said()}\nError: {_on_one_line(error)}")
                raise ScenarioError(f"SUMO refused the scenario: {words}") from error
    except BaseException:
        _libsumo_in_use.release()
        raise

    def stop() -> None:
        try:
            with suppress(*errors), captured():
                libsumo.close()
        finally:
            _libsumo_in_use.release()

    return Link(libsumo, errors, _on_one_line, stop)


def _start_traci(arguments: Sequence[str], folder: Path) -> Link:
    import traci

    errors = (traci.TraCIException, traci.FatalTraCIError, OSError)
    with ExitStack() as opened:
        log = opened.enter_context(tempfile.TemporaryFile())
        port = opened.enter_context(_reserved_port())
        process = start_tethered([*arguments, "--remote-port", str(port)], folder, log)
        opened.callback(_end, process)

        def explain(error: Exception) -> str:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE_SECONDS)
            said = last_words(read_log(log)) or _on_one_line(error)
            if process.returncode is not None and process.returncode < 0:
                return f"its process was ended by signal {-process.returncode}: {said}"
            return said

        try:
            with captured():
                api = traci.connect(port, _RETRIES, _HOST, process, _RETRY_SECONDS)
        except errors as error:
            raise ScenarioError(f"SUMO refused the scenario: {explain(error)}") from error
        opened.callback(_hang_up, api)
        return Link(api, errors, explain, opened.pop_all().close)


def _end(process: "subprocess.Popen[bytes]") -> None:
    # Nothing is lost: a scenario's outputs are all switched off.
    process.kill()
    process.wait()


def _hang_up(api: Any) -> None:
    """Close the connection without the farewell of ``api.close()``.

    A signal may have cut an exchange in two, and then the rest of its reply would be taken
    for the answer to the farewell.
    """
    with suppress(AttributeError):  # traci drops the socket when SUMO has closed it
        api._socket.close()


@contextmanager
def _reserved_port() -> Iterator[int]:
    """Keep a free port from everybody but a server that reuses addresses, as SUMO's does."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((_HOST, 0))
        yield int(probe.getsockname()[1])


def _on_one_line(error: Exception) -> str:
    return " ".join(str(error).split())
