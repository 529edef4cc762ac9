"""What runs of detectors leave out is named: in full in manifests, in short in notes."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from drawn import make
from minute import MINUTE

from testbed.config import load
from testbed.errors import DataError, EditError
from testbed.experiments.run import run
from testbed.learning.client import prepare

pytestmark = pytest.mark.usefixtures("yolo")


@pytest.fixture
def settings(tmp_path: Path) -> list[str]:
    """Sixty drawn pictures, twenty partitions, a minute of traffic from a file."""
    keys = ("path", "labels", "test_path", "test_labels")
    (tmp_path / "minute.csv").write_text(MINUTE)
    return [
        "name=left-out",
        "data.name=bdd100k",
        *(f"data.{key}={path}" for key, path in zip(keys, make(tmp_path, 60, 2), strict=True)),
        "data.partition=iid",
        "data.holdout=0",
        "mobility.source=trace",
        f"mobility.trace={tmp_path / 'minute.csv'}",
        "mobility.warmup=10",
        "clients.pool=20",
        "clients.initial=2",
        "editing.requests=1",
        "editing.rho=0.99",
        "editing.methods=[fsosa]",
        "learning.model=yolov8n",
        "learning.epochs=1",
        "learning.lr=0.001",
        "detection.image_size=32",
        "fisher.kind=diagonal",
        "fisher.estimator=empirical",
        f"execution.cache={tmp_path / 'cache'}",
    ]


def strip(tmp_path: Path, keep: range) -> None:
    """Take the boxes from all pictures but those of `keep`."""
    frames = json.loads((tmp_path / "train.json").read_text())
    for place, frame in enumerate(frames):
        if place not in keep:
            frame["labels"] = []
    (tmp_path / "train.json").write_text(json.dumps(frames))


def test_the_manifest_names_every_picture_and_every_client(
    settings: list[str], tmp_path: Path
) -> None:
    (tmp_path / "train" / "train_007.jpg").unlink()
    (tmp_path / "train" / "train_031.jpg").unlink()
    (tmp_path / "train" / "train_050.jpg").write_bytes(b"no picture")
    strip(tmp_path, range(6))
    experiment = load(None, settings)
    task = prepare(experiment, 0)
    named = np.flatnonzero([max(part) >= 6 and min(part) >= 6 for part in task.parts]).tolist()
    assert 5 < len(named) < 20
    (done,) = run(experiment, tmp_path / "out")
    manifest = json.loads((done.cell.folder / "manifest.json").read_text())
    assert manifest["data"]["skipped"] == [
        "train/train_007.jpg: missing",
        "train/train_031.jpg: missing",
        "train/train_050.jpg: unreadable",
    ]
    assert manifest["data"]["boxless"] == named
    first = ", ".join(map(str, named[:5]))
    assert manifest["notes"][-2:] == [
        "3 pictures were left out, the first is train/train_007.jpg: missing.",
        f"{len(named)} of 20 clients have not a single box and learn background: partition "
        f"{first}, ...",
    ]


def test_few_clients_without_a_box_are_all_named(settings: list[str], tmp_path: Path) -> None:
    whole = prepare(load(None, settings), 0)
    assert whole.remarks() == ()
    assert (whole.described()["skipped"], whole.described()["boxless"]) == ([], [])
    # The rest hold boxes; those of partitions 4 and 11 lose theirs.
    frames = json.loads((tmp_path / "train.json").read_text())
    for place in (*whole.parts[4], *whole.parts[11]):
        frames[place]["labels"] = []
    (tmp_path / "train.json").write_text(json.dumps(frames))
    task = prepare(load(None, settings), 0)
    assert task.remarks() == (
        "2 of 20 clients have not a single box and learn background: partition 4, 11.",
    )
    assert task.described()["boxless"] == [4, 11]


def test_a_pool_that_is_too_large_is_refused_with_file_and_advice(
    settings: list[str], tmp_path: Path
) -> None:
    alone = ["data.partition=attribute", "data.attribute=timeofday", "data.minimum=4"]
    with pytest.raises(DataError) as caught:
        prepare(load(None, [*settings, *alone]), 0)
    assert str(caught.value) == (
        f"data.partition: {tmp_path / 'train.json'}: 60 pictures cannot give 20 clients 4 each; "
        "lower clients.pool or data.minimum"
    )


def test_training_that_diverges_is_told_what_to_do_once(
    settings: list[str], tmp_path: Path
) -> None:
    wild = ["learning.lr=1.0e+12", "learning.epochs=5"]
    with pytest.raises(EditError) as caught:
        list(run(load(None, [*settings, *wild]), tmp_path / "out"))
    line = str(caught.value)
    assert re.search(r"step 2: the loss is \S+ and the norm of its gradient [a-z]+;", line), line
    assert line.endswith("; if training diverged, lower learning.lr")
    assert line.count("learning.lr") == 1
