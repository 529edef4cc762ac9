"""Partitions: every sample once, the promised minimum, and stable per-client draws."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_data import bundle

from testbed.config.schema import DataConfig
from testbed.data import counts, hold_out, partition
from testbed.data.divisions import _apportion, dealt
from testbed.data.partitions import _raise_to_minimum
from testbed.errors import DataError
from testbed.streams import Streams

DIRICHLET = ("dirichlet", "dirichlet-classes")
KINDS = (*DIRICHLET, "iid")  # these keep every promise, whatever the data


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


def own_draws(kind, client, seed):
    """A client's weights of four classes at alpha = 1, drawn without the code under test."""
    rng = Streams(seed).rng("partition", kind, client)
    if kind == "dirichlet":
        return rng.dirichlet(np.ones(4))
    uniform = 1 - rng.random(4)
    return rng.standard_gamma(2.0, 4) * uniform  # Gamma(1)


@settings(deadline=None)
@given(st.sampled_from(DIRICHLET), st.integers(2, 30), st.integers(0, 3))
def test_a_client_draws_the_same_classes_however_many_there_are(kind, clients, seed):
    """Within the same column, clients 0 and 1 keep the ratio of their own draws."""
    labels = np.repeat(np.arange(4), 3000)
    config = DataConfig(partition=kind, alpha=1.0, minimum=1)
    table = counts(labels, partition(labels, clients, config, Streams(seed)), 4)
    draws = [own_draws(kind, client, seed) for client in range(clients)]
    expected = 3000 * np.array(draws) / np.sum(draws, axis=0)
    assert np.abs(table - expected).max() <= 1.0  # borders are rounded to whole samples


@pytest.mark.parametrize("kind", [*KINDS, "shards", "writers"])
def test_seeds_differ(kind):
    labels = np.arange(200, dtype=np.int64) % 10
    config = DataConfig(partition=kind)
    writers = np.arange(200) // 9
    first, second = (partition(labels, 5, config, Streams(seed), writers) for seed in (0, 1))
    assert any(not np.array_equal(a, b) for a, b in zip(first, second, strict=True))


@settings(deadline=None)
@given(
    st.sampled_from(["iid", "writers"]), st.integers(1, 20), st.integers(1, 20), st.integers(0, 3)
)
def test_a_new_client_only_takes_from_the_others(kind, few, more, seed):
    writers = np.random.default_rng(seed).permutation(np.arange(120) // 3)
    labels = writers % 10
    few, many = sorted((few, few + more))
    config = DataConfig(partition=kind, minimum=1)
    before, after = (partition(labels, n, config, Streams(seed), writers) for n in (few, many))
    assert all(set(new) <= set(old) for old, new in zip(before, after[:few], strict=True))


def test_a_new_client_takes_from_the_largest_by_hand():
    # Seven items: 0..6; then 4 + 3; then 3 + 2 + 2: client 0 gives the last of its four,
    # client 1 the last of its three.
    items = np.arange(7)
    assert [part.tolist() for part in dealt(items, 2)] == [[0, 1, 2, 3], [4, 5, 6]]
    assert [part.tolist() for part in dealt(items, 3)] == [[0, 1, 2], [4, 5], [3, 6]]
    assert [len(part) for part in dealt(items, 9)] == [1] * 7 + [0, 0]


def test_every_item_is_as_likely_to_go_to_any_client():
    """Two thousand deals of six items to three clients; 667 expected, deviation 21."""
    first = [
        dealt(np.random.default_rng(seed).permutation(6), 3)[2].tolist() for seed in range(2000)
    ]
    hits = np.bincount(np.concatenate(first), minlength=6)
    assert np.abs(hits - 2000 / 3).max() < 4.5 * 21


def test_iid_sizes_are_even_and_classes_mixed():
    labels = np.repeat(np.arange(10), 103)
    parts = partition(labels, 4, DataConfig(partition="iid"), Streams(0))
    assert [len(part) for part in parts] == [258, 258, 257, 257]
    assert counts(labels, parts, 10).min() > 10


@pytest.mark.parametrize("kind", DIRICHLET)
def test_alpha_rules_the_skew(kind):
    labels = np.repeat(np.arange(10), 1000)
    largest = []
    for alpha in (0.1, 0.5, 100.0):
        config = DataConfig(partition=kind, alpha=alpha)
        table = counts(labels, partition(labels, 20, config, Streams(0)), 10)
        largest.append((table.max(axis=1) / table.sum(axis=1)).mean())
    assert largest[0] > 0.5 > largest[1] > 0.2 > largest[2] > 0.1


def test_shares_of_a_class_follow_a_dirichlet_over_the_clients():
    """The variance of a share of Dir(alpha 1_N) is (1/N)(1 - 1/N) / (N alpha + 1)."""
    labels = np.repeat(np.arange(1000), 200)
    config = DataConfig(partition="dirichlet-classes", alpha=0.5, minimum=1)
    shares = counts(labels, partition(labels, 4, config, Streams(0)), 1000) / 200
    np.testing.assert_allclose(shares.mean(axis=1), 0.25, atol=0.03)
    np.testing.assert_allclose(shares.var(axis=1), 0.25 * 0.75 / 3, rtol=0.1)


def test_a_tiny_alpha_gives_each_class_to_one_client():
    labels = np.repeat(np.arange(10), 50)
    config = DataConfig(partition="dirichlet-classes", alpha=1e-12, minimum=1)
    table = counts(labels, partition(labels, 3, config, Streams(0)), 10)
    assert np.sort(table, axis=0)[:2].sum() <= 2  # beyond what the minimum moved
    assert table.max(axis=0).min() >= 48


def test_shards_by_hand():
    """Forty samples of four classes in eight shards: five of one class each, two a client."""
    labels = np.arange(40) % 4
    parts = partition(labels, 4, DataConfig(partition="shards", shards=2), Streams(0))
    table = counts(labels, parts, 4)
    assert table.sum(axis=1).tolist() == [10] * 4
    assert table.sum(axis=0).tolist() == [10] * 4
    assert set(table.ravel()) <= {0, 5, 10}
    assert (table > 0).sum(axis=1).max() <= 2


def test_a_client_of_many_shards_has_many_classes():
    labels = np.repeat(np.arange(10), 100)
    config = DataConfig(partition="shards", shards=20)
    table = counts(labels, partition(labels, 5, config, Streams(0)), 10)
    assert (table > 0).sum(axis=1).min() >= 8  # of two shards, two at most


def test_writers_are_never_divided():
    writers = np.random.default_rng(0).integers(0, 23, 500)
    names = np.array([f"f{number:04d}" for number in range(23)])
    config = DataConfig(partition="writers")
    parts = partition(writers % 10, 5, config, Streams(0), writers)
    held = [set(writers[part]) for part in parts]
    assert sorted(len(each) for each in held) == [4, 4, 5, 5, 5]
    assert sum(map(len, held)) == len(set.union(*held)) == 23
    named = partition(writers % 10, 5, config, Streams(0), names[writers])
    assert all(np.array_equal(a, b) for a, b in zip(parts, named, strict=True))


@pytest.mark.parametrize(
    ("config", "writers", "words"),
    [
        ({"partition": "writers"}, None, ("says who wrote", "femnist")),
        ({"partition": "writers"}, np.arange(20) % 3, ("3 writers", "4 clients", "data.users")),
        (
            {"partition": "writers", "minimum": 3},
            np.repeat([0, 1, 2, 3], [8, 8, 2, 2]),
            ("'writers' gives client", "only 2 samples", "data.minimum = 3"),
        ),
        ({"partition": "shards", "shards": 6}, None, ("20 samples", "4 x 6 shards")),
        ({"minimum": 6}, None, ("20 samples", "4 clients", "data.minimum = 6")),
    ],
)
def test_what_cannot_be_divided_is_refused_in_one_line(config, writers, words):
    labels = np.arange(20) % 2
    given = DataConfig(name="npz", path=Path("a.npz"), **config)
    with pytest.raises(DataError) as caught:
        partition(labels, 4, given, Streams(0), writers)
    assert "a.npz" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_real_writers_become_clients():
    with np.load(bundle("femnist_leaf.npz")) as real:
        labels, writers = real["y_train"].astype(np.int64), real["writer_train"]
    config = DataConfig(partition="writers")
    parts = partition(labels, 20, config, Streams(0), writers)
    assert sorted({len(np.unique(writers[part])) for part in parts}) == [5, 6]
    assert sum(map(len, parts)) == len(labels)
    config = DataConfig(partition="writers", name="femnist", path=Path("femnist.npz"))
    with pytest.raises(DataError, match=r"105 writers of femnist.npz cannot be grouped"):
        partition(labels, 106, config, Streams(0), writers)


@settings(deadline=None)
@given(cases(), st.sampled_from([0.0, 0.1, 0.29, 0.5, 0.999, 1 - 1e-12]))
def test_what_is_held_out_is_never_trained_on(case, share):
    parts = partition(*case)
    training, held_out = hold_out(parts, share, case[-1])
    for part, ours, out in zip(parts, training, held_out, strict=True):
        assert np.array_equal(np.sort(np.concatenate([ours, out])), part)
        assert len(ours) >= 1
        assert len(part) * share - 1 < len(out) <= len(part) * share + 1e-6


def test_a_share_that_is_whole_is_not_rounded_down():
    (part,), (out,) = hold_out((np.arange(100),), 0.29, Streams(0))  # 0.29 * 100 = 28.999...
    assert (len(part), len(out)) == (71, 29)


def test_a_clients_held_out_samples_do_not_depend_on_other_clients():
    parts = (np.arange(30), np.arange(30, 80), np.arange(80, 90))
    alone = hold_out(parts[:2], 0.2, Streams(0))[1]
    beside = hold_out(parts, 0.2, Streams(0))[1]
    assert all(np.array_equal(a, b) for a, b in zip(alone, beside[:2], strict=True))
    assert not np.array_equal(alone[0], hold_out(parts, 0.2, Streams(1))[1][0])


def test_the_table_on_the_page():
    labels = np.repeat(np.arange(10), 6000)
    page = Path(__file__).parents[2].joinpath("docs", "partitions.md").read_text(encoding="utf-8")
    for kind in DIRICHLET:
        medians = []
        for alpha in (0.1, 0.5, 0.8, 100.0):
            config = DataConfig(partition=kind, alpha=alpha)
            table = counts(labels, partition(labels, 100, config, Streams(0)), 10)
            shares = -np.sort(-table, axis=1) / table.sum(axis=1, keepdims=True)
            medians.append(int(np.median((shares.cumsum(axis=1) < 0.9).sum(axis=1) + 1)))
        assert f"| `{kind}` | {' | '.join(map(str, medians))} |" in page


def test_too_few_samples_are_refused_with_the_numbers():
    labels = np.zeros(9, np.int64)
    with pytest.raises(DataError) as caught:
        partition(labels, 5, DataConfig(minimum=2), Streams(0))
    assert str(caught.value) == (
        "9 samples of scikit-learn's digits cannot give 5 clients data.minimum = 2 each; lower "
        "clients.pool or data.minimum"
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
