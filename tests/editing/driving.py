"""Driving a method without a simulation."""

from collections.abc import Callable
from typing import Any

from testbed.editing.orders import Order, Work


def drive(work: Work[Any], answer: Callable[[Order], Any]) -> Any:
    """Feed a method's orders with what `answer` says to each, until it returns."""
    known: Any = None
    while True:
        try:
            order = work.send(known)
        except StopIteration as finished:
            return finished.value
        known = answer(order)
