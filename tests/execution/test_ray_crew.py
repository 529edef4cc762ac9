"""Ray: the bits of one process, whatever is killed, and nothing that stays behind."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from federation import small
from pydantic import ValidationError
from ray_scripts import status

from testbed.config import Experiment
from testbed.config.schema import ExecutionConfig
from testbed.errors import ConfigError
from testbed.execution import Clients, Store, open_crew, ray_crew, task_of
from testbed.execution.ray_crew import Home
from testbed.execution.tasks import Blueprint
from testbed.experiments.grid import read_grid
from testbed.experiments.run import run
from testbed.experiments.sweep import sweep
from testbed.learning.contribution import serialise, serialise_model
from testbed.learning.identity import code_version

# Half a minute on two idle cores.
pytestmark = pytest.mark.timeout(900)

SCRIPTS = Path(__file__).with_name("ray_scripts.py")


@contextmanager
def script(name: str, argument: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Start a script, in a group of processes that ends with the block."""
    pytest.importorskip("ray", reason="needs the extra ray", exc_type=ImportError)
    with (
        # Ray's sockets need a short path.
        TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as folder,
        subprocess.Popen(
            [sys.executable, SCRIPTS, name, argument],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(SCRIPTS.parent), *sys.path]),
                "RAY_TMPDIR": folder,
                **environment,
            },
        ) as process,
    ):
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def told_by(name: str, argument: Path, **environment: str) -> Any:
    with script(name, argument, **environment) as process:
        output, _ = process.communicate()
    assert process.returncode == 0, output
    assert output.count("\n") == 1, output  # Ray is quiet
    return json.loads(output)


# ---- what needs a cluster


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ray")


@pytest.fixture(scope="module")
def experiment(out: Path) -> Experiment:
    return small(out, execution={"store": out / "stores" / "ray"})


@pytest.fixture(scope="module")
def told(out: Path, experiment: Experiment) -> dict[str, Any]:
    """What a driver saw on two nodes of a core each."""
    (out / "experiment.json").write_text(experiment.model_dump_json())
    sections = experiment.model_dump(mode="json", exclude={"execution"}, exclude_unset=True)
    (out / "small.yaml").write_text(yaml.safe_dump(sections))
    told = told_by("on_a_cluster", out, RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0")
    assert isinstance(told, dict)
    return told


@pytest.fixture(scope="module")
def serial(out: Path, experiment: Experiment) -> Path:
    execution = {"store": out / "stores" / "serial"}
    list(run(small(out, execution=execution), out / "serial"))
    return out / "serial"


def test_answers_come_in_the_order_asked_from_one_thread_each(told: dict[str, Any]) -> None:
    assert told["size"] == 2
    assert told["order"] == [[1, 1], [2, 1], [3, 1], [4, 1]]


def test_messages_are_the_same_bits_as_in_one_process(
    told: dict[str, Any], experiment: Experiment
) -> None:
    task = task_of(Blueprint.of(experiment, 0))
    clients = Clients(task)
    trained = [serialise(each.contribution) for each in clients.train([4, 0, 4])]
    tuned = [serialise_model(each.model) for each in clients.tune([5, 1], task.initial)]
    assert told["messages"] == [sha256(each).hexdigest() for each in (*trained, *tuned)]
    assert len(set(told["messages"])) == 4


@pytest.mark.parametrize("name", ["ledger.csv", "metrics.csv", "model.safetensors"])
def test_a_run_that_lost_a_worker_is_the_same_to_the_byte(
    name: str, told: dict[str, Any], out: Path, serial: Path
) -> None:
    assert told["killed in the run"] == 1
    (expected,) = serial.glob(f"*/seed=0/{name}")
    found = out / "ray" / expected.relative_to(serial)
    assert found.read_bytes() == expected.read_bytes()


def test_a_sweep_that_lost_a_worker_is_the_same_to_the_byte(
    told: dict[str, Any], out: Path
) -> None:
    assert (told["killed in the sweep"], told["failed in the sweep"]) == (1, {})
    grid = read_grid(out / "small.yaml", ["rho=0.4,0.6"], ["execution.kind=serial"])
    assert not sweep(grid, out / "serial-sweep").failed
    compared = 0
    for name in ("ledger.csv", "metrics.csv", "trace.csv", "model.safetensors"):
        for expected in (out / "serial-sweep").rglob(name):
            found = out / "ray-sweep" / expected.relative_to(out / "serial-sweep")
            assert found.read_bytes() == expected.read_bytes()
            compared += 1
    assert compared == 8


def test_the_store_holds_the_same_messages(told: dict[str, Any], out: Path, serial: Path) -> None:
    def messages(name: str) -> dict[str, Any]:
        store = Store(out / "stores" / name)
        keys = [path.name for path in store.folder.glob("*/*/*")]
        entries = {key: store.get(key) for key in keys}
        return {key: entry.message for key, entry in entries.items() if entry}

    expected = messages("serial")
    assert len(expected) == 6  # models and statistics of the three who were sampled
    assert messages("ray") == expected


def test_a_killed_worker_loses_nothing(told: dict[str, Any]) -> None:
    assert told["nodes"] == 2
    assert told["killed"] == [0, 1, 2, 3]
    assert told["begun"] == 2  # the one that was killed, and once more


def test_a_lost_node_loses_nothing(told: dict[str, Any]) -> None:
    assert told["lost"] == 1  # of the two pieces that had begun
    assert told["without a node"] == [0, 1, 2, 3]


def test_an_error_of_the_work_is_itself_and_the_crew_lives_on(told: dict[str, Any]) -> None:
    assert told["error"] == "ZeroDivisionError: division by zero"
    assert told["after the error"] == [0.25, 0.5]


def test_a_piece_that_always_kills_its_worker_is_one_line(told: dict[str, Any]) -> None:
    assert re.search(r"Error: .*lost its worker or its node 2 times \(\w+\); ", told["hopeless"])
    assert "\n" not in told["hopeless"]


def test_more_memory_than_any_node_has_is_one_line(told: dict[str, Any]) -> None:
    assert told["no room"] == (
        "ConfigError: execution.memory_gb is 100, but the largest node that Ray has, with a core "
        "at least, offers 4 GB; lower it, or add a node"
    )


# ---- Ray on this machine


def gone(pids: list[int]) -> bool:
    end = time.monotonic() + 60
    while any(status(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.1)
    return not any(status(pid) for pid in pids)


def test_local_ray_keeps_to_itself_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with script("on_this_machine", tmp_path, HOME=str(home)) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("{"), line  # Ray is quiet
        told = json.loads(line)
        assert Path(told["folder"]).is_dir()
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout.read() == ""
    assert process.returncode == 130
    assert told["answers"] == [[1, 1], [2, 1]]
    assert told["twice"].startswith("ConfigError: Ray is in use in this process already; ")
    assert told["SIGTERM"] is True
    # 127.0.0.1, alone and within IPv6.
    loopback = {"0100007F", "0000000000000000FFFF00000100007F"}
    assert set(told["listening"]) <= loopback
    assert told["listening"]
    assert gone(told["processes"])
    assert not Path(told["folder"]).exists()
    assert list(home.iterdir()) == []


def test_what_rays_core_prints_at_its_end_is_not_seen(capfd: pytest.CaptureFixture[str]) -> None:
    with ray_crew._muted():
        os.write(2, b"Failed to push error to driver")
    os.write(2, b"what follows")
    assert capfd.readouterr().err == "what follows"


@pytest.mark.study
def test_work_for_which_there_is_no_memory_is_one_line(tmp_path: Path) -> None:
    told = told_by("out_of_memory", tmp_path, RAY_memory_usage_threshold="0.01")
    assert told.startswith(
        "WorkerLostError: a worker was killed again and again because its node "
    )
    assert "execution.memory_gb" in told


# ---- bad input


def test_an_unreachable_address_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra ray", exc_type=ImportError)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    for bad in (address, "127.0.0.1:99999", "no-such-host.invalid:6379"):
        execution = ExecutionConfig(kind="ray", address=bad)
        with pytest.raises(ConfigError, match=f"^no Ray cluster answers at .* {bad} ") as told:
            open_crew(execution).__enter__()
        assert "\n" not in str(told.value)
        assert "ray start --head" in str(told.value)


@pytest.mark.parametrize("says", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_something_else_at_the_address_is_one_line(says: bytes) -> None:
    pytest.importorskip("ray", reason="needs the extra ray", exc_type=ImportError)

    def answer(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(says)

    with socket.create_server(("127.0.0.1", 0)) as server:
        other = threading.Thread(target=answer, args=[server])
        other.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ConfigError, match=rf"{address} \(something else listens there\); "):
            open_crew(ExecutionConfig(kind="ray", address=address)).__enter__()
        other.join()


def test_the_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'fsosa-testbed\[ray\]'$"):
        open_crew(ExecutionConfig(kind="ray")).__enter__()


@pytest.mark.parametrize(
    "keys",
    [
        {"kind": "processes", "address": "head:6379"},
        {"kind": "ray", "address": "head:6379", "workers": 2},
        {"kind": "ray", "address": "head"},
        {"kind": "ray", "address": "ray://head:10001"},
        {"kind": "ray", "memory_gb": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ExecutionConfig.model_validate(keys)


@pytest.mark.parametrize(
    ("folder", "code", "line"),
    [
        ("/no/such/folder", None, r"cannot enter /no/such/folder \(No such file or directory\)"),
        ("/", "0" * 16, "another version of the testbed, of torch or of NumPy"),
    ],
)
def test_a_node_that_differs_is_one_line(folder: str, code: str | None, line: str) -> None:
    home = Home(Path(folder), code or code_version())
    with pytest.raises(ConfigError, match=f"^node .* {line}; "):
        ray_crew._do(home, divmod, 7, 2)


def test_work_starts_in_the_folder_of_who_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    assert ray_crew._do(Home(tmp_path, code_version()), os.getcwd) == str(tmp_path)


def test_ray_is_imported_when_it_is_needed() -> None:
    code = "import sys, testbed.execution.ray_crew; print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
