"""Keys: equal exactly where the results are equal."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from testbed.config import load
from testbed.learning import identity
from testbed.learning.client import prepare
from testbed.learning.compression import Upload
from testbed.learning.conditioning import Conditioning
from testbed.learning.contribution import serialise
from testbed.learning.identity import code_version, model_key, statistic_key
from testbed.learning.statistics import PARTS, contribute
from testbed.learning.task import Task
from testbed.streams import Streams

BASE = ("clients.pool=6", "learning.epochs=1", "learning.model=small-cnn")


def task(*settings: str, seed: int = 0) -> Task:
    return prepare(load(None, [*BASE, *settings]), seed)


@pytest.fixture(scope="module")
def base() -> Task:
    return task()


def test_keys_are_64_digits_and_all_different(base: Task) -> None:
    keys = [model_key(base, part) for part in range(6)]
    keys += [statistic_key(base, part, name) for part in range(6) for name in PARTS]
    assert len(set(keys)) == len(keys) == 6 * (1 + len(PARTS))
    assert all(len(key) == 64 and set(key) <= set("0123456789abcdef") for key in keys)


def test_another_task_of_the_same_settings_has_the_same_keys(base: Task) -> None:
    again = task()
    assert again is not base
    for part in range(6):
        assert model_key(again, part) == model_key(base, part)
        assert statistic_key(again, part, "fisher") == statistic_key(base, part, "fisher")


def test_another_process_finds_the_same_keys(base: Task) -> None:
    code = (
        "import sys; from testbed.config import load; from testbed.learning.client import prepare;"
        "from testbed.learning.identity import *; task = prepare(load(None, sys.argv[1:]), 0);"
        "print(model_key(task, 3), statistic_key(task, 3, 'fisher'), code_version())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *BASE],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7"},
    )
    assert done.stdout.split() == [
        model_key(base, 3), statistic_key(base, 3, "fisher"), code_version(),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "setting",
    [
        "learning.epochs=2",
        "learning.lr=0.02",
        "learning.batch=32",
        "learning.momentum=0.5",
        "learning.model=mlp",
        "data.limit=600",
        "data.test_share=0.3",
        "data.alpha=0.3",
        "data.holdout=0.2",
        "data.partition=iid",
        "clients.pool=7",
    ],
)
def test_what_changes_a_training_changes_its_key(base: Task, setting: str) -> None:
    other = task(setting)
    for part in range(6):
        assert model_key(other, part) != model_key(base, part)
        assert statistic_key(other, part, "model") != statistic_key(base, part, "model")


def test_the_seed_changes_all_keys(base: Task) -> None:
    other = task(seed=1)
    assert not {model_key(other, part) for part in range(6)} & {
        model_key(base, part) for part in range(6)
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("streams", Streams(9)),
        ("initial", "moved"),
        ("parts", "shuffled"),
        ("device", torch.device("meta")),
        ("model", torch.nn.Sequential()),
    ],
)
def test_each_thing_alone_changes_the_key(base: Task, name: str, value: Any) -> None:
    if value == "moved":
        value = {key: each.clone() for key, each in base.initial.items()}
        next(iter(value.values())).view(-1)[0] += 1e-6
    if value == "shuffled":  # the order in which samples are gathered decides the batches
        value = [np.flip(part) for part in base.parts]
    other = replace(base, **{name: value})
    assert model_key(other, 2) != model_key(base, 2)


@pytest.mark.parametrize(
    "setting",
    [
        "fisher.kind=diagonal",
        "fisher.estimator=sampled",
        "fisher.upload=half",
        "fusion.temper=0.9",
        "fusion.preset=paper",
        "fusion.damping=0.9",
        "editing.rho=0.1",
        "editing.methods=retrain",
        "mobility.density=3.0",
        "network.preset=itsg5",
        "device.preset=drive-agx-orin",
        "time.mode=measured",
        "seeds=4",
        "name=other",
    ],
)
def test_what_leaves_a_training_alone_leaves_its_key_alone(base: Task, setting: str) -> None:
    assert model_key(task(setting), 2) == model_key(base, 2)


@pytest.mark.parametrize("name", list(PARTS))
@pytest.mark.parametrize(
    "change",
    [
        {"kind": "diagonal"},
        {"estimator": "empirical"},
        {"conditioning": Conditioning(temper=0.3)},
        {"upload": Upload("half", 8)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_equal_keys_of_a_statistic_mean_equal_messages(
    base: Task, name: str, change: dict[str, Any]
) -> None:
    other = replace(base, **change)
    sent = [serialise(contribute(each, 1, each.initial, name)) for each in (base, other)]
    keys = [statistic_key(each, 1, name) for each in (base, other)]
    assert (keys[0] == keys[1]) == (sent[0] == sent[1])


def test_held_out_pictures_are_part_of_what_is_sent(base: Task) -> None:
    fewer = replace(base, holdouts=[held[:1] for held in base.holdouts])
    assert statistic_key(fewer, 2, "kfac+holdout") != statistic_key(base, 2, "kfac+holdout")
    assert model_key(fewer, 2) == model_key(base, 2)


# --- the code --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("learning/training.py", True),
        ("learning/detection/__init__.py", True),
        ("learning/new.py", True),
        ("streams.py", True),
        ("simulation/world.py", False),
        ("fusion/fsosa.py", False),
    ],
)
def test_the_version_is_that_of_the_sources_that_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, counts: bool
) -> None:
    package = tmp_path / "testbed"
    shutil.copytree(identity._PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    fresh = identity.code_version.__wrapped__
    monkeypatch.setattr(identity, "_PACKAGE", package)
    assert fresh() == code_version()  # where the package lies does not matter
    path = package / file
    path.parent.mkdir(exist_ok=True)
    path.write_text((path.read_text() if path.exists() else "") + "\n# changed\n")
    assert (fresh() != code_version()) == counts


def test_the_version_is_that_of_torch_too(monkeypatch: pytest.MonkeyPatch) -> None:
    known = code_version()
    monkeypatch.setattr(identity, "version", lambda library: "0.0")
    assert identity.code_version.__wrapped__() != known
    assert len(known) == 16


def test_keys_of_a_detector_name_its_library(base: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = set()
    for name, version in (("bdd100k", "8.4.1"), ("bdd100k", "8.4.2"), ("digits", "8.4.3")):
        described = {"name": name, "fingerprint": "f"}
        monkeypatch.setattr(type(base), "described", lambda self, told=described: told)
        monkeypatch.setattr(identity, "version", lambda library, told=version: told)
        keys.add(model_key(replace(base), 0))
    assert len(keys) == 3


def test_a_library_that_is_not_installed_has_no_version() -> None:
    assert identity._installed("no-such-package") is None
    assert identity._installed("torch") == f"torch {torch.__version__.partition('+')[0]}"
