"""Who holds which samples: the forms of a partition, their checks, and what is held out."""

import numpy as np

from testbed.config.schema import DataConfig
from testbed.data.divisions import (
    IntArray,
    by_class,
    by_client,
    dealt,
    in_shards,
    of_table,
    of_writers,
)
from testbed.data.faults import told
from testbed.errors import DataError
from testbed.streams import Streams

__all__ = ["IntArray", "counts", "hold_out", "partition"]


def partition(
    labels: IntArray,
    clients: int,
    config: DataConfig,
    streams: Streams,
    writers: IntArray | None = None,
) -> tuple[IntArray, ...]:
    """Spread samples over clients, every sample to exactly one.

    Parameters
    ----------
    labels : int64 array, shape (n,)
        Classes 0, 1, ...
    clients : int
    config : DataConfig
        Uses `partition`, `alpha`, `shards` and `minimum`.
    streams : Streams
    writers : int64 array, shape (n,), optional
        Who made each sample, for the partition ``writers``.

    Returns
    -------
    tuple of int64 arrays
        Per client its sample indices, sorted; at least `config.minimum` each.

    Raises
    ------
    DataError
        If there are too few samples, shards or writers, or none are known.
    """
    where = told(config)
    if clients * config.minimum > len(labels):
        raise DataError(
            f"{len(labels)} samples of {where} cannot give {clients} clients data.minimum = "
            f"{config.minimum} each; lower clients.pool or data.minimum"
        )
    if config.partition == "writers":
        parts = of_writers(_known(writers, clients, where), clients, streams)
    elif config.partition == "shards":
        _check_shards(len(labels), clients, config.shards, where)
        parts = in_shards(labels, clients, config.shards, streams)
    elif config.partition == "iid":
        order = streams.rng("partition", "iid").permutation(len(labels))
        parts = dealt(order, clients)
    else:
        divide = by_client if config.partition == "dirichlet" else by_class
        table = divide(np.bincount(labels), clients, config.alpha, streams)
        _raise_to_minimum(table, config.minimum)
        parts = of_table(table, labels, streams)
    _check_sizes(parts, config)
    return tuple(np.sort(part) for part in parts)


def hold_out(
    parts: tuple[IntArray, ...], share: float, streams: Streams
) -> tuple[tuple[IntArray, ...], tuple[IntArray, ...]]:
    """Take from every client a share of its samples, which it never trains on.

    Parameters
    ----------
    parts : tuple of int64 arrays
    share : float
        Rounded down, so that a client of few samples keeps them all.
    streams : Streams

    Returns
    -------
    training, held_out : tuple of int64 arrays
        Per client, sorted; a client's draw does not depend on the other clients.
    """
    training, held_out = [], []
    for client, part in enumerate(parts):
        rng = streams.rng("partition", "holdout", client)
        out = np.sort(rng.permutation(part)[: _share_of(len(part), share)])
        training.append(np.setdiff1d(part, out, assume_unique=True))
        held_out.append(out)
    return tuple(training), tuple(held_out)


def counts(labels: IntArray, parts: tuple[IntArray, ...], classes: int) -> IntArray:
    """Count each client's samples of each class.

    Returns
    -------
    int64 array, shape (clients, classes)
    """
    return np.stack([np.bincount(labels[part], minlength=classes) for part in parts])


def _share_of(samples: int, share: float) -> int:
    """Round a share down, forgiving the last bits of 0.29 * 100; one sample always stays."""
    return min(int(share * samples + 1e-9), samples - 1)


def _known(writers: IntArray | None, clients: int, where: str) -> IntArray:
    if writers is None:
        raise DataError(
            "data.partition: 'writers' needs a data set that says who wrote each picture, "
            f"which {where} does not; use femnist, or another partition"
        )
    count = len(np.unique(writers))
    if count < clients:
        raise DataError(
            f"{count} writers of {where} cannot be grouped into {clients} clients; lower "
            "clients.pool or raise data.users"
        )
    return writers


def _check_shards(samples: int, clients: int, shards: int, where: str) -> None:
    if clients * shards > samples:
        raise DataError(
            f"{samples} samples of {where} cannot be cut into {clients} x {shards} shards; lower "
            "clients.pool or data.shards"
        )


def _check_sizes(parts: tuple[IntArray, ...], config: DataConfig) -> None:
    client, least = min(enumerate(map(len, parts)), key=lambda each: each[1])
    if least < config.minimum:
        raise DataError(
            f"data.partition: {config.partition!r} gives client {client} only {least} samples "
            f"of {told(config)}, fewer than data.minimum = {config.minimum}; lower "
            "clients.pool or data.minimum"
        )


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
