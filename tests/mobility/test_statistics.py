import numpy as np
import pytest

from testbed.config.schema import ArrivalsConfig
from testbed.mobility import MobilityEvent
from testbed.mobility.generator import generate
from testbed.mobility.statistics import Summary, population, propose, stays, summarise
from testbed.streams import Streams

EVENTS = [
    MobilityEvent(0, "a", "join"),
    MobilityEvent(5, "b", "join"),
    MobilityEvent(10, "c", "join"),
    MobilityEvent(40, "a", "leave"),
    MobilityEvent(40, "d", "join"),
    MobilityEvent(100, "b", "leave"),
]


def crowd(*counts: int, apart: float = 10.0) -> list[MobilityEvent]:
    """Return events that give so many members, one count after the other."""
    events: list[MobilityEvent] = []
    present: list[str] = []
    for number, count in enumerate(counts):
        time = number * apart
        while len(present) > count:
            events.append(MobilityEvent(time, present.pop(0), "leave"))
        while len(present) < count:
            present.append(f"v{len(events)}")
            events.append(MobilityEvent(time, present[-1], "join"))
    return events


def test_a_small_history_by_hand() -> None:
    # From 10 to 130: three members until 40, again three until 100, two until 130.
    assert summarise(EVENTS, warmup=10, end=130, requests=3) == Summary(
        joins_per_minute=1.0,
        leaves_per_minute=1.0,
        population_start=2,
        population_min=2,
        population_mean=pytest.approx((3 * 30 + 3 * 60 + 2 * 30) / 120),
        population_max=3,
        violations=0,
        violated_share=0,
        stay=pytest.approx((45.5, 67.5, 89.5)),
        vehicles=4,
        rejoins=0,
        seconds_for_requests=30,
    )


def test_too_few_requests_and_no_visit_that_ended() -> None:
    found = summarise(EVENTS[:3], warmup=6, end=66, requests=2)
    assert found.seconds_for_requests is None
    assert found.stay is None
    assert (found.population_start, found.population_min, found.population_max) == (2, 2, 3)


def test_nothing_happens() -> None:
    found = summarise([], warmup=0, end=60, requests=1)
    assert (found.population_mean, found.joins_per_minute) == (0, 0)


def test_violations_of_the_paper_s_assumption_are_counted_and_timed() -> None:
    # M0 is 4 just before 20: 2 and 8 are allowed, 1 and 9 are not.
    events = crowd(4, 4, 2, 1, 8, 9, 1, 4)
    found = summarise(events, warmup=15, end=80, requests=1)
    assert found.population_start == 4
    assert found.violations == 3
    assert found.violated_share == pytest.approx(30 / 65)


def test_those_who_come_at_a_warm_up_that_begins_empty_are_the_start() -> None:
    events = [MobilityEvent(0, name, "join") for name in "abc"]
    events += [MobilityEvent(7, "a", "leave"), MobilityEvent(9, "d", "join")]
    found = summarise(events, warmup=0, end=60, requests=2)
    assert found.population_start == 3
    assert (found.joins_per_minute, found.leaves_per_minute) == (1, 1)
    assert (found.violations, found.population_min, found.seconds_for_requests) == (0, 2, 9)


def test_rejoins_are_joins_beyond_the_first() -> None:
    events = [
        MobilityEvent(time, vehicle, kind)
        for time, vehicle, kind in (
            (0, "a", "join"), (1, "b", "join"), (2, "a", "leave"), (3, "a", "join"),
            (4, "a", "leave"), (5, "a", "join"),
        )
    ]  # fmt: skip
    found = summarise(events, warmup=1, end=6, requests=1)
    assert (found.vehicles, found.rejoins) == (2, 2)


def test_population_and_stays_by_hand() -> None:
    members = population(EVENTS)
    assert members.times.tolist() == [-np.inf, 0, 5, 10, 40, 100]
    assert members.members.tolist() == [0, 1, 2, 3, 3, 2]
    assert [members.at(t) for t in (0, 0.5, 10, 40, 100, 101)] == [0, 1, 2, 3, 3, 2]
    times, counts, lengths = members.between(7, 50)
    assert times.tolist() == [7, 10, 40]
    assert counts.tolist() == [2, 3, 3]
    assert lengths.tolist() == [3, 30, 10]
    assert stays(EVENTS).tolist() == [40, 95]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("clients", [1, 10, 40])
def test_what_is_proposed_gives_the_wanted_number(seed: int, clients: int) -> None:
    streams = Streams(seed)
    events = generate(ArrivalsConfig(per_minute=40), 1800.0, streams).events

    def draw(vehicle: str) -> float:
        return streams.uniform("participation", vehicle)

    found = propose(events, clients, 0, 1800, draw)
    assert found is not None
    assert found.warmup <= 0.75 * 1800 + 1
    part = [event for event in events if draw(event.vehicle) < found.participation]
    summary = summarise(part, found.warmup, 1800, 5)
    assert summary.population_start == clients
    assert found.expected == pytest.approx(clients / population(events).at(found.warmup))
    assert abs(found.participation - found.expected) < 0.5


def test_the_warm_up_that_is_proposed_waits_for_the_traffic_to_settle() -> None:
    # It grows to 100 in 1000 s, and stays there.
    events = crowd(*range(101), *[100] * 300)
    found = propose(events, 10, 0, 4000, lambda vehicle: Streams(0).uniform(vehicle))
    assert found is not None
    # 71 x sqrt(2) is just more than 100.
    assert 700 <= found.warmup <= 740


def test_everybody_takes_part_where_just_enough_are_there() -> None:
    found = propose(crowd(5, 5, 5, 5), 5, 0, 40, lambda vehicle: 0.999)
    assert found is not None
    assert (found.participation, found.expected) == (1, 1)


def test_nothing_is_proposed_where_there_are_never_so_many() -> None:
    assert propose(crowd(5, 5, 5, 9), 9, 0, 40, lambda vehicle: 0.5) is None
    assert propose([], 1, 0, 40, lambda vehicle: 0.5) is None
