"""A detector's run without learning has the ledger of the run with it."""

from dataclasses import replace

import numpy as np
import pytest
from drawn import make

from testbed.config import Experiment, load
from testbed.execution import Clients
from testbed.learning.client import prepare
from testbed.mobility import open_source
from testbed.simulation.outline import outline
from testbed.simulation.placeholder import Placeholder
from testbed.simulation.world import Outcome, World

pytestmark = pytest.mark.usefixtures("yolo")

TRAFFIC = "time,vehicle,kind\n" + "".join(
    f"{time},{vehicle},{kind}\n"
    for time, vehicle, kind in (
        *((1, name, "join") for name in "abcd"),
        *((20, "c", "leave"), (400, "e", "join"), (800, "b", "leave")),
    )
)


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    folder = tmp_path_factory.mktemp("drawn")
    files = make(folder, train=24, test=4)
    (folder / "t.csv").write_text(TRAFFIC)
    keys = ("path", "labels", "test_path", "test_labels")
    return load(
        None,
        [
            "data.name=bdd100k",
            *(f"data.{key}={path}" for key, path in zip(keys, files, strict=True)),
            "data.partition=iid",
            "mobility.source=trace",
            f"mobility.trace={folder / 't.csv'}",
            "mobility.warmup=2",
            "clients.pool=5",
            "clients.initial=4",
            "editing.requests=3",
            "learning.model=yolov8n",
            "learning.epochs=2",
            "learning.batch=4",
            "rounds.rounds=2",
            "detection.image_size=64",
            "fisher.kind=diagonal",
            "fisher.estimator=empirical",
            f"execution.cache={folder / 'cache'}",
        ],
    )


def run(wanted: Experiment, method: str, costed: bool) -> Outcome:
    task = outline(wanted, 0) if costed else prepare(wanted, 0)
    work = Placeholder(task) if costed else Clients(task)
    with open_source(wanted.mobility, 0) as source:
        return World(wanted, method, task, work, source).run()


@pytest.mark.parametrize("method", ["fsosa", "finetune", "federaser"])
def test_every_row_is_the_same(wanted: Experiment, method: str) -> None:
    learned, costed = (run(wanted, method, costed) for costed in (False, True))
    assert costed.ledger == learned.ledger
    assert len(learned.judged) >= 2
    assert (costed.judged, costed.model) == ((), {})
    blank = {"loss": 0.0, "map50_95": 0.0, "map50": 0.0, "accuracy": 0.0}
    for one, other in zip(costed.metrics, learned.metrics, strict=True):
        assert np.isnan([one.loss, one.map50_95, one.map50]).all()
        assert replace(one, **blank) == replace(other, **blank)


def test_tasks_share_pictures_and_network(wanted: Experiment) -> None:
    one, other = outline(wanted, 0), outline(wanted, 1)
    assert outline(wanted, 0) is one
    assert one.model is other.model
    assert one.parts[0].tolist() != other.parts[0].tolist()
