"""The forms in which samples are divided among clients.

Every draw comes from a stream with a name of its own, a client's from the client's, so that
it is the same however many clients there are.
"""

import numpy as np
from numpy.typing import NDArray

from testbed.streams import Streams

IntArray = NDArray[np.int64]
Parts = tuple[IntArray, ...]


def by_client(available: IntArray, clients: int, alpha: float, streams: Streams) -> IntArray:
    """Give client i a class distribution p_i ~ Dir(alpha, ..., alpha) of its own.

    The samples of class k are divided in proportion to p_1k, p_2k, ... (FedFisher).

    Parameters
    ----------
    available : int64 array, shape (classes,)
        Samples of each class.
    clients : int
    alpha : float
    streams : Streams

    Returns
    -------
    int64 array, shape (clients, classes)
        Samples of each client.
    """
    concentration = np.full(len(available), alpha)
    weights = [
        streams.rng("partition", "dirichlet", client).dirichlet(concentration)
        for client in range(clients)
    ]
    return _apportion(np.stack(weights), available)


def by_class(available: IntArray, clients: int, alpha: float, streams: Streams) -> IntArray:
    """Divide each class k by shares q_k ~ Dir(alpha, ..., alpha) over the clients.

    A client draws the logarithms of its Gamma(alpha) variates from its own stream; their
    ratios have that law (Hsu et al. 2019 and most later work draw q_k at once).  Arguments
    and result as in `by_client`.
    """
    classes = len(available)
    logs = []
    for client in range(clients):
        rng = streams.rng("partition", "dirichlet-classes", client)
        # Gamma(alpha) = Gamma(alpha + 1) U^(1 / alpha), which is 0 in floats for a tiny alpha.
        uniform = 1 - rng.random(classes)
        logs.append(np.log(rng.standard_gamma(alpha + 1, classes)) + np.log(uniform) / alpha)
    table = np.stack(logs)
    return _apportion(np.exp(table - table.max(axis=0)), available)


def of_table(table: IntArray, labels: IntArray, streams: Streams) -> Parts:
    """Hand out samples so that client i gets ``table[i, k]`` of class k, in shuffled order."""
    owned: list[list[IntArray]] = [[] for _ in table]
    for label in range(table.shape[1]):
        shuffled = _shuffled(labels, label, streams)
        for client, part in enumerate(np.split(shuffled, table[:-1, label].cumsum())):
            owned[client].append(part)
    return tuple(np.concatenate(parts) for parts in owned)


def in_shards(labels: IntArray, clients: int, shards: int, streams: Streams) -> Parts:
    """Sort by class, cut into equal shards and give each client some (McMahan et al. 2017)."""
    by_label = [_shuffled(labels, label, streams) for label in range(int(labels.max()) + 1)]
    pieces = np.array_split(np.concatenate(by_label), clients * shards)
    order = streams.rng("partition", "shards").permutation(len(pieces))
    return tuple(
        np.concatenate([pieces[piece] for piece in own]) for own in np.split(order, clients)
    )


def of_writers(writers: IntArray, clients: int, streams: Streams) -> Parts:
    """Group writers into clients; the numbers of writers differ by one at most."""
    names, of = np.unique(writers, return_inverse=True)
    groups = dealt(streams.rng("partition", "writers").permutation(len(names)), clients)
    owner = np.empty(len(names), np.int64)
    for client, group in enumerate(groups):
        owner[group] = client
    owners = owner[of]
    borders = np.bincount(owners, minlength=clients).cumsum()
    return tuple(np.split(np.argsort(owners, kind="stable"), borders[:-1]))


def dealt(order: IntArray, clients: int) -> Parts:
    """Divide shuffled items evenly so that a further client only takes from the others.

    Of n items, client i of N holds n // N, and one more if i < n mod N.  Client N + 1 is
    given what that leaves over when the others shrink to their new sizes: it holds its own
    even share, and nobody else is given anything.
    """
    stacks: list[list[int]] = [order.tolist()]
    sizes = np.array([len(order)])
    for count in range(2, clients + 1):
        even, over = divmod(len(order), count)
        kept = even + (np.arange(count - 1) < over)
        taken: list[int] = []
        for giver in np.flatnonzero(sizes > kept):
            taken += stacks[giver][kept[giver] :]
            del stacks[giver][kept[giver] :]
        stacks.append(taken)
        sizes = np.append(kept, even)
    return tuple(np.array(stack, np.int64) for stack in stacks)


def _shuffled(labels: IntArray, label: int, streams: Streams) -> IntArray:
    """Return the samples of a class in an order that depends on the seed and the class."""
    rng = streams.rng("partition", "shuffle", label)
    return rng.permutation(np.flatnonzero(labels == label))


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
