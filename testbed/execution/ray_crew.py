"""A crew on a Ray cluster: one that is there, or one on this machine that ends with the block.

Ray does a piece of work again whose worker or node is lost.  That does no harm, since a piece
is a pure function of its arguments, or puts into a store what such a function returned.
"""

import logging
import os
import platform
import secrets
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import torch

from testbed.config.schema import ExecutionConfig
from testbed.errors import ConfigError
from testbed.execution.crew import WorkerLostError, undisturbed
from testbed.learning.identity import code_version

T = TypeVar("T")

# How often Ray does a piece again whose worker or node was lost.
_RETRIES = 5
# Pieces after which a worker is replaced, so that no leak grows for long.
_PIECES = 100
# Ray reads these when it is imported or started.
_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # the environment of the nodes is the user's affair
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # workers see the devices that this process sees
    "RAY_task_oom_retries": "3",  # as a rule without end
}
_CONNECT_S = 5.0
# How HTTP/2, on which Ray speaks, begins: both sides send a frame of the type SETTINGS.
_SETTINGS = b"\x04"
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + _SETTINGS + b"\0" * 5
_FRAME_BYTES = 9
_STORE_BYTES = 500_000_000


@dataclass(frozen=True)
class Home:
    """What a worker must have in common with the process that asks.

    Attributes
    ----------
    folder : Path
        Current folder; relative paths start there.
    code : str
        Version of the code, see `testbed.learning.identity.code_version`.
    """

    folder: Path
    code: str


@dataclass(frozen=True)
class RayCrew:
    """Work on a Ray cluster, a core and a torch thread for each piece.

    Attributes
    ----------
    size : int
        Cores of the cluster when it was joined.
    memory_bytes : int
        Set aside for each piece; no node starts more of them than it has memory for.
    """

    size: int
    memory_bytes: int

    def map(self, work: Callable[..., T], *arguments: Sequence[Any]) -> Iterator[T]:
        """See `Crew.map`.

        Raises
        ------
        ConfigError
            While the answers are read, if a node has another environment or lacks a folder.
        WorkerLostError
            Likewise, if a piece lost its worker too often.
        """
        ray = _ray()
        remote = ray.remote(
            num_cpus=1, memory=self.memory_bytes, max_calls=_PIECES, max_retries=_RETRIES
        )(_do)
        home = Home(Path.cwd(), code_version())
        pieces = zip(*_sent(arguments), strict=True)
        return _answers(deque(remote.remote(home, work, *piece) for piece in pieces))


@contextmanager
def open_ray(execution: ExecutionConfig) -> Iterator[RayCrew]:
    """Join the Ray cluster of `execution.address`, or start one that ends with the block.

    Raises
    ------
    ConfigError
        If Ray is not installed, is in use already, does not answer or does not start, or if no
        node has the memory for one piece of work.
    """
    ray = _ray()
    if ray.is_initialized():
        raise ConfigError(
            "Ray is in use in this process already; call ray.shutdown() first or set "
            "execution.kind to processes"
        )
    cluster = _local(execution) if execution.address is None else _joined(execution.address)
    # It would print what it does again, between the lines of whoever prints here.
    silence = _replaced(ray._private.worker, "print_to_stdstream", lambda *_, **__: None)
    with silence, cluster:
        _check_room(execution.memory_gb)
        cores = int(ray.cluster_resources()["CPU"])
        yield RayCrew(cores, round(execution.memory_gb * 1e9))


@contextmanager
def _local(execution: ExecutionConfig) -> Iterator[None]:
    """Start Ray for this process alone: on the loopback interface, with a secret of its own."""
    from ray._private import services

    # Ray makes sockets below, and a socket's path has at most 107 characters.
    with TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        try:
            # For 127.0.0.1 Ray would put an address that others can reach.
            own_address = _replaced(services, "resolve_ip_for_localhost", lambda host: host)
            with _environment("RAY_AUTH_TOKEN", _token()), own_address:
                _init(
                    "Ray did not start",
                    address="local",
                    num_cpus=execution.workers,
                    include_dashboard=False,
                    object_store_memory=_STORE_BYTES,
                    _node_ip_address="127.0.0.1",
                    _temp_dir=folder,
                )
            yield
        finally:
            _end()


@contextmanager
def _joined(address: str) -> Iterator[None]:
    """Connect to a cluster; the connection ends with the block."""
    told = f"no Ray cluster answers at execution.address {address}"
    host, _, port = address.rpartition(":")
    try:  # Ray itself would wait for minutes
        with socket.create_connection((host, int(port)), _CONNECT_S) as connection:
            connection.sendall(_PREFACE)
            plain = os.environ.get("RAY_USE_TLS", "0") == "0"
            if plain and connection.recv(_FRAME_BYTES)[3:4] != _SETTINGS:
                raise ConnectionError("something else listens there")
    except (OSError, OverflowError, UnicodeError) as error:
        raise ConfigError(
            f"{told} ({error}); start one with 'ray start --head', correct the address, or unset "
            "it for Ray on this machine alone"
        ) from error
    try:
        _init(told, address=address)
        yield
    finally:
        _end()


def _init(told: str, **settings: Any) -> None:
    with undisturbed():
        try:
            _ray().init(logging_level=logging.ERROR, log_to_driver=False, **settings)
        except Exception as error:  # Ray raises many kinds
            reason = " ".join(str(error).split())
            raise ConfigError(
                f"{told}: {reason}; run on a node of a cluster with the same versions of Python "
                "and Ray, or set execution.kind to processes"
            ) from error


def _end() -> None:
    """Leave Ray, and end what was started of it; Ctrl-C is heard afterwards."""
    with undisturbed(), _muted():
        _ray().shutdown()


@contextmanager
def _muted() -> Iterator[None]:
    """Let nothing reach standard error.

    Ray's core tells there, past Python, of each piece called off that it could not report.
    """
    try:
        really = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(really, 2)
        os.close(really)


def _check_room(memory_gb: float) -> None:
    """Refuse work for which Ray would wait for ever."""
    nodes = [node["Resources"] for node in _ray().nodes() if node["Alive"]]
    free = [node.get("memory", 0) for node in nodes if node.get("CPU", 0) >= 1]
    if not any(memory >= memory_gb * 1e9 for memory in free):
        raise ConfigError(
            f"execution.memory_gb is {memory_gb:g}, but the largest node that Ray has, with a "
            f"core at least, offers {max(free, default=0) / 1e9:.2g} GB; lower it, or add a node"
        )


def _sent(arguments: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Hand messages to Ray, each once however many pieces of work need it."""
    ray, known = _ray(), dict[int, Any]()

    def send(value: Any) -> Any:
        if not isinstance(value, bytes):
            return value
        if id(value) not in known:
            known[id(value)] = ray.put(value)
        return known[id(value)]

    return [[send(value) for value in column] for column in arguments]


def _do(home: Home, work: Callable[..., T], *arguments: Any) -> T:
    """Do a piece of work, in a worker."""
    torch.set_num_threads(1)
    if code_version() != home.code:
        raise ConfigError(
            f"node {platform.node()} has another version of the testbed, of torch or of NumPy; "
            "install the same environment on every node"
        )
    try:
        os.chdir(home.folder)
    except OSError as error:
        raise ConfigError(
            f"node {platform.node()} cannot enter {home.folder} ({error.strerror}); run from a "
            "folder that all nodes share"
        ) from error
    return work(*arguments)


def _answers(asked: deque[Any]) -> Iterator[Any]:
    """Wait for answers in the order asked; whoever stops waiting calls off the rest."""
    ray = _ray()
    from ray.exceptions import OutOfMemoryError, RayError, RayTaskError

    try:
        while asked:
            # A signal's handler that leaves while `ray.get` waits would leave with status 1.
            yield asked.popleft().future().result()
    except RayTaskError as error:  # what the work itself raised
        raise error.cause from None
    except OutOfMemoryError as error:
        raise WorkerLostError(
            "a worker was killed again and again because its node ran out of memory; raise "
            "execution.memory_gb, so that fewer work at one time, and run the same command again"
        ) from error
    except RayError as error:
        raise WorkerLostError(
            f"a piece of work lost its worker or its node {_RETRIES + 1} times "
            f"({type(error).__name__}); see Ray's logs there, and run the same command again"
        ) from error
    finally:
        if asked and ray.is_initialized():
            with _muted():
                for each in asked:
                    ray.cancel(each)


def _ray() -> Any:
    """Import Ray, told to be quiet."""
    for name, value in _VARIABLES.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            "execution.kind is ray, but Ray is not installed; run: "
            "pip install 'fsosa-testbed[ray]'"
        ) from error
    return ray


@cache
def _token() -> str:
    """Return a secret; Ray remembers the first one of a process, and by default in a file."""
    return secrets.token_hex(32)


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextmanager
def _replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    """Change what Ray has no setting for."""
    really = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, really)
