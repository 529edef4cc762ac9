"""Accuracy and loss of a released model."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.learning.blocks import State

_BATCH = 1000


@dataclass(frozen=True)
class Score:
    """Quality on the test set.

    Attributes
    ----------
    accuracy : float
        Share of correct labels.
    loss : float
        Mean cross-entropy in nats.
    """

    accuracy: float
    loss: float


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
