"""Crews: answers in order, and no process that stays behind, whatever happens."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from testbed.config.schema import ExecutionConfig
from testbed.execution.crew import ProcessCrew, SerialCrew, WorkerLostError, open_crew

POOL = ExecutionConfig(kind="processes", workers=2)
ONE = ExecutionConfig(kind="processes", workers=1)


def late(number: int, seconds: float) -> int:
    time.sleep(seconds)
    return number


def threads(_: int) -> int:
    return torch.get_num_threads()


def die(number: int) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_every_crew_has_one_torch_thread() -> None:
    torch.set_num_threads(2)
    with open_crew(ExecutionConfig()) as crew:
        assert list(crew.map(threads, [0])) == [1]
    assert torch.get_num_threads() == 1


def test_one_process_works_when_the_answer_is_wanted() -> None:
    done: list[int] = []
    with open_crew(ExecutionConfig()) as crew:
        assert (crew, crew.size) == (SerialCrew(), 1)
        answers = crew.map(done.append, [1, 2, 3])
        next(answers)
        assert done == [1]
        assert list(crew.map(pow, [2, 3], [5, 2])) == [32, 9]
        assert list(crew.map(pow, [], [])) == []
        with pytest.raises(ValueError, match="zip"):
            list(crew.map(pow, [1, 2], [1]))


def test_answers_come_in_the_order_asked_and_workers_have_one_thread() -> None:
    before = multiprocessing.active_children()
    with open_crew(POOL) as crew:
        assert isinstance(crew, ProcessCrew)
        assert crew.size == 2
        assert multiprocessing.active_children() == before  # until there is work
        assert list(crew.map(late, [1, 2, 3, 4], [0.3, 0.0, 0.1, 0.0])) == [1, 2, 3, 4]
        assert len(multiprocessing.active_children()) == len(before) + 2
        assert list(crew.map(threads, [0])) == [1]
    assert multiprocessing.active_children() == before


def test_a_killed_worker_is_one_line() -> None:
    with pytest.raises(WorkerLostError, match="a worker process was killed, ") as told:
        killed()
    assert "\n" not in str(told.value)


def killed() -> None:
    with open_crew(ONE) as crew:
        list(crew.map(die, [0, 1, 2]))


def test_an_error_ends_workers_in_the_middle_of_their_work() -> None:
    before = multiprocessing.active_children()
    begin = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        fail_while_they_work()
    assert multiprocessing.active_children() == before
    assert time.monotonic() - begin < 60  # they had an hour's work


def fail_while_they_work() -> None:
    with open_crew(ONE) as crew:
        list(crew.map(late, [0, 1], [0.0, 0.0]))
        crew.map(late, [1, 2, 3], [3600.0] * 3)
        raise ZeroDivisionError


BUSY = """
import sys, time
from testbed.config.schema import ExecutionConfig
from testbed.execution.crew import open_crew

if __name__ == "__main__":
    try:
        with open_crew(ExecutionConfig(kind="processes", workers=1)) as crew:
            list(crew.map(time.sleep, [0.0, 0.0]))
            answers = crew.map(time.sleep, [3600.0] * 4)
            print("ready", flush=True)
            list(answers)
    except KeyboardInterrupt:
        sys.exit(130)
"""


def test_ctrl_c_ends_busy_workers_without_a_traceback(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(BUSY)
    with subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout.read() == ""
    assert process.returncode == 130
