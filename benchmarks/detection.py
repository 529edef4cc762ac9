"""A vehicle's training of a detector: against a bare loop, the stock trainer, and in memory.

The bare loop is the one anyone would write: it loads the weights, does the same passes,
clipping and steps on batches that lie ready, and copies the state out; it is compared in
seconds of the processor.  The stock trainer is that of ultralytics, set to the same recipe:
with what else it does by default (plots, validation, loader processes), without plots, and
without all that it lets one switch off; it is compared by the clock, for it also waits.
Those compared take turns, and the best of each counts.  Pictures are drawn here.
Usage: python benchmarks/detection.py
"""

import math
import os
import resource
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from copy import deepcopy
from functools import partial
from io import StringIO
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
Settings = dict[str, object]

NO_PLOTS: Settings = {"plots": False}
STOCK = {
    "stock trainer": {},
    "stock trainer, no plots": NO_PLOTS,
    "stock trainer, nothing else": {**NO_PLOTS, "val": False, "save": False, "workers": 0},
}


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


def bare(model: nn.Module, start: State, pictures: Pictures, recipe: DetectionRecipe) -> State:
    """Train in a plain loop; return the state."""
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
    for _ in range(recipe.epochs):
        for x, y in batches:
            optimiser.zero_grad()
            loss(model, x, y).backward()
            nn.utils.clip_grad_norm_(weights, CLIP)
            optimiser.step()
    return {name: value.clone() for name, value in model.state_dict().items()}


def ours(model: nn.Module, start: State, pictures: Pictures, recipe: DetectionRecipe) -> State:
    """Train as a client does."""
    everything = np.arange(len(pictures.targets))
    return train(model, start, pictures, everything, recipe, np.random.default_rng(0))


def stock(folder: Path, recipe: DetectionRecipe, side: int, settings: Settings) -> None:
    """Train by the trainer of ultralytics on the pictures in a folder."""
    from ultralytics.models.yolo.detect import DetectionTrainer

    off = "mosaic close_mosaic mixup cutmix copy_paste hsv_h hsv_s hsv_v translate scale fliplr"
    overrides = {
        **dict.fromkeys(off.split(), 0),
        **{"model": f"{MODEL}.yaml", "data": str(folder / "data.yaml"), "imgsz": side},
        **{"epochs": recipe.epochs, "batch": recipe.batch, "nbs": recipe.batch},
        **{"optimizer": "SGD", "lr0": LR, "lrf": 1.0, "momentum": MOMENTUM},
        **{"weight_decay": 0, "warmup_epochs": 0, "amp": False, "device": "cpu"},
        **{"project": str(folder), "name": "run", "exist_ok": True, "verbose": False},
        **settings,
    }
    with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        DetectionTrainer(overrides=overrides).train()


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


def compared(clock: Callable[[], float], *works: Callable[[], object]) -> list[float]:
    """Let works take turns, after one for nothing; return the best seconds of each."""
    best = [math.inf] * len(works)
    for turn in range(TURNS + 1):
        for place, work in enumerate(works):
            begin = clock()
            work()
            if turn:
                best[place] = min(best[place], clock() - begin)
    return best


def resident() -> float:
    """Return the memory that this process occupies now, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def main() -> None:
    """Print seconds, ratios and megabytes."""
    torch.set_num_threads(1)
    model = build(MODEL, CLASSES, 0)
    start = {name: value.contiguous() for name, value in deepcopy(model.state_dict()).items()}
    print(f"client                            bare loop      ours   ratio, at most {BARE_GOAL}")
    for count, batch, side, epochs in ((6, 6, 64, 3), (24, 8, 160, 2)):
        work = (model, start, drawn(count, side, 0), DetectionRecipe(epochs, LR, batch, MOMENTUM))
        theirs_s, ours_s = compared(time.process_time, partial(bare, *work), partial(ours, *work))
        what = f"{count} pictures, {side} px, {epochs} epochs"
        print(f"{what:32}  {theirs_s:7.3f} s {ours_s:7.3f} s {ours_s / theirs_s:7.3f}", flush=True)

    recipe, pictures = DetectionRecipe(3, LR, 6, MOMENTUM), drawn(6, 64, 0)
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)  # where it would leave files
        written(Path(name), pictures)
        *theirs, ours_s = compared(
            time.perf_counter,
            *(partial(stock, Path(name), recipe, 64, settings) for settings in STOCK.values()),
            partial(ours, model, start, pictures, recipe),
        )
        os.chdir("/")
    print(f"\nthe first of them {ours_s:22.3f} s   times ours, at least {STOCK_GOAL}")
    for what, theirs_s in zip(STOCK, theirs, strict=True):
        print(f"{what:32} {theirs_s:7.3f} s {theirs_s / ours_s:7.1f}")

    seen = []
    for client in range(CLIENTS):
        recipe = DetectionRecipe(2, LR, 4, MOMENTUM, augment="flip")
        ours(model, start, drawn(6, 64, client), recipe)
        seen.append(resident())
    print(f"\nmemory after client 1, 10, ..., {CLIENTS}: ", end="")
    print(", ".join(f"{each:.0f}" for each in [seen[0], *seen[9::10]]), "MB")
    print(f"grown since client 10: {max(seen[9:]) - seen[9]:.1f} MB")


if __name__ == "__main__":
    main()
