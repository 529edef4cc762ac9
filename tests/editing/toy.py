"""A federation whose models are one number, so that results can be worked out by hand.

The initial model is 0.  A client's data is its partition number, and an epoch of training
takes the model half of the way there; with curvature it gets there at once.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import torch
from driving import drive

from testbed.editing.clients import Client
from testbed.editing.orders import Order, Tune, Work
from testbed.learning.blocks import State

A, B, C = Client("a", 8), Client("b", 16), Client("c", 24)


def model(number: float) -> State:
    return {"w": torch.tensor([number], dtype=torch.float64)}


def number(state: State) -> float:
    return float(state["w"])


@dataclass
class Toy:
    """Answers orders; clients in `useless` never deliver after round `until`."""

    useless: Collection[Client] = ()
    until: int = 0
    orders: list[Tune] = field(default_factory=list)

    def drive(self, work: Work[Any]) -> Any:
        self.orders.clear()
        return drive(work, self.answer)

    def answer(self, order: Order) -> dict[Client, State]:
        assert isinstance(order, Tune)
        assert order.epochs is not None
        self.orders.append(order)
        start = 0.0 if order.start is None else number(order.start)
        left = 0.0 if order.optimiser == "curvature" else 0.5**order.epochs
        return {
            client: model(client.partition + left * (start - client.partition))
            for client in order.clients
            if client not in self.useless or order.round <= self.until
        }

    def rounds(self) -> list[int]:
        return [order.round for order in self.orders]
