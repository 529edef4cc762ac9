"""Ultralytics' own trainer, set to the recipe, gives the same model."""

import math
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from states import RECIPE, SIX, apart, learnt, steps_of
from torch import Tensor

from testbed.learning.detection.network import build
from testbed.learning.detection.pictures import Pictures
from testbed.learning.detection.training import DetectionRecipe, train

pytestmark = pytest.mark.usefixtures("yolo")


class Given(np.random.Generator):
    """Orders pictures as it is told; augments nothing."""

    def __init__(self, orders: np.ndarray) -> None:
        super().__init__(np.random.PCG64(0))
        self.orders = iter(orders)

    def permutation(self, _):
        return next(self.orders)


@pytest.fixture
def contained(tmp_path, monkeypatch) -> Iterator[None]:
    """Put back what the trainer changes for the process, and keep it in its folder."""
    from ultralytics.utils import callbacks

    # Without trackers of experiments, of which it loads all that are installed.
    monkeypatch.setattr(callbacks, "add_integration_callbacks", lambda _: None)
    monkeypatch.chdir(tmp_path)
    threads, environment = torch.get_num_threads(), dict(os.environ)
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.set_rng_state(states[0])
    np.random.set_state(states[1])  # noqa: NPY002
    random.setstate(states[2])
    for name in set(os.environ) - set(environment):
        del os.environ[name]


def stock(
    folder: Path, pictures: Pictures, start: dict[str, Tensor], recipe: DetectionRecipe
) -> tuple[dict[str, Tensor], list[list[int]]]:
    """Train by ultralytics' trainer, set to the recipe; return its model and its batches."""
    from ultralytics.models.yolo.detect import DetectionTrainer

    images, labels = folder / "images", folder / "labels"
    images.mkdir()
    labels.mkdir()
    for place, boxes in enumerate(pictures.targets):
        pixels = np.ascontiguousarray(pictures.pixels[place].transpose(1, 2, 0))
        Image.fromarray(pixels).save(images / f"{place}.png")
        lines = (" ".join([str(int(box[0])), *map(str, box[1:])]) for box in boxes.tolist())
        (labels / f"{place}.txt").write_text("\n".join(lines))
    names = ", ".join(f"{i}: c{i}" for i in range(10))
    (folder / "data.yaml").write_text(
        f"path: {folder}\ntrain: images\nval: images\nnames: {{{names}}}\n"
    )
    off = (
        "mosaic close_mosaic mixup cutmix copy_paste hsv_h hsv_s hsv_v degrees translate scale "
        "shear perspective flipud fliplr erasing weight_decay warmup_epochs workers"
    )
    settings: dict[str, object] = dict.fromkeys(off.split(), 0)
    batches: list[list[int]] = []

    class Trainer(DetectionTrainer):
        def preprocess_batch(self, batch):
            batches.append([int(Path(file).stem) for file in batch["im_file"]])
            return super().preprocess_batch(batch)

    trainer = Trainer(
        overrides={
            **settings,
            "model": "yolov8n.yaml", "data": str(folder / "data.yaml"), "project": str(folder),
            "name": "run", "imgsz": 64, "epochs": recipe.epochs, "batch": recipe.batch,
            "nbs": recipe.batch, "optimizer": {"sgd": "SGD", "adamw": "AdamW"}[recipe.optimiser],
            "lr0": recipe.lr, "lrf": 1.0, "cos_lr": False, "momentum": recipe.momentum,
            "amp": False, "val": False, "plots": False,
            "save": False, "device": "cpu", "verbose": False, "auto_augment": None,
        }
    )  # fmt: skip
    trainer.model = build("yolov8n", 10, 7)
    trainer.model.load_state_dict(start)
    trainer.train()
    # Validation, which it does nonetheless, comes last.
    seen = batches[: recipe.epochs * math.ceil(6 / recipe.batch)]
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}, seen


@pytest.mark.usefixtures("contained")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("optimiser", "tolerance", "moved"), [("sgd", 1e-6, 1e-3), ("adamw", 5e-4, 5e-3)]
)
def test_the_stock_trainer_set_to_the_recipe_gives_the_same_model(
    model, start, pictures, tmp_path, optimiser, tolerance, moved
):
    recipe = replace(RECIPE, epochs=3, batch=4, optimiser=optimiser)
    theirs, batches = stock(tmp_path, pictures, start, recipe)
    assert [len(batch) for batch in batches] == [4, 2] * 3
    orders = np.concatenate(batches).reshape(3, 6)
    ours = train(model, start, pictures, SIX, recipe, Given(orders))
    assert steps_of(ours) == steps_of(theirs) == 6
    assert apart(ours, theirs) < tolerance
    assert apart(learnt(ours, model), learnt(start, model)) > moved
