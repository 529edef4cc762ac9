"""Changes of the population in normal form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.editing.clients import Change, Client, NormalForm, normal_form
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


# --- the normal form of requests -------------------------------------------------------

A7 = Client("a", 7)


@pytest.mark.parametrize(
    ("requests", "departures", "arrivals", "ignored"),
    [
        # Nothing, one join, one leave.
        ([], [], [], []),
        ([("join", C)], [], [C], []),
        ([("leave", A)], [A], [], []),
        # A leave of somebody unknown, a join of somebody known.
        ([("leave", C)], [], [], [0]),
        ([("join", A)], [], [], [0]),
        ([("leave", A), ("leave", A)], [A], [], [1]),
        ([("join", C), ("join", C)], [], [C], [1]),
        # A leave of a version that is not there any more.
        ([("leave", A7)], [], [], [0]),
        # Other data: the old version departs, the new one arrives.
        ([("join", A7)], [A], [A7], []),
        ([("leave", A), ("join", A7)], [A], [A7], []),
        ([("join", A7), ("leave", A)], [A], [A7], [1]),
        ([("join", A7), ("leave", A7)], [A], [], []),
        ([("join", A7), ("join", A)], [], [], []),
        # Leaving and returning, coming and going.
        ([("leave", A), ("join", A)], [], [], []),
        ([("join", C), ("leave", C)], [], [], []),
        ([("leave", A), ("join", A), ("leave", A)], [A], [], []),
        ([("join", C), ("leave", C), ("join", C)], [], [C], []),
        # A refused client leaves, and comes back.
        ([("leave", C), ("join", C)], [], [C], [0]),
        # Several vehicles at once.
        ([("leave", B), ("join", C), ("leave", A), ("join", B)], [A], [C], []),
    ],
)
def test_normal_forms_by_hand(requests, departures, arrivals, ignored) -> None:
    """The population is a and b."""
    form = normal_form((A, B), requests)
    assert form == NormalForm(Change(tuple(departures), tuple(arrivals)), tuple(ignored))
    form.change.applied((A, B))  # it fits


@given(
    st.sets(st.sampled_from("abcdefg")),
    st.lists(
        st.tuples(
            st.sampled_from(["join", "leave"]),
            st.builds(Client, st.sampled_from("abcdefgh"), st.integers(0, 2)),
        )
    ),
)
def test_a_normal_form_is_what_following_the_requests_one_by_one_gives(there, requests) -> None:
    population = tuple(Client(vehicle, 0) for vehicle in sorted(there))
    one_by_one, without_effect = population, []
    for number, request in enumerate(requests):
        form = normal_form(one_by_one, [request])
        assert bool(form.ignored) == (form.change == Change())
        without_effect += [number] * len(form.ignored)
        one_by_one = form.change.applied(one_by_one)
        assert len({client.vehicle for client in one_by_one}) == len(one_by_one)
    together = normal_form(population, requests)
    assert together.change.applied(population) == one_by_one
    assert together.ignored == tuple(without_effect)


def test_the_population_may_become_empty_and_fill_again() -> None:
    assert Change.of([A, B]).applied([A, B]) == ()
    assert Change.of((), [B, A]).applied(()) == (A, B)
