"""Randomness by name: independent, reproducible, and pinned for good."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from testbed.streams import Streams

names = st.lists(st.one_of(st.text(max_size=5), st.integers(-5, 5)), min_size=1, max_size=4)


def test_values_are_pinned() -> None:
    """Another way of hashing would silently change every result ever published."""
    streams = Streams(7)
    assert streams.integer("model") == 1901108096093983529
    assert streams.uniform("participation", "veh0") == 0.7369648730431021
    assert streams.rng("client", 3, "batches").permutation(8).tolist() == [2, 3, 4, 1, 5, 0, 6, 7]
    assert streams.rng("sampling").random() == 0.5831046205685713


def test_a_stream_is_fresh_at_every_call() -> None:
    streams = Streams(7)
    first = streams.rng("client", 3).random(4)
    streams.rng("client", 4).random(100)
    assert np.array_equal(Streams(7).rng("client", 3).random(4), first)
    assert np.array_equal(streams.rng("client", 3).random(4), first)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("client", 1), ("client", "1")),
        (("ab", "c"), ("a", "bc")),
        (("a", "b"), ("b", "a")),
        (("a",), ("a", "")),
        (("a",), ("a", "a")),
        ((1, 2), (12,)),
        (("str:1:a",), ("a",)),
        (("é",), ("e",)),
    ],
)
def test_types_lengths_and_order_of_names_matter(one: tuple, other: tuple) -> None:
    streams = Streams(0)
    assert streams.integer(*one) != streams.integer(*other)
    assert streams.uniform(*one) != streams.uniform(*other)
    assert streams.rng(*one).random() != streams.rng(*other).random()


@given(names, names, st.integers(0, 2**70), st.integers(0, 2**70))
def test_different_names_or_seeds_are_different_streams(one, other, seed, another) -> None:
    same = (one, seed) == (other, another)
    assert (Streams(seed).integer(*one) == Streams(another).integer(*other)) == same


def test_the_seed_is_not_a_name() -> None:
    assert Streams(1).integer("a") != Streams(2).integer("a")
    assert Streams(1).integer(2, "a") != Streams(2).integer(1, "a")


@given(names)
def test_ranges(parts) -> None:
    streams = Streams(3)
    assert 0 <= streams.integer(*parts) < 2**63
    assert 0.0 <= streams.uniform(*parts) < 1.0


def test_uniform_is_uniform() -> None:
    values = np.array([Streams(5).uniform("participation", f"veh{n}") for n in range(20_000)])
    assert abs(values.mean() - 0.5) < 4 * (1 / 12 / len(values)) ** 0.5
    assert stats.kstest(values, "uniform").pvalue > 1e-3
    assert len(set(values)) == len(values)


def test_integers_use_all_63_bits() -> None:
    values = [Streams(5).integer("model", n) for n in range(4_000)]
    for bit in range(63):
        share = sum(value >> bit & 1 for value in values) / len(values)
        assert abs(share - 0.5) < 5 * 0.5 / len(values) ** 0.5, bit


def test_neighbouring_streams_are_not_correlated() -> None:
    table = np.stack([Streams(5).rng("client", n).random(500) for n in range(60)])
    correlations = np.corrcoef(table)[np.triu_indices(60, 1)]
    assert np.abs(correlations).max() < 5 / 500**0.5
    assert stats.kstest(correlations * 500**0.5, "norm").pvalue > 1e-3


def test_a_stream_without_a_name_is_refused() -> None:
    for ask in (Streams(0).rng, Streams(0).integer, Streams(0).uniform):
        with pytest.raises(ValueError, match="at least one name"):
            ask()
