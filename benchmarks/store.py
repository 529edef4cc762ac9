"""What it costs to keep a client's work, relative to doing it.

A LeNet client trains as in benchmarks/clients.py: 600 pictures of 28x28, 5 epochs of batches of
64, and sends its model and K-FAC factors.  A YOLOv8s client has a model and a diagonal Fisher of
44.6 MB each; to train it takes a GPU hours, so it is compared with a single step on two pictures
of 640x640, which flatters the training by a factor of thousands.  To put is to write, check in
with the disk and rename; to get is to read, from the cache of the system as a rule, and verify.
Usage: python benchmarks/store.py
"""

import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import torch
from clients import experiment

from testbed.execution import Blueprint, Store, task_of, work
from testbed.execution.entry import Entry, Record
from testbed.learning.contribution import deserialise_model

TURNS = 9
GOAL = 0.05
MEGABYTE = 1e6


def seconds(do: Callable[[int], object]) -> float:
    """Return the median of several times."""
    times = []
    for turn in range(TURNS):
        begin = time.perf_counter()
        do(turn)
        times.append(time.perf_counter() - begin)
    return median(times)


def keeping(folder: Path, messages: list[bytes]) -> tuple[float, float]:
    """Return the seconds to put and to get the messages of one client."""
    store = Store(folder, limit_bytes=10**12)

    def put(turn: int) -> None:
        for number, message in enumerate(messages):
            record = Record("benchmark", 1.0, 1, len(message), "")
            store.put(f"{turn:02x}{number:062x}", Entry(message, record))

    def get(turn: int) -> None:
        for number in range(len(messages)):
            assert store.get(f"{turn:02x}{number:062x}") is not None

    return seconds(put), seconds(get)


def lenet(folder: Path) -> tuple[list[bytes], float]:
    """Return what a LeNet client sends, and the seconds of its work."""
    task = task_of(Blueprint.of(experiment(folder), 0))
    took, messages = [], []
    for part in range(3):
        model = work.train(task, part)
        assert isinstance(model.message, bytes)
        told = work.inform(task, part, deserialise_model(model.message), "fisher")
        assert isinstance(told.message, bytes)
        messages = [model.message, told.message]
        took.append(model.seconds + told.seconds)
    return messages, median(took)


def detector() -> tuple[list[bytes], float]:
    """Return messages of the size of a YOLOv8s client's, and the seconds of one step."""
    from testbed.learning.detection import network

    model = network.build("yolov8s", 10, seed=0)
    size = sum(value.numel() * value.element_size() for value in model.state_dict().values())
    pictures = torch.rand(2, 3, 640, 640)
    targets = torch.tensor([[0, 1, 0.5, 0.5, 0.2, 0.2], [1, 2, 0.4, 0.4, 0.1, 0.3]])
    network.loss(model, pictures, targets).backward()
    begin = time.perf_counter()
    network.loss(model, pictures, targets).backward()
    return [bytes(size)] * 2, time.perf_counter() - begin


def show(name: str, folder: Path, messages: list[bytes], took: float, unit: str) -> None:
    """Print one line."""
    put, get = keeping(folder, messages)
    size = sum(map(len, messages)) / MEGABYTE
    print(
        f"{name:<8} {size:6.2f} MB   put {put:7.4f} s   get {get:7.4f} s   {unit} {took:7.3f} s   "
        f"ratio {(put + get) / took:.3f}",
        flush=True,
    )


def main() -> None:
    """Print sizes, seconds and ratios."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        show("LeNet", folder / "a", *lenet(folder), "training")
        if find_spec("ultralytics") is not None:
            show("YOLOv8s", folder / "b", *detector(), "one step")
    print(f"goal: at most {GOAL} of a training")


if __name__ == "__main__":
    main()
