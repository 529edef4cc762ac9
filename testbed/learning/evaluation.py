"""Quality of a released model."""

from dataclasses import dataclass
from math import nan

import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.learning.blocks import State

_BATCH = 1000


@dataclass(frozen=True)
class Detail:
    """Average precision of a detector on a group of test pictures.

    Attributes
    ----------
    convention : {"coco", "bdd100k", "ultralytics"}
    group : str
        ``"all"``, or an attribute and its value as in ``"timeofday=night"``.
    category : str
        ``"all"``, or one of the classes.
    pictures, n : int
        Pictures of the group, and boxes there that are not crowd.
    ap, ap50 : float
        AP over IoU 0.50 to 0.95, and at 0.5; over all classes their means.  NaN without a box.
    """

    convention: str
    group: str
    category: str
    pictures: int
    n: int
    ap: float
    ap50: float


@dataclass(frozen=True)
class Score:
    """Quality on the test set.

    Attributes
    ----------
    loss : float
        Mean cross-entropy in nats, or mean detection loss of a picture.
    accuracy : float
        Share of correct labels; NaN for a detector.
    map50_95, map50 : float
        Mean average precision, convention ``coco``; NaN for a classifier.
    details : tuple of Detail
        Of a detector.
    """

    loss: float
    accuracy: float = nan
    map50_95: float = nan
    map50: float = nan
    details: tuple[Detail, ...] = ()


@torch.no_grad()
def evaluate(model: nn.Module, state: State, pictures: Tensor, labels: Tensor) -> Score:
    """Score `state` on pictures (n, c, h, w) with labels (n,), in eval mode."""
    model.load_state_dict(dict(state))
    model.eval()
    correct, loss = 0, 0.0
    for x, y in zip(torch.split(pictures, _BATCH), torch.split(labels, _BATCH), strict=True):
        logits = model(x)
        correct += int((logits.argmax(dim=1) == y).sum())
        loss += float(functional.cross_entropy(logits, y, reduction="sum"))
    return Score(accuracy=correct / len(labels), loss=loss / len(labels))
