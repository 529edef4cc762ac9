"""Memory that is used up in the middle of a training: one line, exit code 2, nothing half-written.

The real command runs in a process that may take little more memory than its imports did.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import everything
from minute import MINUTE

from testbed.cli import running

LIMITED = """
import resource
from pathlib import Path

import pandas, scipy.optimize, torch
import testbed.cli, testbed.execution, testbed.experiments.sweep, testbed.reporting.figures

SPARE = 600_000_000

if __name__ == "__main__":
    torch.set_num_threads(1)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + SPARE,) * 2)
    testbed.cli.main()
"""
CONFIG = """
name: hungry
mobility: {source: trace, trace: minute.csv, warmup: 10}
clients: {initial: 2, pool: 2}
data: {name: npz, path: pictures.npz, partition: iid, holdout: 0}
learning: {model: small-cnn, epochs: 1, lr: 0.05, batch: 8192}
fisher: {kind: diagonal}
editing: {requests: 2, rho: 0.99, methods: [fsosa]}
"""
WHY = (
    r"training of the client of partition 0(, in its first batch)?: the memory of this machine is "
    r"used up \(it could not allocate \d+ bytes\); lower learning.batch, detection.image_size or "
    r"execution.workers, and run the same command again"
)


@pytest.fixture
def hungry(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    labels = np.arange(16392) % 4
    pictures = rng.integers(0, 256, (16392, 16, 16), np.uint8)
    np.savez(
        tmp_path / "pictures.npz",
        x_train=pictures[8:],
        y_train=labels[8:],
        x_test=pictures[:8],
        y_test=labels[:8],
    )
    (tmp_path / "hungry.yaml").write_text(CONFIG)
    (tmp_path / "minute.csv").write_text(MINUTE)
    (tmp_path / "limited.py").write_text(LIMITED)
    return tmp_path


def limited(hungry: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "limited.py", *arguments],
        cwd=hungry, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["serial", "processes"])
def test_a_batch_that_is_too_large_ends_the_run_in_one_line(hungry: Path, kind: str) -> None:
    before = everything(hungry)
    settings = ("--set", f"execution.kind={kind}", "--set", "execution.workers=1")
    done = limited(hungry, "run", "hungry.yaml", "--out", "out", *settings)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert re.fullmatch(f"error: {WHY}", line), line
    assert everything(hungry) - before <= {"out", "__pycache__"}


def test_a_sweep_reports_it_and_does_the_other_runs(hungry: Path) -> None:
    settings = ("--grid", "learning.batch=8192,64", "--set", "execution.workers=1")
    done = limited(hungry, "sweep", "hungry.yaml", *settings, "--out", "out")
    assert (done.returncode, done.stderr) == (1, ""), done.stdout
    summary = json.loads((hungry / "out" / "sweep.json").read_text())
    assert list(summary["failed"]) == ["learning.batch=8192 fsosa seed=0"]
    (why,) = summary["failed"].values()
    assert re.fullmatch(WHY, why), why
    assert list((hungry / "out" / "learning.batch=64").glob("fsosa-*/seed=0/manifest.json"))
    assert not list((hungry / "out" / "learning.batch=8192").glob("*/seed=0"))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MemoryError(), "the memory of this machine is used up; "),
        (
            RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has"),
            "the memory of the CUDA device is used up (it could not allocate 2.00 GiB); ",
        ),
    ],
)
def test_wherever_it_happens_it_is_one_line(
    call: Callable[..., tuple[int, list[str], list[str]]],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    told: str,
) -> None:
    def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr(running, "run_experiment", failing)
    code, _, (line,) = call("run", "tiny.yaml")
    assert (code, line) == (
        2,
        f"error: {told}lower learning.batch, detection.image_size or execution.workers, or free "
        "some, and run the same command again",
    )


def test_any_other_error_of_that_kind_is_the_programs_own(
    call: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise RuntimeError("x")

    monkeypatch.setattr(running, "run_experiment", failing)
    with pytest.raises(RuntimeError, match=r"^x$"):
        call("run", "tiny.yaml")
