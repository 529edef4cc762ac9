"""A tiny federation in which everything really trains, in a millisecond each."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from driving import drive
from torch import nn

from testbed.data import Dataset
from testbed.editing.orders import Fuse, Order, Train, Tune, Work
from testbed.fusion.fsosa import Projection, fuse
from testbed.learning.blocks import blocks
from testbed.learning.classification import Classification
from testbed.learning.client import inform
from testbed.learning.fisher import Kind
from testbed.learning.task import Session, Task
from testbed.learning.training import Recipe
from testbed.streams import Streams

POOL = 12


@dataclass
class Federation:
    """Answers work orders at once and writes them down; nothing is ever remembered."""

    task: Task
    orders: list[Order] = field(default_factory=list)

    def drive(self, work: Work[Any]) -> Any:
        return drive(work, self.answer)

    def answer(self, order: Order) -> Any:
        self.orders.append(order)
        task = self.task
        if isinstance(order, Train):
            return {
                client: inform(task, client.partition, task.train(client.partition, task.initial))
                for client in order.clients
            }
        if isinstance(order, Tune):
            return {
                client: task.train(
                    client.partition,
                    task.initial if order.start is None else order.start,
                    Session(order.epochs, order.round, order.optimiser),
                )
                for client in order.clients
            }
        assert isinstance(order, Fuse)
        return fuse(order.contributions, blocks(task.model), Projection())

    def kinds(self) -> list[str]:
        return [type(order).__name__ for order in self.orders]


@pytest.fixture(scope="session")
def federation() -> Callable[..., Federation]:
    def make(kind: Kind = "diagonal", seed: int = 0) -> Federation:
        rng = np.random.default_rng(1)
        pictures = rng.random((POOL * 5, 1, 4, 4)).astype(np.float32)
        labels = rng.integers(3, size=len(pictures))
        model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
        generator = torch.Generator().manual_seed(2)
        initial = {
            name: torch.randn(value.shape, generator=generator) * 0.5
            for name, value in model.state_dict().items()
        }
        return Federation(
            Classification(
                dataset=Dataset(
                    "tiny", pictures, labels, pictures, labels, ("a", "b", "c"), fingerprint=""
                ),
                parts=np.split(np.arange(len(pictures)), POOL),
                model=model,
                initial=initial,
                recipe=Recipe(epochs=2, lr=0.1, batch=2, momentum=0.9),
                kind=kind,
                estimator="exact",
                streams=Streams(seed),
            )
        )

    return make
