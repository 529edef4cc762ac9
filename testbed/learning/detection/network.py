"""YOLOv8 as a network like any other: the one module that imports ultralytics.

The package ultralytics (AGPL-3.0) comes with the extra ``yolo`` only.  It is imported at the
first `build`, offline, and what its import changes for the whole process is put back.
"""

import math
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import yaml
from PIL import Image
from torch import Tensor, nn
from torch._tensor_str import printoptions

from testbed.errors import ConfigError

Raw = Mapping[str, Tensor | list[Tensor]]
MODELS = ("yolov8n", "yolov8s", "yolov8m", "yolov8l", "yolov8x")

_QUIET = {"YOLO_OFFLINE": "1", "YOLO_AUTOINSTALL": "0", "YOLO_VERBOSE": "0"}


def build(name: str, classes: int, seed: int) -> nn.Module:
    """Build a detector with its initial weights.

    Parameters
    ----------
    name : str
        One of `MODELS`.
    classes : int
    seed : int
        Determines the weights; the caller's random state is left alone.

    Returns
    -------
    Module
        With the channels last in memory, which is faster on the CPU as on CUDA.

    Raises
    ------
    ConfigError
        If ultralytics is not installed.
    """
    try:
        library = _library()
    except ImportError as error:
        raise ConfigError(
            f"learning.model: {name!r} needs the extra yolo; install it with: "
            "pip install 'fsosa-testbed[yolo]'"
        ) from error
    # Read here: by its name, the library would prefer a file in the working folder.
    layout = yaml.safe_load(library.layout.read_text(encoding="utf-8"))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model: nn.Module = library.DetectionModel(
            {**layout, "scale": name[-1], "nc": classes}, verbose=False
        )
    model.args = library.get_cfg()
    return model.to(memory_format=torch.channels_last)


def loss(model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
    """Return YOLOv8's loss: box, class and distribution parts, weighed by its defaults.

    Parameters
    ----------
    model : Module
        Made by `build`, in train or eval mode, or a compiled one.
    images : float Tensor, shape (b, 3, H, W)
        In [0, 1].
    targets : float32 Tensor, shape (m, 6)
        Index in the batch, class, cx, cy, w, h as shares of W and H.

    Returns
    -------
    Tensor, shape ()
        b times the batch's loss, which divides by the batch's sum of target scores.  Under
        autocast the forward pass alone is in lower precision.
    """
    predicted = model(images)
    # In eval mode the decoded boxes come first.
    raw = predicted[1] if isinstance(predicted, tuple) else predicted
    return loss_of(model, raw, targets)


def loss_of(model: nn.Module, raw: Raw, targets: Tensor) -> Tensor:
    """Return the loss of what the network has said, see `loss`.

    Parameters
    ----------
    model : Module
    raw : mapping
        The network's answer in train mode, the second part of that in eval mode.
    targets : float32 Tensor, shape (m, 6)
    """
    exact = {
        name: [each.float() for each in value] if isinstance(value, list) else value.float()
        for name, value in raw.items()
    }
    labels = {"batch_idx": targets[:, 0], "cls": targets[:, 1], "bboxes": targets[:, 2:]}
    with torch.autocast(targets.device.type, enabled=False):
        total: Tensor = _criterion(model, targets.device)(exact, labels)[0].sum()
    return total


@torch.no_grad()
def boxes_of(
    decoded: Tensor, confidence: float = 0.001, iou: float = 0.7, most: int = 300
) -> list[Tensor]:
    """Return the objects that a network in eval mode has found.

    Parameters
    ----------
    decoded : Tensor, shape (b, 4 + classes, n)
        The first part of the network's answer.
    confidence : float
        Least score of a box; a box may count for several classes.
    iou : float
        Of two boxes of a class that overlap more than this, the better one is kept.
    most : int
        Boxes a picture, the best ones.

    Returns
    -------
    list of Tensor, shape (k, 6)
        Per picture: x1, y1, x2, y2 in pixels of the input, score, class; best first.
    """
    # By default it gives up on the pictures left when its time is over.
    found: list[Tensor] = _library().non_max_suppression(
        decoded, confidence, iou, multi_label=True, max_det=most, max_time_img=math.inf
    )
    return found


def _criterion(model: nn.Module, device: torch.device) -> Any:
    """Return the model's loss, which holds tensors, on `device`."""
    criterion: Any = getattr(model, "criterion", None)
    if criterion is None or criterion.device != device:
        criterion = model.criterion = _library().v8DetectionLoss(model)
    return criterion


@cache
def _library() -> SimpleNamespace:
    """Import what is used of ultralytics."""
    with _contained():
        import_module("torchvision")  # overlapping boxes are found with it where it is loaded
        import ultralytics
        from ultralytics.cfg import get_cfg
        from ultralytics.nn.tasks import DetectionModel
        from ultralytics.utils.loss import v8DetectionLoss
        from ultralytics.utils.nms import non_max_suppression
    return SimpleNamespace(
        DetectionModel=DetectionModel,
        get_cfg=get_cfg,
        layout=Path(ultralytics.__file__).parent / "cfg" / "models" / "v8" / "yolov8.yaml",
        non_max_suppression=non_max_suppression,
        v8DetectionLoss=v8DetectionLoss,
    )


@contextmanager
def _contained() -> Iterator[None]:
    """Put back what the import changes for the whole process; leave the home folder alone.

    It sets environment variables, number formats of torch and NumPy, and warning filters,
    replaces `torch.save` and `PIL.Image.open`, and writes a settings file.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    environment, save, opener = dict(os.environ), torch.save, Image.open
    with (
        np.printoptions(),
        printoptions(),
        warnings.catch_warnings(),
        tempfile.TemporaryDirectory() as folder,
    ):
        warnings.simplefilter("ignore")
        os.environ.setdefault("YOLO_CONFIG_DIR", folder)
        try:
            yield
        finally:
            for name in set(os.environ) - set(environment):
                del os.environ[name]
            os.environ.update(environment)
            torch.save, Image.open = save, opener
