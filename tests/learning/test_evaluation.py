"""Accuracy and loss, by hand, and in chunks."""

import math

import pytest
import torch
from torch import nn

from testbed.learning import evaluation
from testbed.learning.evaluation import evaluate

IDENTITY = {"1.weight": torch.eye(2)}


def model() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False))


def test_by_hand() -> None:
    # Logits are the pixels: log-odds 0, log 3 and -log 3; labels 0, 0, 0.
    pixels = torch.tensor([[0.0, 0.0], [math.log(3), 0.0], [0.0, math.log(3)]])
    score = evaluate(model(), IDENTITY, pixels.view(3, 1, 1, 2), torch.zeros(3, dtype=torch.int64))
    assert score.accuracy == pytest.approx(2 / 3)
    assert score.loss == pytest.approx((math.log(2) + math.log(4 / 3) + math.log(4)) / 3)


def test_chunks_do_not_change_the_score(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    pictures, labels = torch.randn(23, 1, 1, 2), torch.randint(2, (23,))
    whole = evaluate(model(), IDENTITY, pictures, labels)
    monkeypatch.setattr(evaluation, "_BATCH", 5)
    chunked = evaluate(model(), IDENTITY, pictures, labels)
    assert chunked.accuracy == whole.accuracy
    assert chunked.loss == pytest.approx(whole.loss, rel=1e-6)


def test_evaluation_leaves_dropout_out() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False), nn.Dropout(0.9)).train()
    pictures = torch.tensor([[2.0, 0.0], [0.0, 2.0]]).repeat(50, 1).view(100, 1, 1, 2)
    labels = torch.tensor([0, 1]).repeat(50)
    assert evaluate(net, IDENTITY, pictures, labels).accuracy == 1.0
