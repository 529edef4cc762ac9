"""Predictions of a detector, and how good they are.

Predicted are boxes with a score of 0.001 or more, of which non-maximum suppression at IoU 0.7
leaves the 300 best of a picture, as Ultralytics validates; COCO counts the best 100 of a class.
Boxes go back to the pixels of the frames and are cut off at their edges.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bdd100k_tools import CLASSES, EvaluationError, Frame
from bdd100k_tools.contact import choose
from bdd100k_tools.evaluation import CONVENTIONS, Evaluation, evaluate, evaluate_by
from bdd100k_tools.partition import ATTRIBUTES
from bdd100k_tools.predictions import Detections
from testbed.errors import ConfigError
from testbed.learning.blocks import State
from testbed.learning.detection import network
from testbed.learning.detection.augment import plain
from testbed.learning.detection.pictures import Pictures
from testbed.learning.devices import placed
from testbed.learning.evaluation import Detail, Score

BATCH = 32
SHOWN, LEAST_SHOWN = 6, 0.2
"""How many pictures are drawn before and after an edit, and the least score of a box there."""

_CORNERS = ("x1", "y1", "x2", "y2")


def predict(
    model: nn.Module, state: State, pictures: Pictures, device: torch.device, batch: int = BATCH
) -> Detections:
    """Return what `state` finds on pictures.

    Parameters
    ----------
    model : Module
        Of the architecture; afterwards it has the weights of `state`, on the CPU, in the mode
        it was in.
    state : mapping of str to Tensor
    pictures : Pictures
    device : device
        Where the network runs, in float32.
    batch : int
        Pictures at a time; changes results by rounding only.

    Returns
    -------
    Detections
        In order of picture, the best first; `Detections.image` counts `pictures`.
    """
    return _scan(model, state, pictures, device, np.arange(len(pictures.frames)), batch)[0]


def score(model: nn.Module, state: State, pictures: Pictures, device: torch.device) -> Score:
    """Score `state` on pictures with one forward pass.

    The details are those of `details`.  The loss is the mean over the pictures, each by
    itself: it does not depend on which pictures share a batch.

    Raises
    ------
    ConfigError
        See `details`.
    """
    everything = np.arange(len(pictures.frames))
    found, losses = _scan(model, state, pictures, device, everything, measured=True)
    made = details(pictures.frames, found)
    return Score(
        loss=float(np.mean(losses)), map50_95=made[0].ap, map50=made[0].ap50, details=made
    )


def details(frames: Sequence[Frame], found: Detections) -> tuple[Detail, ...]:
    """Evaluate detections by every convention.

    Returns
    -------
    tuple of Detail
        By each convention of all pictures, over all classes and then class by class, ``coco``
        first; then by ``coco`` of the pictures of every attribute value.  Nothing found is 0.

    Raises
    ------
    ConfigError
        If faster-coco-eval is not installed.
    """
    made: list[Detail] = []
    try:
        for convention in CONVENTIONS:
            everything = evaluate(frames, found, convention)
            made.append(_overall(everything, "all"))
            made += [
                Detail(convention, "all", each.category, len(frames), each.n, each.ap, each.ap50)
                for each in everything.classes
            ]
        for attribute in ATTRIBUTES:
            parts = evaluate_by(frames, found, attribute)
            made += [_overall(part, f"{attribute}={value}") for value, part in parts.items()]
    except EvaluationError as error:
        raise ConfigError(
            f"a detector cannot be scored: {error}; "
            "install what is needed with: pip install 'fsosa-testbed[yolo]'"
        ) from error
    return tuple(made)


def _overall(of: Evaluation, group: str) -> Detail:
    return Detail(
        of.convention, group, "all", of.pictures, of.boxes, ap=of.map50_95, ap50=of.map50
    )


def check_evaluator() -> None:
    """Find out before any training whether detectors can be scored.

    Raises
    ------
    ConfigError
        If faster-coco-eval is not installed.
    """
    details([Frame("", {}, ())], _detections([]))


def show(
    model: nn.Module, state: State, pictures: Pictures, device: torch.device
) -> list[Mapping[str, Any]]:
    """Return what `state` finds on a few pictures, always the same, as Scalabel frames."""
    names = [frame.name for frame in pictures.frames]
    chosen = np.array(choose(names, SHOWN, seed=0))
    found, _ = _scan(model, state, pictures, device, chosen)
    strong = found.take(found.score >= LEAST_SHOWN)
    return [
        {"name": names[place], "labels": _labels(strong.take(strong.image == index))}
        for index, place in enumerate(chosen)
    ]


def _labels(found: Detections) -> list[Mapping[str, Any]]:
    """Return detections as Scalabel labels; a hundredth of a pixel is enough to draw."""
    return [
        {
            "category": CLASSES[category],
            "score": round(float(sure), 4),
            "box2d": dict(zip(_CORNERS, np.round(box, 2).tolist(), strict=True)),
        }
        for category, sure, box in zip(found.category, found.score, found.boxes, strict=True)
    ]


@torch.no_grad()
def _scan(
    model: nn.Module,
    state: State,
    pictures: Pictures,
    device: torch.device,
    chosen: NDArray[np.int64],
    batch: int = BATCH,
    measured: bool = False,
) -> tuple[Detections, list[float]]:
    """Return what is found on the chosen pictures and, where `measured`, the loss on each."""
    tables: list[NDArray[np.float64]] = []
    losses: list[float] = []
    model.load_state_dict(dict(state))
    with _evaluating(model), placed(model, device):
        for first in range(0, len(chosen), batch):
            places = chosen[first : first + batch]
            pixels, targets = plain(pictures, places)
            images = pixels.to(device).float() / 255  # bytes are what is moved
            decoded, raw = model(images)
            found = network.boxes_of(decoded)
            tables.append(_rows(pictures, places, found, first))
            if measured:
                losses += _losses(model, raw, targets.to(device), len(places))
    return _detections(tables), losses


def _losses(model: nn.Module, raw: network.Raw, targets: Tensor, pictures: int) -> list[float]:
    """Return the loss on every picture of a batch that the network has answered."""
    made = []
    for index in range(pictures):
        one = slice(index, index + 1)
        single = {
            name: [level[one] for level in value] if isinstance(value, list) else value[one]
            for name, value in raw.items()
        }
        own = targets[targets[:, 0] == index]
        own[:, 0] = 0
        made.append(network.loss_of(model, single, own))
    return torch.stack(made).tolist()


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Have `model` in eval mode within the block."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _rows(
    pictures: Pictures, places: NDArray[np.int64], found: Sequence[Tensor], first: int
) -> NDArray[np.float64]:
    """Return rows of picture, counted from `first`, frame corners, score and class.

    A box in the padding is left without area: a false alarm like any other.  What a network
    that overflows says is no box.
    """
    table = torch.cat(list(found)).cpu().double().numpy()
    owner = np.repeat(np.arange(len(places)), [len(rows) for rows in found])
    pad, scale = pictures.pad[places][owner], pictures.scale[places][owner]
    frames = [pictures.frames[place] for place in places]
    sizes = np.array([(frame.width, frame.height) for frame in frames])
    corners = (table[:, :4] - np.tile(pad, 2)) / scale[:, None]
    corners = np.clip(corners, 0, np.tile(sizes[owner], 2))
    rows: NDArray[np.float64] = np.column_stack([first + owner, corners, table[:, 4:]])
    return np.compress(np.isfinite(rows).all(axis=1), rows, axis=0)


def _detections(tables: Sequence[NDArray[np.float64]]) -> Detections:
    rows = np.concatenate([np.empty((0, 7)), *tables])
    return Detections(
        rows[:, 0].astype(np.int64), rows[:, 6].astype(np.int64), rows[:, 1:5], rows[:, 5]
    )
