"""A vehicle's training of a detector: against a bare loop, the stock trainer, and in memory.

The bare loop does the same forward and backward passes, clipping and optimiser steps on
batches that lie ready, and nothing else.  The stock trainer is that of ultralytics, set to
the same recipe, without plots and validation.  Those compared take turns, and the best of
each counts, so that other load on the machine does not.  Pictures are drawn here.
Usage: python benchmarks/detection.py
"""

import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from testbed.learning.detection.network import build, loss
from testbed.learning.detection.pictures import Pictures
from testbed.learning.detection.training import CLIP, DetectionRecipe, train

MODEL, CLASSES = "yolov8n", 10
LR, MOMENTUM = 0.001, 0.9
BARE_GOAL, STOCK_GOAL = 1.1, 8.0
TURNS, CLIENTS = 5, 50

State = dict[str, Tensor]


def drawn(count: int, side: int, seed: int) -> Pictures:
    """Draw pictures of three rectangles in grey, brighter for higher classes."""
    rng = np.random.default_rng(seed)
    pixels = np.full((count, 3, side, side), 114, np.uint8)
    targets = []
    for picture in pixels:
        kinds = rng.integers(CLASSES, size=3)
        sides = rng.integers(side // 6, side // 2, (3, 2))
        corners = rng.integers(0, side - sides)
        for kind, (x, y), (width, height) in zip(kinds, corners, sides, strict=True):
            picture[:, y : y + height, x : x + width] = 25 * kind
        boxes = np.concatenate([corners + sides / 2, sides], 1) / side
        targets.append(np.concatenate([kinds[:, None], boxes], 1).astype(np.float32))
    return Pictures((), Path(), pixels, tuple(targets), np.ones(count), np.zeros((count, 2)))


def bare(model: nn.Module, start: State, pictures: Pictures, recipe: DetectionRecipe) -> float:
    """Time the passes and steps of a training and nothing else; return seconds."""
    batches = []
    for first in range(0, len(pictures.targets), recipe.batch):
        part = pictures.targets[first : first + recipe.batch]
        rows = [[place, *box] for place, boxes in enumerate(part) for box in boxes.tolist()]
        x = torch.from_numpy(pictures.pixels[first : first + recipe.batch]).float() / 255
        batches.append((x, torch.tensor(rows)))
    model.load_state_dict(start)
    model.train()
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimiser = torch.optim.SGD(weights, LR, MOMENTUM, nesterov=True, fused=True)
    begin = time.process_time()
    for _ in range(recipe.epochs):
        for x, y in batches:
            optimiser.zero_grad()
            loss(model, x, y).backward()
            nn.utils.clip_grad_norm_(weights, CLIP)
            optimiser.step()
    return time.process_time() - begin


def ours(model: nn.Module, start: State, pictures: Pictures, recipe: DetectionRecipe) -> float:
    """Time a client's training, from its start to the state that is sent; return seconds."""
    everything = np.arange(len(pictures.targets))
    begin = time.process_time()
    train(model, start, pictures, everything, recipe, np.random.default_rng(0))
    return time.process_time() - begin


def stock(folder: Path, recipe: DetectionRecipe, side: int) -> float:
    """Time the trainer of ultralytics on the pictures in a folder; return seconds."""
    from ultralytics.models.yolo.detect import DetectionTrainer

    off = "mosaic close_mosaic mixup cutmix copy_paste hsv_h hsv_s hsv_v translate scale fliplr"
    begin = time.process_time()
    trainer = DetectionTrainer(
        overrides={
            **dict.fromkeys(off.split(), 0),
            **{"model": f"{MODEL}.yaml", "data": str(folder / "data.yaml"), "imgsz": side},
            **{"epochs": recipe.epochs, "batch": recipe.batch, "nbs": recipe.batch},
            **{"optimizer": "SGD", "lr0": LR, "lrf": 1.0, "momentum": MOMENTUM},
            **{"weight_decay": 0, "warmup_epochs": 0, "amp": False, "device": "cpu"},
            **{"val": False, "plots": False, "save": False, "workers": 0, "verbose": False},
            **{"project": str(folder), "name": "run", "exist_ok": True},
        }
    )
    trainer.train()
    return time.process_time() - begin


def written(folder: Path, pictures: Pictures) -> None:
    """Write pictures as the trainer wants to read them."""
    for part in ("images", "labels"):
        (folder / part).mkdir()
    for place, boxes in enumerate(pictures.targets):
        pixels = np.ascontiguousarray(pictures.pixels[place].transpose(1, 2, 0))
        Image.fromarray(pixels).save(folder / "images" / f"{place}.png")
        lines = (" ".join([str(int(box[0])), *map(str, box[1:])]) for box in boxes.tolist())
        (folder / "labels" / f"{place}.txt").write_text("\n".join(lines))
    names = "\n".join(f"  {number}: class {number}" for number in range(CLASSES))
    (folder / "data.yaml").write_text(
        f"path: {folder}\ntrain: images\nval: images\nnames:\n{names}\n"
    )


def compared(one: Callable[[], float], other: Callable[[], float]) -> tuple[float, float]:
    """Let two take turns, after one for nothing; return the best seconds of each."""
    one(), other()
    turns = [(one(), other()) for _ in range(TURNS)]
    return min(first for first, _ in turns), min(second for _, second in turns)


def resident() -> float:
    """Return the memory that this process occupies now, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def main() -> None:
    """Print seconds, ratios and megabytes."""
    torch.set_num_threads(1)
    model = build(MODEL, CLASSES, 0)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    print("client                            bare loop      ours   ratio")
    for count, batch, side, epochs in ((6, 6, 64, 3), (24, 8, 160, 2)):
        recipe = DetectionRecipe(epochs, LR, batch, MOMENTUM)
        pictures = drawn(count, side, 0)
        theirs_s, ours_s = compared(
            lambda: bare(model, start, pictures, recipe),  # noqa: B023
            lambda: ours(model, start, pictures, recipe),  # noqa: B023
        )
        what = f"{count} pictures, {side} px, {epochs} epochs"
        print(
            f"{what:32}  {theirs_s:7.3f} s {ours_s:7.3f} s {ours_s / theirs_s:7.3f}"
            f"  (goal: at most {BARE_GOAL})",
            flush=True,
        )

    recipe, pictures = DetectionRecipe(3, LR, 6, MOMENTUM), drawn(6, 64, 0)
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)  # where it would leave files
        written(Path(name), pictures)
        theirs_s, ours_s = compared(
            lambda: stock(Path(name), recipe, 64), lambda: ours(model, start, pictures, recipe)
        )
        os.chdir("/")
    print(
        f"stock trainer {theirs_s:.3f} s, ours {ours_s:.3f} s: {theirs_s / ours_s:.1f} times "
        f"as fast (goal: at least {STOCK_GOAL})"
    )

    seen = []
    for client in range(CLIENTS):
        recipe = DetectionRecipe(2, LR, 4, MOMENTUM, augment="flip")
        ours(model, start, drawn(6, 64, client), recipe)
        seen.append(resident())
    print(f"memory after client 1, 10, ..., {CLIENTS}: ", end="")
    print(", ".join(f"{each:.0f}" for each in [seen[0], *seen[9::10]]), "MB")
    print(f"grown since client 10: {max(seen[9:]) - seen[9]:.1f} MB")


if __name__ == "__main__":
    main()
