"""Changes of the population in normal form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.editing.clients import Change, Client
from testbed.errors import EditError

A, B, C = Client("a", 0), Client("b", 1), Client("c", 2)
some = st.lists(st.builds(Client, st.sampled_from("abcde"), st.integers(0, 2)))


@given(some, some)
def test_normal_form_is_sorted_unique_and_disjoint(departures, arrivals) -> None:
    change = Change.of(departures, arrivals)
    for side in (change.departures, change.arrivals):
        assert list(side) == sorted(set(side))
    assert not set(change.departures) & set(change.arrivals)
    assert set(change.departures) == set(departures) - set(arrivals)
    assert set(change.arrivals) == set(arrivals) - set(departures)
    assert change == Change.of(reversed(departures), arrivals * 2)


@given(some, some)
def test_a_change_and_its_reverse_cancel(departures, arrivals) -> None:
    change = Change.of(departures, arrivals)
    population = tuple(sorted({A, *change.departures} - set(change.arrivals)))
    after = change.applied(population)
    assert list(after) == sorted(after)
    assert Change.of(change.arrivals, change.departures).applied(after) == population


def test_leaving_and_returning_unchanged_is_nothing() -> None:
    assert Change.of([A, B], [B, C]) == Change((A,), (C,))
    assert Change.of([A], [A]) == Change()


def test_returning_with_other_data_is_another_client() -> None:
    again = Client("a", 7)
    assert Change.of([A], [again]).applied([A, B]) == (again, B)


def test_unknown_departure() -> None:
    with pytest.raises(EditError, match=r"unknown client Client\(vehicle='c', partition=2\)"):
        Change.of([B, C]).applied([A, B])


def test_duplicate_arrival() -> None:
    with pytest.raises(EditError, match=r"arrival of Client\(vehicle='b'.*already"):
        Change.of((), [B]).applied([A, B])


def test_the_population_may_become_empty_and_fill_again() -> None:
    assert Change.of([A, B]).applied([A, B]) == ()
    assert Change.of((), [B, A]).applied(()) == (A, B)
