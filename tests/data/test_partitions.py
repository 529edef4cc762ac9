"""Partitions: every sample once, the promised minimum, and stable per-client draws."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.config.schema import DataConfig
from testbed.data import counts, partition
from testbed.data.partitions import _apportion, _raise_to_minimum
from testbed.errors import DataError
from testbed.streams import Streams

KINDS = ("dirichlet", "iid")


@st.composite
def cases(draw):
    clients = draw(st.integers(1, 12))
    minimum = draw(st.integers(1, 5))
    size = draw(st.integers(clients * minimum, clients * minimum + 80))
    labels = np.array(draw(st.lists(st.integers(0, 9), min_size=size, max_size=size)), np.int64)
    config = DataConfig(
        partition=draw(st.sampled_from(KINDS)),
        alpha=draw(st.sampled_from([1e-12, 1e-3, 0.1, 0.5, 10.0, 1e12])),
        minimum=minimum,
    )
    return labels, clients, config, Streams(draw(st.integers(0, 5)))


@settings(deadline=None)
@given(cases())
def test_every_sample_belongs_to_exactly_one_client(case):
    labels, clients, config, streams = case
    parts = partition(labels, clients, config, streams)
    assert len(parts) == clients
    assert np.sort(np.concatenate(parts)).tolist() == list(range(len(labels)))
    assert all(part.dtype == np.int64 and np.all(np.diff(part) > 0) for part in parts)
    assert min(map(len, parts)) >= config.minimum


@settings(deadline=None)
@given(cases())
def test_the_same_case_gives_the_same_partition(case):
    first, second = partition(*case), partition(*case)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


@settings(deadline=None)
@given(cases())
def test_counts_add_up_both_ways(case):
    labels, clients, *_ = case
    parts = partition(*case)
    table = counts(labels, parts, 10)
    assert table.shape == (clients, 10)
    assert table.sum(axis=0).tolist() == np.bincount(labels, minlength=10).tolist()
    assert table.sum(axis=1).tolist() == [len(part) for part in parts]


@settings(deadline=None)
@given(st.integers(2, 30), st.integers(0, 3))
def test_a_client_draws_the_same_classes_however_many_there_are(clients, seed):
    """Within the same column, clients 0 and 1 keep the ratio of their own draws."""
    labels = np.repeat(np.arange(4), 3000)
    config = DataConfig(alpha=1.0, minimum=1)
    table = counts(labels, partition(labels, clients, config, Streams(seed)), 4)
    draws = [
        Streams(seed).rng("partition", "dirichlet", client).dirichlet(np.ones(4))
        for client in range(clients)
    ]
    expected = 3000 * np.array(draws) / np.sum(draws, axis=0)
    assert np.abs(table - expected).max() <= 1.0  # borders are rounded to whole samples


@pytest.mark.parametrize("kind", KINDS)
def test_seeds_differ(kind):
    labels = np.arange(200, dtype=np.int64) % 10
    config = DataConfig(partition=kind)
    first, second = (partition(labels, 5, config, Streams(seed)) for seed in (0, 1))
    assert any(not np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_iid_sizes_are_even_and_classes_mixed():
    labels = np.repeat(np.arange(10), 103)
    parts = partition(labels, 4, DataConfig(partition="iid"), Streams(0))
    assert [len(part) for part in parts] == [258, 258, 257, 257]
    assert counts(labels, parts, 10).min() > 10


def test_alpha_rules_the_skew():
    labels = np.repeat(np.arange(10), 1000)
    largest = []
    for alpha in (0.1, 0.5, 100.0):
        table = counts(labels, partition(labels, 20, DataConfig(alpha=alpha), Streams(0)), 10)
        largest.append((table.max(axis=1) / table.sum(axis=1)).mean())
    assert largest[0] > 0.5 > largest[1] > 0.2 > largest[2] > 0.1


def test_the_table_on_the_page():
    labels = np.repeat(np.arange(10), 6000)
    medians = []
    for alpha in (0.1, 0.5, 1.0, 100.0):
        table = counts(labels, partition(labels, 100, DataConfig(alpha=alpha), Streams(0)), 10)
        shares = -np.sort(-table, axis=1) / table.sum(axis=1, keepdims=True)
        medians.append(int(np.median((shares.cumsum(axis=1) < 0.9).sum(axis=1) + 1)))
    page = Path(__file__).parents[2].joinpath("docs", "data.md").read_text(encoding="utf-8")
    assert f"| classes | {' | '.join(map(str, medians))} |" in page


def test_too_few_samples_are_refused_with_the_numbers():
    labels = np.zeros(9, np.int64)
    with pytest.raises(DataError) as caught:
        partition(labels, 5, DataConfig(minimum=2), Streams(0))
    assert str(caught.value) == (
        "9 samples cannot give 5 clients data.minimum = 2 each; lower clients.pool or data.minimum"
    )
    assert len(partition(np.zeros(10, np.int64), 5, DataConfig(minimum=2), Streams(0))) == 5


def test_apportion_by_hand():
    # Class 0: 10 samples by 0.2 : 0.3 : 0.5; class 1: 3 samples evenly, borders 1, 2, 3;
    # class 2: nobody wants it, so 6 samples evenly; class 3: none there.
    weights = np.array([[0.2, 1, 0, 1], [0.3, 1, 0, 2], [0.5, 1, 0, 3]])
    table = _apportion(weights, np.array([10, 3, 6, 0]))
    assert table.tolist() == [[2, 1, 2, 0], [3, 1, 2, 0], [5, 1, 2, 0]]


def test_raise_to_minimum_by_hand():
    # Client 1 (size 9) gives from class 1 (6 samples) to client 0 (size 0) until it has 2.
    table = np.array([[0, 0], [3, 6], [2, 1]])
    _raise_to_minimum(table, 2)
    assert table.tolist() == [[0, 2], [3, 4], [2, 1]]


def test_counts_by_hand():
    labels = np.array([0, 1, 1, 2, 0])
    parts = (np.array([0, 1, 2]), np.array([3, 4]))
    assert counts(labels, parts, 4).tolist() == [[1, 2, 0, 0], [1, 0, 1, 0]]
