"""Serial and pooled execution: the same bits, in the order asked, each trained once."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
import torch

from testbed.config import Experiment
from testbed.execution import Clients, Trained, open_executor, work
from testbed.execution.crew import ProcessCrew, SerialCrew
from testbed.learning.client import prepare
from testbed.learning.contribution import serialise, serialise_model
from testbed.learning.task import Task

EXPERIMENT = Experiment.model_validate(
    {
        "clients": {"pool": 12},
        "learning": {"epochs": 2},
        "execution": {"kind": "processes", "workers": 2},
    }
)


@pytest.fixture(scope="module")
def task() -> Task:
    return prepare(EXPERIMENT, seed=3)


@pytest.fixture(scope="module")
def pool(task: Task) -> Iterator[Clients]:
    with open_executor(EXPERIMENT, 3, task) as executor:
        yield executor
    assert multiprocessing.active_children() == []


def messages(answers: list[Trained]) -> list[bytes]:
    return [serialise(answer.contribution) for answer in answers]


def test_the_configuration_chooses(task: Task, pool: Clients) -> None:
    assert isinstance(pool.crew, ProcessCrew)
    serial = EXPERIMENT.model_copy(update={"execution": Experiment().execution})
    with open_executor(serial, 3, task) as executor:
        assert isinstance(executor.crew, SerialCrew)
        assert executor.store is None


def test_contributions_are_the_same_bits_wherever_they_are_made(task: Task, pool: Clients) -> None:
    parts = [4, 0, 9]
    serial = messages(Clients(task).train(parts))
    assert messages(pool.train(parts)) == serial
    assert len(set(serial)) == 3


def test_tuned_models_are_the_same_bits_wherever_they_are_made(task: Task, pool: Clients) -> None:
    start = Clients(task).train([4])[0].contribution.model
    here, there = (executor.tune([5, 1, 5], start) for executor in (Clients(task), pool))
    serial = [serialise_model(answer.model) for answer in here]
    assert [serialise_model(answer.model) for answer in there] == serial
    assert serial[0] == serial[2] != serial[1]
    assert all(answer.train_s > 0 for answer in (*here, *there))


@pytest.mark.parametrize("kind", ["serial", "processes"])
def test_answers_come_in_the_order_asked_and_each_client_trains_once(
    kind: str, task: Task, pool: Clients
) -> None:
    executor = Clients(task) if kind == "serial" else pool
    first = executor.train([7, 2, 7])
    second = executor.train([2, 3, 7])
    sizes = [answer.contribution.samples for answer in (*first, *second)]
    assert sizes == [len(task.parts[part]) for part in (7, 2, 7, 2, 3, 7)]
    assert first[0] is first[2] is second[2]
    assert first[1] is second[0]
    assert all(answer.train_s > 0 and answer.fisher_s > 0 for answer in (*first, *second))
    assert executor.train([]) == []


def test_serial_work_is_done_once(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    really = work.train

    def counting(task: Task, part: int) -> work.Sent:
        done.append(part)
        return really(task, part)

    monkeypatch.setattr(work, "train", counting)
    executor = Clients(task)
    executor.train([6, 1, 6])
    executor.train([1, 2])
    assert done == [1, 6, 2]


@pytest.mark.parametrize("kind", ["serial", "processes"])
def test_a_workers_error_surfaces_and_the_executor_lives_on(
    kind: str, task: Task, pool: Clients
) -> None:
    executor = Clients(task) if kind == "serial" else pool
    with pytest.raises(IndexError):
        executor.train([1, 999])
    with pytest.raises(IndexError):
        executor.tune([999], task.initial)
    assert executor.train([1])[0].contribution.samples == len(task.parts[1])


def test_the_starting_model_is_left_alone(task: Task, pool: Clients) -> None:
    before = {name: value.clone() for name, value in task.initial.items()}
    for executor in (Clients(task), pool):
        executor.tune([0], task.initial)
        assert all(torch.equal(task.initial[name], before[name]) for name in before)


def test_no_process_outlives_the_block_even_after_an_error(task: Task, pool: Clients) -> None:
    before = set(multiprocessing.active_children())
    execution = EXPERIMENT.execution.model_copy(update={"workers": 1})
    one = EXPERIMENT.model_copy(update={"execution": execution})

    def fail_in_the_block() -> None:
        with open_executor(one, 3, task) as executor:
            executor.train([2])
            assert set(multiprocessing.active_children()) > before
            executor.train([999])

    with pytest.raises(IndexError):
        fail_in_the_block()
    assert set(multiprocessing.active_children()) == before


INTERRUPTED = """
import sys, time
from testbed.config import Experiment
from testbed.execution import open_executor
from testbed.learning.client import prepare

if __name__ == "__main__":
    experiment = Experiment.model_validate_json(sys.argv[1])
    try:
        with open_executor(experiment, 0, prepare(experiment, 0)) as executor:
            executor.train([0, 1])
            print("ready", flush=True)
            time.sleep(60)
    except KeyboardInterrupt:
        sys.exit(130)
"""


def interrupted(folder: Path) -> "subprocess.Popen[str]":
    """Start a program that trains in workers, at the head of a process group of its own."""
    script = folder / "script.py"
    script.write_text(INTERRUPTED)
    return subprocess.Popen(
        [sys.executable, script, EXPERIMENT.model_dump_json()],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_ctrl_c_ends_all_processes_without_a_traceback(tmp_path: Path) -> None:
    with interrupted(tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)  # what a terminal does
        # The pipe closes when the last process that holds it has ended.
        assert process.stdout.read() == ""
    assert process.returncode == 130


def test_ctrl_c_while_workers_start_is_heard_by_the_main_process_alone(tmp_path: Path) -> None:
    for pause in (0.0, 0.5):
        with interrupted(tmp_path) as process:
            assert process.stdout is not None
            while not workers_of(process.pid):
                assert process.poll() is None
                time.sleep(0.005)
            time.sleep(pause)
            os.killpg(process.pid, signal.SIGINT)
            assert process.stdout.read() == ""
        assert process.returncode == 130


def workers_of(parent: int) -> list[int]:
    """Return the pool's processes, by their command line."""
    found = []
    for entry in Path(f"/proc/{parent}/task").glob("*/children"):
        for child in entry.read_text().split():
            command = Path(f"/proc/{child}/cmdline")
            if command.exists() and b"spawn_main" in command.read_bytes():
                found.append(int(child))
    return found


FIRST = """
import sys, torch
from testbed.config import Experiment
from testbed.execution import open_executor
from testbed.learning.client import prepare

if __name__ == "__main__":
    torch.set_num_threads(1)  # as in every run
    experiment = Experiment.model_validate_json(sys.argv[1])
    with open_executor(experiment, 0, prepare(experiment, 0)) as executor:
        done = executor.train(range(8))
        print(*(answer.train_s + answer.fisher_s for answer in done))
"""


@pytest.mark.parametrize("kind", ["serial", "processes"])
def test_the_first_training_is_measured_like_the_others(kind: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(FIRST)
    execution = EXPERIMENT.execution.model_copy(update={"kind": kind})
    # All have equally much to do.
    data = EXPERIMENT.data.model_copy(update={"partition": "iid"})
    experiment = EXPERIMENT.model_copy(update={"execution": execution, "data": data})
    done = subprocess.run(
        [sys.executable, script, experiment.model_dump_json()],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    seconds = [float(word) for word in done.stdout.split()]
    assert len(seconds) == 8
    # Without a warm-up torch's own imports count, which take as long as twenty trainings.
    assert seconds[0] < 8 * median(seconds)


def test_warming_up_changes_nothing(task: Task) -> None:
    before = {name: value.clone() for name, value in task.initial.items()}
    cold = messages(Clients(task).train([0, 1]))
    work._warm.discard(task)
    work._warm_up(task)
    assert messages(Clients(task).train([0, 1])) == cold
    assert all(torch.equal(task.initial[name], before[name]) for name in before)


@pytest.mark.skipif(sys.platform != "linux", reason="parent-death signals are Linux's")
def test_workers_die_with_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, time\n"
        "from testbed.config import load\n"
        "from testbed.execution import open_executor\n"
        "from testbed.learning.client import prepare\n"
        "if __name__ == '__main__':\n"
        "    e = load(None, ['clients.pool=4', 'learning.epochs=1', 'execution.kind=processes',\n"
        "                    'execution.workers=2'])\n"
        "    with open_executor(e, 0, prepare(e, 0)) as executor:\n"
        "        executor.train([0, 1, 2, 3])\n"
        "        pids = [str(p) for p in executor.crew.pool._processes]\n"
        "        print(' '.join(pids), flush=True)\n"
        "        time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        assert workers
        assert all(alive(pid) for pid in workers)
        parent.kill()
        parent.wait()
        deadline = time.monotonic() + 10
        while any(alive(pid) for pid in workers) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(alive(pid) for pid in workers)


def alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rsplit(")", 1)[1].split()[0] != "Z"
