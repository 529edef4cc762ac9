"""A run's detection task: its partition, its initial weights, its refusals."""

from pathlib import Path

import numpy as np
import pytest
import torch
from drawn import make
from safetensors.torch import save_file

from testbed.config import Experiment, load
from testbed.errors import ConfigError, DataError
from testbed.learning.client import inform, prepare
from testbed.learning.contribution import serialise
from testbed.learning.detection import network
from testbed.learning.detection.task import Detection
from testbed.learning.task import Session

pytestmark = pytest.mark.usefixtures("yolo")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    return make(tmp_path_factory.mktemp("drawn"), train=24, test=4)


@pytest.fixture
def overrides(files: tuple[Path, ...], tmp_path: Path) -> list[str]:
    keys = ("path", "labels", "test_path", "test_labels")
    return [
        "data.name=bdd100k",
        *(f"data.{key}={path}" for key, path in zip(keys, files, strict=True)),
        "data.partition=iid",
        "data.holdout=0.25",
        "clients.pool=4",
        "clients.initial=4",
        "learning.model=yolov8n",
        "learning.epochs=1",
        "learning.batch=4",
        "learning.lr=0.001",
        "detection.image_size=64",
        "fisher.kind=diagonal",
        "fisher.estimator=empirical",
        f"execution.cache={tmp_path / 'cache'}",
    ]


def prepared(overrides: list[str], *more: str, seed: int = 0) -> Detection:
    task = prepare(load(None, [*overrides, *more]), seed)
    assert isinstance(task, Detection)
    return task


def saved(name: str, classes: int, path: Path) -> dict[str, torch.Tensor]:
    """Write random weights of a model to a file."""
    made = network.build(name, classes, seed=5).state_dict()
    state = {key: value.contiguous() for key, value in made.items()}
    save_file(state, path)
    return state


def test_every_picture_is_one_clients_and_a_share_is_held_out(overrides: list[str]) -> None:
    task = prepared(overrides)
    assert (task.shape, len(task.classes), task.epochs) == ((3, 64, 64), 10, 1)
    assert [
        (len(part), len(out)) for part, out in zip(task.parts, task.holdouts, strict=True)
    ] == ([(5, 1)] * 4)
    everything = np.concatenate([*task.parts, *task.holdouts])
    assert sorted(everything) == list(range(24))


def test_a_client_may_drive_by_day_or_by_night_only(overrides: list[str]) -> None:
    chosen = ("data.partition=attribute", "data.attribute=timeofday", "data.holdout=0")
    task = prepared(overrides, *chosen)
    frames = task.data.train.frames
    hours = [{frames[index].attributes["timeofday"] for index in part} for part in task.parts]
    assert sorted(hours, key=str) == [{"daytime"}] * 2 + [{"night"}] * 2


def test_dirichlet_draws_go_by_the_attribute(overrides: list[str]) -> None:
    uneven = ("data.partition=dirichlet", "data.alpha=0.05", "data.minimum=1", "data.holdout=0")
    task = prepared(overrides, *uneven, "data.attribute=timeofday")
    night = np.array([f.attributes["timeofday"] == "night" for f in task.data.train.frames])
    shares = [night[part].mean() for part in task.parts if len(part) > 2]
    assert max(shares) > 0.8
    assert min(shares) < 0.2


def test_a_contribution_is_a_pure_function_of_seed_and_partition(overrides: list[str]) -> None:
    first, again = prepared(overrides), prepared(overrides)

    def sent(task: Detection, part: int) -> bytes:
        return serialise(inform(task, part, task.train(part, task.initial)))

    message = sent(first, 1)
    sent(again, 3)  # whoever works before does not matter
    assert sent(again, 1) == message
    assert sent(prepared(overrides, seed=1), 1) != message


def test_a_session_has_its_own_epochs_and_order(overrides: list[str]) -> None:
    task = prepared(overrides)
    once = task.train(0, task.initial)
    key = "model.0.conv.weight"
    assert torch.equal(once[key], task.train(0, task.initial, Session(epochs=1))[key])
    assert not torch.equal(once[key], task.train(0, task.initial, Session(round=1))[key])
    assert int(
        task.train(0, task.initial, Session(epochs=2))["model.0.bn.num_batches_tracked"]
    ) == (2 * int(once["model.0.bn.num_batches_tracked"]))


def test_few_learn_nothing(overrides: list[str]) -> None:
    few = prepared(overrides).few()
    trained = few.train(0, few.initial)
    for name, weight in few.initial.items():
        if weight.is_floating_point() and "running" not in name:
            assert torch.equal(trained[name], weight)
    assert len(few.parts[0]) == 4


def test_weights_of_another_number_of_classes_give_all_but_the_class_head(
    overrides: list[str], tmp_path: Path
) -> None:
    state = dict(network.build("yolov8n", 3, seed=5).state_dict())
    save_file(
        {name: value.contiguous() for name, value in state.items()}, tmp_path / "w.safetensors"
    )
    task = prepared(overrides, f"detection.weights={tmp_path / 'w.safetensors'}")
    assert torch.equal(task.initial["model.0.conv.weight"], state["model.0.conv.weight"])
    fresh = task.start["reinitialised"]
    assert fresh
    assert all(name.startswith("model.22.cv3.") for name in fresh)
    assert task.initial["model.22.cv3.0.2.weight"].shape[0] == 10
    (remark,) = task.remarks()
    assert remark.startswith(f"{len(fresh)} tensors are not in w.safetensors")
    assert task.described()["initial"]["weights"] == "w.safetensors"


def test_weights_of_another_model_are_refused(overrides: list[str], tmp_path: Path) -> None:
    state = network.build("yolov8s", 10, seed=5).state_dict()
    save_file(
        {name: value.contiguous() for name, value in state.items()}, tmp_path / "s.safetensors"
    )
    with pytest.raises(ConfigError, match=r"not the weights of yolov8n: \d+ of 355 tensors fit"):
        prepared(overrides, f"detection.weights={tmp_path / 's.safetensors'}")


def test_remarks_count_what_was_left_out(overrides: list[str], tmp_path: Path) -> None:
    images, labels, *_ = make(tmp_path / "other", train=24, test=1)
    (images / "train_003.jpg").write_bytes(b"no picture")
    task = prepared(overrides, f"data.path={images}", f"data.labels={labels}")
    assert task.remarks() == (
        "1 pictures were left out, the first is train/train_003.jpg: unreadable.",
    )
    assert task.described()["counts"]["train_unreadable"] == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("learning.model=lenet", "learning.model is lenet and data.name bdd100k"),
        ("fisher.estimator=exact", "fisher.estimator is exact"),
        ("data.partition=writers", "bdd100k has no writers"),
        ("data.partition=attribute", "attribute needs data.attribute weather, scene or timeofday"),
        ("data.test_labels=null", "bdd100k needs data.test_labels"),
        ("editing.methods=fsosa,regmean,pfnm", "regmean, pfnm cannot fuse detectors"),
        ("detection.image_size=100", "multiple of 32"),
    ],
)
def test_refused_before_anything_is_read(overrides: list[str], change: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load(None, [*overrides, change])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("learning.model=yolov8n", "learning.model is yolov8n and data.name digits"),
        ("data.attribute=weather", "digits knows classes only"),
        ("data.partition=attribute", "digits knows classes only"),
    ],
)
def test_what_only_detectors_know(change: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load(None, [change])


def test_refused_by_the_data(overrides: list[str], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data.path: there is no folder"):
        prepared(overrides, f"data.path={tmp_path / 'nowhere'}")
    with pytest.raises(DataError, match="20 clients"):
        prepared(overrides, "clients.pool=20", "data.minimum=2")
    with pytest.raises(ConfigError, match="bf16 is for CUDA"):
        prepared(overrides, "detection.precision=bf16", "learning.device=cpu")


def test_the_paper_model_is_the_default(overrides: list[str]) -> None:
    experiment = load(None, [*overrides, "learning.model=auto", "detection.image_size=32"])
    assert isinstance(experiment, Experiment)
    assert sum(value.numel() for value in prepare(experiment, 0).initial.values()) > 11e6
