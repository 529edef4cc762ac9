"""Scripts that use Ray, in processes of their own: python ray_scripts.py NAME ARGUMENT."""

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from testbed.config import Experiment
from testbed.config.schema import ExecutionConfig
from testbed.errors import TestbedError
from testbed.execution import open_crew, open_executor, ray_crew, task_of
from testbed.execution.tasks import Blueprint
from testbed.experiments.grid import read_grid
from testbed.experiments.run import run
from testbed.experiments.sweep import sweep
from testbed.learning.contribution import serialise, serialise_model

LISTENING = "0A"


def late(number: int, seconds: float) -> tuple[int, int]:
    time.sleep(seconds)
    return number, torch.get_num_threads()


def wait(number: int, folder: Path) -> int:
    """Leave a note of where this was begun, and wait until all may go on."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    (folder / f"{number}-{os.getpid()}").write_text(node)
    while not (folder / "go").exists():
        time.sleep(0.02)
    return number


def divide(number: int) -> float:
    return 1 / number


def die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def weigh(number: int) -> int:
    time.sleep(3600)
    return number


def line(work: Callable[[], Any]) -> str:
    """Return the error of some work as it is printed."""
    try:
        work()
    except (ArithmeticError, TestbedError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was wrong"


def tell(told: Any) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def status(pid: int) -> tuple[int, str] | None:
    """Return a process's parent and command line, if it is alive."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    state, parent = stat.rpartition(")")[2].split()[:2]
    return None if state == "Z" else (int(parent), command.replace(b"\0", b" ").decode())


def below(pid: int) -> dict[int, str]:
    """Return all processes below one, with their command lines."""
    alive = {int(path.name): status(int(path.name)) for path in Path("/proc").glob("[0-9]*")}
    found: dict[int, str] = {}
    ancestors = {pid}
    while ancestors:
        level = {one: each[1] for one, each in alive.items() if each and each[0] in ancestors}
        found.update(level)
        ancestors = set(level)
    return found


def listening(pids: set[int]) -> Iterator[str]:
    """Yield the addresses, as the kernel writes them, at which processes wait for connections."""
    sockets = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                sockets |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(link)))
            except OSError:
                continue
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for row in Path(table).read_text().splitlines()[1:]:
            columns = row.split()
            if columns[3] == LISTENING and columns[9] in sockets:
                yield columns[1].partition(":")[0]


def kill_one_that_works(killed: list[int]) -> None:
    """Kill the first worker that is seen to work."""
    while not killed:
        for pid, command in below(os.getpid()).items():
            if command.startswith("ray::_do"):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
                return
        time.sleep(0.01)


def notes(folder: Path, count: int) -> dict[int, tuple[int, str]]:
    """Wait for notes of `count` pieces; return process and node of each."""
    while len(found := [path for path in folder.glob("*-*") if path.read_text()]) < count:
        time.sleep(0.05)
    pairs = [(path.name.split("-"), path.read_text()) for path in found]
    return {int(number): (int(pid), node) for (number, pid), node in pairs}


def on_a_cluster(argument: str) -> None:
    """Everything that needs two nodes; prints what came of it."""
    from ray.cluster_utils import Cluster

    out = Path(argument)
    cluster = Cluster()
    node: Any = {"num_cpus": 1, "memory": 4_000_000_000, "include_dashboard": False}
    cluster.add_node(**node)
    second = cluster.add_node(**node)
    experiment = Experiment.model_validate_json((out / "experiment.json").read_text())
    execution = ExecutionConfig(kind="ray", address=cluster.address)
    told: dict[str, Any] = {}
    greedy = execution.model_copy(update={"memory_gb": 100.0})
    told["no room"] = line(open_crew(greedy).__enter__)
    swept: list[int] = []
    killer = threading.Thread(target=kill_one_that_works, args=[swept])
    killer.start()
    settings = ["execution.kind=ray", f"execution.address={cluster.address}"]
    outcome = sweep(read_grid(out / "small.yaml", ["rho=0.4,0.6"], settings), out / "ray-sweep")
    killer.join()
    told["killed in the sweep"], told["failed in the sweep"] = len(swept), dict(outcome.failed)
    with open_crew(execution) as crew:
        told["size"] = crew.size
        told["order"] = list(crew.map(late, [1, 2, 3, 4], [0.5, 0.0, 0.2, 0.0]))

        task = task_of(Blueprint.of(experiment, 0))
        with open_executor(experiment, 0, task, crew) as executor:
            executor.store = None
            trained = [serialise(each.contribution) for each in executor.train([4, 0, 4])]
            tuned = [serialise_model(each.model) for each in executor.tune([5, 1], task.initial)]
        told["messages"] = [sha256(each).hexdigest() for each in (*trained, *tuned)]

        killed: list[int] = []
        killer = threading.Thread(target=kill_one_that_works, args=[killed])
        killer.start()
        list(run(experiment, out / "ray", crew=crew))
        killer.join()
        told["killed in the run"] = len(killed)

        told["error"] = line(lambda: list(crew.map(divide, [1, 0, 2])))
        told["after the error"] = list(crew.map(divide, [4, 2]))

        with_kill = out / "kill"
        with_kill.mkdir()
        answers = crew.map(wait, range(4), [with_kill] * 4)
        begun = notes(with_kill, 2)
        told["nodes"] = len({node for _, node in begun.values()})
        victim, (pid, _) = sorted(begun.items())[0]
        os.kill(pid, signal.SIGKILL)
        (with_kill / "go").touch()
        told["killed"] = list(answers)
        told["begun"] = len(list(with_kill.glob(f"{victim}-*")))

        ray_crew._RETRIES = 1
        told["hopeless"] = line(lambda: list(crew.map(die, [1])))
        ray_crew._RETRIES = 5

        without_node = out / "node"
        without_node.mkdir()
        answers = crew.map(wait, range(4), [without_node] * 4)
        begun = notes(without_node, 2)
        told["lost"] = [node for _, node in begun.values()].count(second.node_id)
        cluster.remove_node(second, allow_graceful=False)
        (without_node / "go").touch()
        told["without a node"] = list(answers)
    cluster.shutdown()
    tell(told)


def on_this_machine(argument: str) -> None:
    """Start Ray and say what it started, then wait for Ctrl-C, which ends as in the command."""
    signal.signal(signal.SIGINT, lambda number, _: sys.exit(128 + number))
    with open_crew(ExecutionConfig(kind="ray", workers=1, memory_gb=0.5)) as crew:
        answers = list(crew.map(late, [1, 2], [0.0, 0.0]))
        inside = ExecutionConfig(kind="ray")
        processes = below(os.getpid())
        (raylet,) = (text for text in processes.values() if "--raylet_socket_name=" in text)
        told = {
            "answers": answers,
            "twice": line(open_crew(inside).__enter__),
            "processes": list(processes),
            "folder": re.findall(r"--raylet_socket_name=(/tmp/ray-[^/]+)/", raylet)[0],
            "listening": sorted(set(listening(set(processes)))),
            "SIGTERM": signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
        }
        busy = crew.map(weigh, [1, 2])
        tell(told)
        list(busy)


def out_of_memory(argument: str) -> None:
    """Work where, for Ray, memory is always used up."""
    with open_crew(ExecutionConfig(kind="ray", workers=1, memory_gb=0.5)) as crew:
        tell(line(lambda: list(crew.map(weigh, [1]))))


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
