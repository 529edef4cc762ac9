"""What follows from shapes alone is worked out once for each network, or for each task."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

_known: WeakKeyDictionary[object, dict[Hashable, Any]] = WeakKeyDictionary()


def once(owner: object, key: Hashable, work: Callable[[], T]) -> T:
    """Return what `work` returns, which is called for each `owner` and `key` once.

    Parameters
    ----------
    owner : object
        A network or a task.  Nothing is kept of one that is gone, so the result must not
        refer to it.
    key : hashable
    work : callable
    """
    known = _known.setdefault(owner, {})
    if key not in known:
        known[key] = work()
    found: T = known[key]
    return found
