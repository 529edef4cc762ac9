import pytest

from testbed.mobility import MobilityEvent
from testbed.mobility.statistics import Summary, summarise

EVENTS = [
    MobilityEvent(0, "a", "join"),
    MobilityEvent(5, "b", "join"),
    MobilityEvent(10, "c", "join"),
    MobilityEvent(40, "a", "leave"),
    MobilityEvent(40, "d", "join"),
    MobilityEvent(100, "b", "leave"),
]


def test_a_small_history_by_hand() -> None:
    # From 10 to 130: three members until 40, again three until 100, two until 130.
    assert summarise(EVENTS, warmup=10, end=130, requests=3) == Summary(
        joins_per_minute=1.0,
        leaves_per_minute=1.0,
        population_start=2,
        population_min=2,
        population_mean=pytest.approx((3 * 30 + 3 * 60 + 2 * 30) / 120),
        population_max=3,
        stay=pytest.approx((45.5, 67.5, 89.5)),
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
