"""Memory that is used up while a client works: its run ends in one line, wherever it works.

As a program, this file has Ray do work for which there is no memory.
"""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from testbed.config import Experiment
from testbed.config.schema import ExecutionConfig
from testbed.errors import ShortageError, shortage
from testbed.execution import Clients, open_crew, work
from testbed.learning.classification import Classification
from testbed.learning.client import prepare
from testbed.learning.task import Task

HERE, DEVICE = "the memory of this machine is used up", "the memory of the CUDA device is used up"
ADVICE = (
    "; lower learning.batch, detection.image_size or execution.workers, and run the same command "
    "again"
)
ERRORS: dict[str, tuple[Exception, str]] = {
    "python": (MemoryError(), HERE),
    "numpy": (
        MemoryError("Unable to allocate 7.28 TiB for an array with shape (1,) and data type int8"),
        f"{HERE} (it could not allocate 7.28 TiB)",
    ),
    "torch": (
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate "
            "memory: you tried to allocate 8 bytes. Error code 12 (Cannot allocate memory)"
        ),
        f"{HERE} (it could not allocate 8 bytes)",
    ),
    "c++": (RuntimeError("std::bad_alloc"), HERE),
    "cuda": (
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a"),
        f"{DEVICE} (it could not allocate 20.00 MiB)",
    ),
    "cublas": (
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        DEVICE,
    ),
    "cudnn": (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), DEVICE),
}


@pytest.fixture(scope="module")
def task() -> Task:
    experiment = Experiment.model_validate(
        {"clients": {"pool": 9}, "learning": {"epochs": 1}, "fisher": {"kind": "diagonal"}}
    )
    return prepare(experiment, seed=0)


def raising(error: Exception, tried: list[int] | None = None) -> Any:
    """Return what takes the place of a client's work; the warm-up, of partition 0, is left out."""
    tried = [] if tried is None else tried

    def failing(task: Any, part: int, *_: object) -> Any:
        tried.append(part)
        raise error

    return failing


@pytest.mark.parametrize("name", ERRORS)
def test_a_shortage_names_the_client_its_work_and_what_to_do(
    task: Task, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    error, told = ERRORS[name]
    clients, tried = Clients(task), list[int]()
    clients.train([0])  # so that nothing is warmed up below
    monkeypatch.setattr(work, "contribute", raising(error, tried))
    with pytest.raises(ShortageError) as caught:
        clients.train([3])
    assert str(caught.value) == f"Fisher information of the client of partition 3: {told}{ADVICE}"
    assert caught.value.__cause__ is error
    monkeypatch.setattr(Classification, "train", raising(error, tried))
    start = f"training of the client of partition 5: {told}"
    with pytest.raises(ShortageError) as caught:
        clients.train([5])
    assert str(caught.value) == start + ADVICE
    with pytest.raises(ShortageError) as caught:
        clients.tune([5], task.initial)
    assert str(caught.value) == start + ADVICE
    assert tried == [3, 5, 5]  # each once


def test_the_first_batch_of_all_may_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = prepare(Experiment.model_validate({"clients": {"pool": 9}}), seed=0)
    monkeypatch.setattr(Classification, "train", raising(MemoryError()))
    with pytest.raises(ShortageError) as caught:
        Clients(fresh).train([4])
    assert str(caught.value) == (
        f"training of the client of partition 0, in its first batch: {HERE}{ADVICE}"
    )


def test_what_is_no_shortage() -> None:
    for error in (
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        ValueError("out of memory"),
        OSError(errno.ENOSPC, "No space left on device"),
        KeyError("x"),
    ):
        assert shortage(error) is None
    assert shortage(OSError(errno.ENOMEM, "Cannot allocate memory")) == HERE
    with pytest.raises(MemoryError) as caught:
        np.empty((1 << 50,), np.uint8)
    assert shortage(caught.value) == f"{HERE} (it could not allocate 1.00 PiB)"


# --- workers ---------------------------------------------------------------------------


def run_out(part: int) -> int:
    """Have a client train for which there is no memory."""
    task = prepare(Experiment.model_validate({"clients": {"pool": 9}}), seed=0)
    work.train(task, 0)
    Classification.train = raising(MemoryError())  # type: ignore[method-assign]
    work.train(task, part)
    return part


LINE = f"training of the client of partition 2: {HERE}{ADVICE}"


def test_it_comes_back_from_a_worker_process() -> None:
    pool = ExecutionConfig(kind="processes", workers=1)
    with pytest.raises(ShortageError) as caught, open_crew(pool) as crew:
        list(crew.map(run_out, [2]))
    assert str(caught.value) == LINE


def test_it_comes_back_from_ray() -> None:
    pytest.importorskip("ray", reason="needs the extra ray", exc_type=ImportError)
    done = subprocess.run(
        [sys.executable, Path(__file__)],
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == ["ShortageError", LINE]


if __name__ == "__main__":
    with open_crew(ExecutionConfig(kind="ray", workers=1, memory_gb=0.5)) as ray_crew:
        try:
            list(ray_crew.map(run_out, [2]))
        except Exception as error:
            sys.stdout.write(json.dumps([type(error).__name__, str(error)]) + "\n")
