from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import at

from testbed.editing.clients import Client
from testbed.mobility import MobilityEvent
from testbed.simulation.fleet import EditRequest, Fleet
from testbed.streams import Streams

VEHICLES = [f"v{number}" for number in range(12)]


def fleet(pool: int = 3, participation: float = 1.0, seed: int = 0) -> Fleet:
    return Fleet(Streams(seed), pool, participation)


def started(text: str, pool: int = 3, initial: int | None = None, seed: int = 0) -> Fleet:
    made = fleet(pool, seed=seed)
    made.take(at(text))
    made.start(initial)
    return made


@st.composite
def histories(draw: st.DrawFn) -> list[MobilityEvent]:
    """Draw a possible history: joins and leaves of each vehicle alternate."""
    present: set[str] = set()
    events = []
    for time in range(draw(st.integers(0, 60))):
        vehicle = draw(st.sampled_from(VEHICLES))
        events.append(
            MobilityEvent(float(time), vehicle, "leave" if vehicle in present else "join")
        )
        present ^= {vehicle}
    return events


@given(histories(), st.integers(1, 6), st.integers(0, 30), st.integers(0, 3))
def test_a_partition_is_never_held_twice_and_none_is_lost(
    history: list[MobilityEvent], pool: int, split: int, seed: int
) -> None:
    made = fleet(pool, seed=seed)
    assert made.take(history[:split]) == []
    made.start(None)
    clients = set(made.clients)
    for event in history[split:]:
        requests = made.take([event])
        for request in requests:
            if request.kind == "join":
                assert request.client not in clients
                clients.add(request.client)
            else:
                clients.remove(request.client)
        held = [client.partition for client in made.clients]
        assert set(made.clients) == clients
        assert len(held) == len(set(held)) == len({c.vehicle for c in clients})
        assert set(held) <= set(range(pool))
        assert set(held) | made._free == set(range(pool))
        assert not set(held) & made._free


@given(histories(), st.integers(1, 6))
def test_every_join_is_a_request_or_counted(history: list[MobilityEvent], pool: int) -> None:
    made = fleet(pool, participation=0.6)
    made.start(None)
    requests = made.take(history)
    kinds = Counter(request.kind for request in requests)
    joins = sum(event.kind == "join" for event in history)
    assert kinds["join"] + made.without_partition + made.not_participating == joins
    assert [request.number for request in requests] == list(range(1, len(requests) + 1))
    assert made.requests == len(requests)
    assert len(made.clients) == kinds["join"] - kinds["leave"]


@given(histories(), st.lists(st.integers(1, 5), max_size=30))
def test_many_small_steps_or_one_large_make_the_same_requests(
    history: list[MobilityEvent], cuts: list[int]
) -> None:
    whole, parts = fleet(), fleet()
    whole.start(None)
    parts.start(None)
    rest, requests = history, []
    for cut in [*cuts, len(history)]:
        requests += parts.take(rest[:cut])
        rest = rest[cut:]
    assert requests == whole.take(history)
    assert parts.clients == whole.clients


@given(st.permutations(VEHICLES), st.integers(0, 20))
def test_participation_is_a_property_of_the_vehicle_not_of_the_order(
    order: list[str], seed: int
) -> None:
    def takers(names: list[str]) -> set[str]:
        made = fleet(pool=20, participation=0.5, seed=seed)
        made.take([MobilityEvent(0.0, name, "join") for name in names])
        return {client.vehicle for client in made.start(None)}

    assert takers(order) == takers(VEHICLES)


def test_the_participation_rate_is_kept_and_the_rest_counted() -> None:
    made = fleet(pool=5000, participation=0.25, seed=3)
    made.take([MobilityEvent(0.0, f"v{n}", "join") for n in range(4000)])
    # Four standard deviations of a binomial are 110.
    assert abs(made.present - 1000) < 110
    assert made.present + made.not_participating == 4000


def test_a_vehicle_that_does_not_participate_never_makes_a_request() -> None:
    made = fleet(participation=1e-9)
    made.start(None)
    assert made.take(at("1 +a; 2 -a; 3 +a")) == []
    assert (made.not_participating, made.without_partition, made.present) == (2, 0, 0)


@given(st.permutations(VEHICLES), st.integers(1, 12))
def test_the_initial_draw_does_not_depend_on_the_order_of_arrival(
    order: list[str], initial: int
) -> None:
    def drawn(names: list[str]) -> tuple[Client, ...]:
        made = fleet(pool=12)
        made.take([MobilityEvent(0.0, name, "join") for name in names])
        return made.start(initial)

    assert drawn(order) == drawn(VEHICLES)
    assert len(drawn(order)) == initial


def test_the_initial_draw_is_fair() -> None:
    seats = Counter(
        client.vehicle
        for seed in range(600)
        for client in started("0 " + " ".join(f"+{v}" for v in VEHICLES), 12, 6, seed).clients
    )
    # 600 draws of 6 from 12: 300 each, standard deviation 12.2.
    assert all(abs(seats[vehicle] - 300) < 62 for vehicle in VEHICLES)


def test_vehicles_that_are_not_drawn_are_counted_and_make_no_requests() -> None:
    made = started("0 +a +b +c +d", pool=3, initial=2)
    assert made.present == 4
    assert made.without_partition == 2
    (first, *_) = (v for v in "abcd" if v not in {c.vehicle for c in made.clients})
    assert made.take([MobilityEvent(1.0, first, "leave")]) == []
    assert made.present == 3


def test_a_pool_that_is_too_small_bounds_the_population() -> None:
    made = started("0 +a +b +c +d +e", pool=3)
    assert len(made.clients) == 3
    assert made.without_partition == 2


def test_before_the_start_nobody_is_a_client() -> None:
    made = fleet()
    assert made.take(at("1 +a +b; 2 -a; 3 +c")) == []
    assert made.clients == ()
    assert made.present == 2


def test_a_leaver_frees_its_partition_for_the_next() -> None:
    made = started("0 +a +b +c", pool=3)
    (held,) = (c.partition for c in made.clients if c.vehicle == "b")
    assert made.take(at("1 +late")) == []
    assert made.without_partition == 1
    leave, join = made.take(at("2 -b; 3 +d"))
    assert leave == EditRequest(1, 2.0, "leave", Client("b", held))
    assert join == EditRequest(2, 3.0, "join", Client("d", held))


def test_a_place_that_becomes_free_is_not_given_to_those_already_there() -> None:
    made = started("0 +a +b +c", pool=3)
    made.take(at("1 +late; 2 -a"))
    assert [client.vehicle for client in made.clients] == ["b", "c"]
    assert made.take(at("3 -late")) == []


def test_a_returning_vehicle_takes_its_former_partition_when_it_is_free() -> None:
    for seed in range(20):
        made = started("0 +a +b", pool=9, seed=seed)
        before = made.clients
        made.take(at("1 -a; 2 -b; 3 +b; 4 +a"))
        assert made.clients == before


def test_a_returning_vehicle_takes_another_when_its_former_is_held() -> None:
    made = started("0 +a +b +c", pool=3)
    former = {client.vehicle: client.partition for client in made.clients}
    made.take(at("1 -a; 2 +x; 3 -b; 4 +a"))
    now = {client.vehicle: client.partition for client in made.clients}
    assert now == {"x": former["a"], "a": former["b"], "c": former["c"]}


def test_partitions_are_spread_by_name_and_seed() -> None:
    """The first arrival does not simply get partition 0."""
    firsts = {started("0 +a", pool=50, seed=seed).clients[0].partition for seed in range(20)}
    assert len(firsts) > 10


def test_requests_carry_time_kind_and_number_in_order_of_the_events() -> None:
    made = started("0 +a +b", pool=9)
    requests = made.take(at("1.5 -a +x; 2.25 +y"))
    assert [(r.number, r.time, r.kind, r.client.vehicle) for r in requests] == [
        (1, 1.5, "leave", "a"),
        (2, 1.5, "join", "x"),
        (3, 2.25, "join", "y"),
    ]


@pytest.mark.parametrize("seed", range(3))
def test_a_method_cannot_influence_requests(seed: int) -> None:
    """The same events and seed make the same requests, twice."""
    text = "1 +d; 2 -a; 3 +e; 4 -d; 5 +a"
    assert started("0 +a +b", seed=seed).take(at(text)) == started("0 +a +b", seed=seed).take(
        at(text)
    )
