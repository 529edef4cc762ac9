"""Which pictures of a data set are used: a test part, some writers, some of each class.

All is drawn with a seed of its own, never the run's: runs of different seeds learn from
and are tested on the same pictures.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from testbed.config.schema import DataConfig
from testbed.data.dataset import Dataset, fingerprint
from testbed.data.faults import refuse, told
from testbed.data.raw import IntArray, Part, Raw
from testbed.errors import DataError
from testbed.streams import Streams

_STREAMS = Streams(0)


def draw(raw: Raw, config: DataConfig) -> Dataset:
    """Draw what `config` asks for, then unpack and scale just that.

    The most memory is taken by the 32-bit numbers that are returned, four bytes per
    pixel and colour, beside the bytes of formats that are held whole.

    Raises
    ------
    DataError
        If more is asked for than there is, or a picture is broken.
    """
    parts, chosen = _drawn(raw, config)
    pictures = [
        _scaled(part.pictures(samples), raw.white)
        for part, samples in zip(parts, chosen, strict=True)
    ]
    return _dataset(raw, config, parts, chosen, pictures)


def outline(raw: Raw, config: DataConfig) -> Dataset:
    """Draw what `config` asks for and unpack no picture: all are black and take no memory.

    The fingerprint is one of the labels.

    Raises
    ------
    DataError
        If more is asked for than there is.
    """
    parts, chosen = _drawn(raw, config)
    none = np.zeros(0, np.int64)
    pictures = [
        np.broadcast_to(np.float32(0), (len(samples), *part.pictures(none).shape[1:]))
        for part, samples in zip(parts, chosen, strict=True)
    ]
    return _dataset(raw, config, parts, chosen, pictures, unpacked=False)


def _drawn(raw: Raw, config: DataConfig) -> tuple[tuple[Part, Part], list[IntArray]]:
    """Return what there is to learn from and to test on, and the samples wanted of either."""
    train, test = _parts(raw, config)
    chosen = [np.arange(len(part.labels)) for part in (train, test)]
    if config.users < 1:
        chosen = _of_users(raw, train, test, config)
    chosen = [
        _limited(part, samples, limit, key, raw.classes, told(config))
        for part, samples, limit, key in zip(
            (train, test),
            chosen,
            (config.limit, config.test_limit),
            ("limit", "test_limit"),
            strict=True,
        )
    ]
    return (train, test), chosen


def _dataset(
    raw: Raw,
    config: DataConfig,
    parts: tuple[Part, Part],
    chosen: list[IntArray],
    pictures: list[NDArray[np.float32]],
    unpacked: bool = True,
) -> Dataset:
    """Put the labels of what was drawn, and who wrote it, beside its pictures."""
    y_train, y_test = (part.labels[samples] for part, samples in zip(parts, chosen, strict=True))
    x_train, x_test = pictures
    arrays = (x_train, y_train, x_test, y_test)
    marked = arrays if unpacked else (y_train, y_test)
    everybody = parts[0].writers
    if everybody is None:
        return Dataset(config.name, *arrays, raw.classes, fingerprint(*marked))
    present, writers = np.unique(everybody[chosen[0]], return_inverse=True)
    writers = writers.astype(np.int64)
    names = tuple(raw.writers[number] for number in present)
    mark = fingerprint(*marked, writers)
    return Dataset(config.name, *arrays, raw.classes, mark, writers, names)


def _parts(raw: Raw, config: DataConfig) -> tuple[Part, Part]:
    if raw.test is not None:
        return raw.train, raw.test
    labels = raw.train.labels
    sizes = np.bincount(labels, minlength=len(raw.classes))
    refuse(
        [
            f"{told(config)}: class {raw.classes[label]!r} has 1 picture, it needs 2: one to "
            "learn from and one for the test part that is drawn; add a picture, take the class "
            "out, or give the data a test part of their own"
            for label in np.flatnonzero(sizes == 1)
        ]
    )
    marked = _stratified(labels, config.test_share, config.name)
    return _sub(raw.train, np.flatnonzero(~marked)), _sub(raw.train, np.flatnonzero(marked))


def _sub(part: Part, samples: IntArray) -> Part:
    writers = None if part.writers is None else part.writers[samples]
    return replace(
        part,
        pictures=lambda chosen: part.pictures(samples[chosen]),
        labels=part.labels[samples],
        writers=writers,
    )


def _stratified(labels: IntArray, share: float, name: str) -> NDArray[np.bool_]:
    """Mark `share` of each class, at least one sample on either side."""
    rng = _STREAMS.rng("data", name, "split")
    marked = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        size = min(max(round(share * len(members)), 1), len(members) - 1)
        marked[rng.permutation(members)[:size]] = True
    return marked


def _of_users(raw: Raw, train: Part, test: Part, config: DataConfig) -> list[IntArray]:
    """Return the samples of a share of the writers, who are tested on their own pictures.

    The share is drawn among those who have pictures to learn from, and among those who
    are only tested on, so that it holds for either part.
    """
    if train.writers is None:
        raise DataError(
            f"data.users is {config.users:g} but {told(config)} does not say who wrote what; "
            "leave it out"
        )
    learning = np.unique(train.writers)
    groups = [learning]
    if test.writers is not None:
        groups.append(np.setdiff1d(test.writers, learning))
    drawn = np.zeros(len(raw.writers), bool)
    for group, name in zip(groups, ("learning", "tested"), strict=False):
        order = _STREAMS.rng("data", "users", name).permutation(group)
        drawn[order[: max(round(config.users * len(order)), 1)]] = True
    chosen = [
        np.arange(len(part.labels))
        if part.writers is None
        else np.flatnonzero(drawn[part.writers])
        for part in (train, test)
    ]
    if not len(chosen[1]):
        raise DataError(
            f"data.users is {config.users:g} but the writers it draws from {told(config)} have no "
            "test pictures; raise it"
        )
    return chosen


def _limited(
    part: Part,
    samples: IntArray,
    limit: int | None,
    key: str,
    classes: tuple[str, ...],
    where: str,
) -> IntArray:
    """Draw `limit` samples so that the classes keep their shares, one of each at least."""
    if limit is None:
        return samples
    labels = part.labels[samples]
    available = np.bincount(labels, minlength=len(classes))
    present = np.count_nonzero(available)
    if limit > len(samples):
        raise DataError(
            f"data.{key} is {limit} but {where} has only {len(samples)} pictures to draw; lower "
            "it, or leave it out to use them all"
        )
    if limit < present:
        raise DataError(
            f"data.{key} is {limit}, too few for one picture of each of the {present} classes of "
            f"{where}; raise it to {present} or more"
        )
    drawn = [
        _STREAMS.rng("data", key, label).permutation(samples[labels == label])[:size]
        for label, size in enumerate(_shares(available, limit))
    ]
    return np.sort(np.concatenate(drawn))


def _shares(available: IntArray, limit: int) -> IntArray:
    """Divide `limit` in proportion (largest remainders), at least 1 where there is any."""
    exact = available * (limit / available.sum())
    sizes: IntArray = np.maximum(np.floor(exact).astype(np.int64), available > 0)
    while sizes.sum() != limit:
        missing = sizes.sum() < limit
        if missing:
            sizes[np.where(sizes < available, exact - sizes, -np.inf).argmax()] += 1
        else:
            sizes[np.where(sizes > 1, sizes - exact, -np.inf).argmax()] -= 1
    return sizes


def _scaled(pictures: NDArray[np.uint8], white: int) -> NDArray[np.float32]:
    # In the order of the indices, whatever the order of the bytes in the file.
    return np.divide(pictures, white, dtype=np.float32, order="C")
