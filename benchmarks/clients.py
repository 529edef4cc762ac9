"""Local training of many small clients in two worker processes, against a plain loop.

100 LeNet clients x 600 pictures of 28x28 x 5 epochs of batches of 64.  The plain loop is the
one anyone would write, on one thread; both do the same steps on the same batches, and their
models must agree bit for bit.  The two take turns, 20 clients at a time, so that other load
on the machine meets both; the start of the workers is not counted, and their messages are.
Usage: python benchmarks/clients.py
"""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.config import Experiment
from testbed.execution import Blueprint, Clients, Crew, open_executor, task_of
from testbed.learning.classification import Classification, prepare
from testbed.learning.contribution import Contribution

CLIENTS, SAMPLES, EPOCHS, BATCH = 100, 600, 5, 64
LR, MOMENTUM = 0.01, 0.9
WORKERS = 2
TURN = 20
GOAL = 0.58


class LeNet(nn.Module):
    """LeNet as it is usually written."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, bias=False)
        self.conv2 = nn.Conv2d(6, 16, 5, bias=False)
        self.fc1 = nn.Linear(256, 120, bias=False)
        self.fc2 = nn.Linear(120, 84, bias=False)
        self.fc3 = nn.Linear(84, 10, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        x = functional.relu(self.fc1(x.flatten(1)))
        x = self.fc3(functional.relu(self.fc2(x)))
        return x


def plain(task: Classification, part: int) -> dict[str, Tensor]:
    """Train one client in a plain loop; return its weights by the task's names."""
    x, y = task.samples(part)
    model = LeNet()
    model.load_state_dict(dict(zip(model.state_dict(), task.initial.values(), strict=True)))
    criterion = nn.CrossEntropyLoss()
    optimiser = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    rng = task.streams.rng("client", part, "batches")
    for _ in range(EPOCHS):
        order = torch.from_numpy(rng.permutation(len(y)))
        for begin in range(0, len(y), BATCH):
            chosen = order[begin : begin + BATCH]
            optimiser.zero_grad()
            loss = criterion(model(x[chosen]), y[chosen])
            loss.backward()
            optimiser.step()
    return dict(zip(task.initial, model.state_dict().values(), strict=True))


def ready(blueprint: Blueprint) -> int:
    """Prepare a task, and say in which process."""
    task_of(blueprint)
    return os.getpid()


def wait_for(crew: Crew, blueprint: Blueprint) -> None:
    """Return when all workers are up and have prepared their task."""
    workers: set[int] = set()
    while len(workers) < WORKERS:
        workers |= set(crew.map(ready, [blueprint] * 10 * WORKERS))


def experiment(folder: Path) -> Experiment:
    """Describe the task: random pictures, equal shares."""
    rng = np.random.default_rng(0)
    size = CLIENTS * SAMPLES
    np.savez(
        folder / "mnist.npz",
        x_train=rng.integers(256, size=(size, 28, 28), dtype=np.uint8),
        y_train=rng.permutation(np.arange(size, dtype=np.uint8) % 10),
        x_test=np.zeros((10, 28, 28), np.uint8),
        y_test=np.arange(10, dtype=np.uint8),
    )
    return Experiment.model_validate(
        {
            "clients": {"pool": CLIENTS},
            "data": {"name": "mnist", "path": folder, "partition": "iid", "holdout": 0},
            "learning": {
                "model": "lenet",
                "epochs": EPOCHS,
                "batch": BATCH,
                "lr": LR,
                "momentum": MOMENTUM,
                "device": "cpu",
            },
            "execution": {"kind": "processes", "workers": WORKERS},
        }
    )


def main() -> None:
    """Print wall-clock seconds of both and their ratio."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        described = experiment(Path(folder))
        task = prepare(described, seed=0)
        assert {len(part) for part in task.parts} == {SAMPLES}
        plain(task, 0)  # torch sets itself up at its first step
        with open_executor(described, 0, task) as executor:
            wait_for(executor.crew, Blueprint.of(described, 0))
            measure(task, executor)


def measure(task: Classification, executor: Clients) -> None:
    """Have both train all clients in turns."""
    ours, theirs = [], []
    for first in range(0, CLIENTS, TURN):
        parts = range(first, first + TURN)
        begin = time.perf_counter()
        trained = executor.train(parts, "model")
        between = time.perf_counter()
        expected = [plain(task, part) for part in parts]
        theirs.append(time.perf_counter() - between)
        ours.append(between - begin)
        for one, weights in zip(trained, expected, strict=True):
            assert isinstance(one.contribution, Contribution)
            model = one.contribution.model
            assert all(torch.equal(model[name], weights[name]) for name in weights)
        print(f"clients {first:>2} to {first + TURN - 1}: {ours[-1] / theirs[-1]:.3f}", flush=True)
    ratio = sum(ours) / sum(theirs)
    print(f"plain loop, one thread  {sum(theirs):6.2f} s")
    print(f"{WORKERS} workers               {sum(ours):6.2f} s   models bit-identical")
    print(f"ratio {ratio:.3f} (goal {GOAL})")


if __name__ == "__main__":
    main()
