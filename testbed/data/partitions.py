"""Who holds which samples."""

import numpy as np
from numpy.typing import NDArray

from testbed.config.schema import DataConfig
from testbed.errors import DataError
from testbed.streams import Streams

IntArray = NDArray[np.int64]


def partition(
    labels: IntArray, clients: int, config: DataConfig, streams: Streams
) -> tuple[IntArray, ...]:
    """Spread samples over clients, every sample to exactly one.

    Parameters
    ----------
    labels : int64 array, shape (n,)
        Classes 0, 1, ...
    clients : int
    config : DataConfig
        Uses `partition`, `alpha` and `minimum`.
    streams : Streams

    Returns
    -------
    tuple of int64 arrays
        Per client its sample indices, sorted; at least `config.minimum` each.

    Raises
    ------
    DataError
        If there are too few samples for the minimum.
    """
    if clients * config.minimum > len(labels):
        raise DataError(
            f"{len(labels)} samples cannot give {clients} clients data.minimum = "
            f"{config.minimum} each; lower clients.pool or data.minimum"
        )
    if config.partition == "iid":
        order = streams.rng("partition", "iid").permutation(len(labels))
        return tuple(np.sort(part) for part in np.array_split(order, clients))
    return _dirichlet(labels, clients, config, streams)


def counts(labels: IntArray, parts: tuple[IntArray, ...], classes: int) -> IntArray:
    """Count each client's samples of each class.

    Returns
    -------
    int64 array, shape (clients, classes)
    """
    return np.stack([np.bincount(labels[part], minlength=classes) for part in parts])


def _dirichlet(
    labels: IntArray, clients: int, config: DataConfig, streams: Streams
) -> tuple[IntArray, ...]:
    """Give client i a class distribution p_i ~ Dir(alpha 1) of its own.

    The samples of class k are divided in proportion to p_1k, p_2k, ...  A client's
    distribution comes from its own stream: it does not depend on how many others there
    are.
    """
    available = np.bincount(labels)
    weights = np.stack(
        [
            streams.rng("partition", "dirichlet", client).dirichlet(
                np.full(len(available), config.alpha)
            )
            for client in range(clients)
        ]
    )
    table = _apportion(weights, available)
    _raise_to_minimum(table, config.minimum)
    owned: list[list[IntArray]] = [[] for _ in range(clients)]
    for label in range(len(available)):
        rng = streams.rng("partition", "shuffle", label)
        order = rng.permutation(np.flatnonzero(labels == label))
        for client, part in enumerate(np.split(order, table[:-1, label].cumsum())):
            owned[client].append(part)
    return tuple(np.sort(np.concatenate(parts)) for parts in owned)


def _apportion(weights: NDArray[np.float64], available: IntArray) -> IntArray:
    """Divide whole samples in proportion to each column of weights.

    Borders are rounded rather than shares, so that every column adds up.
    """
    totals = weights.cumsum(axis=0)
    # A tiny alpha may leave a class to nobody: then it is divided evenly.
    nobody = totals[-1] == 0
    totals[:, nobody] = np.arange(1, len(weights) + 1)[:, None]
    borders = np.rint(totals / totals[-1] * available).astype(np.int64)
    shares: IntArray = np.diff(borders, axis=0, prepend=0)
    return shares


def _raise_to_minimum(table: IntArray, minimum: int) -> None:
    """Move samples one by one from the largest client to the smallest, in place.

    The largest gives from its most frequent class; ties go to the lowest number.
    """
    sizes = table.sum(axis=1)
    while sizes.min() < minimum:
        giver, taker = sizes.argmax(), sizes.argmin()
        label = table[giver].argmax()
        table[giver, label] -= 1
        table[taker, label] += 1
        sizes[giver] -= 1
        sizes[taker] += 1
