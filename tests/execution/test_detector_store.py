"""The store and detectors: the same keys everywhere, the same bits from a worker and a store."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from drawn import make

from testbed.config import load
from testbed.execution import Clients, Store, open_executor, task_of
from testbed.execution.store import Counts
from testbed.execution.tasks import Blueprint
from testbed.learning.contribution import serialise
from testbed.learning.identity import model_key, statistic_key

# To import it here would have side effects.
pytestmark = pytest.mark.skipif(find_spec("ultralytics") is None, reason="needs the extra yolo")


def test_a_detector_trained_in_a_worker_is_found_in_the_store(tmp_path: Path) -> None:
    keys = ("path", "labels", "test_path", "test_labels")
    files = make(tmp_path / "drawn", train=12, test=4)
    experiment = load(
        None,
        [
            "data.name=bdd100k",
            *(f"data.{key}={path}" for key, path in zip(keys, files, strict=True)),
            "data.partition=iid",
            "clients.pool=3",
            "learning.model=yolov8n",
            "learning.epochs=1",
            "learning.batch=4",
            "learning.lr=0.001",
            "detection.image_size=64",
            "fisher.kind=diagonal",
            "fisher.estimator=empirical",
            "editing.methods=fsosa",
            f"execution.cache={tmp_path / 'cache'}",
            f"execution.store={tmp_path / 'store'}",
            "execution.kind=processes",
            "execution.workers=1",
        ],
    )
    task = task_of(Blueprint.of(experiment, 0))
    before = model_key(task, 0), statistic_key(task, 0, "fisher")
    (plain,) = Clients(task).train([0])
    with open_executor(experiment, 0, task) as clients:
        (trained,) = clients.train([0])
    assert serialise(trained.contribution) == serialise(plain.contribution)
    store = Store(tmp_path / "store")
    # Of the worker's making, under the names that this process gave before it ever trained.
    assert [store.record(key).bytes > 10**6 for key in before] == [True, True]
    again = Clients(task_of(Blueprint.of(experiment, 0)), store=store)
    (found,) = again.train([0])
    assert serialise(found.contribution) == serialise(plain.contribution)
    assert again.counts == Counts(hits=2)
