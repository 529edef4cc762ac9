import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from testbed.simulation.clock import Moment, duration, micros, seconds


def test_points_in_time_are_rounded_and_durations_rounded_up() -> None:
    assert [micros(t) for t in (0, 0.1, 600.000_000_4, 600.000_000_6)] == [
        0,
        100_000,
        600_000_000,
        600_000_001,
    ]
    assert [duration(t) for t in (0, 1e-9, 0.1, 0.157750, 0.157_750_001, 2)] == [
        0,
        1,
        100_000,
        157_750,
        157_751,
        2_000_000,
    ]


@given(st.integers(0, 10**12))
def test_seconds_and_micros_are_inverse(point: int) -> None:
    assert micros(seconds(point)) == point
    assert duration(seconds(point)) == point


def test_a_thousand_tenths_are_a_hundred() -> None:
    """SimPy's own floating clock would stand at 99.9999999999986."""
    env = simpy.Environment(initial_time=0)

    def walk():
        for _ in range(1000):
            yield env.timeout(micros(0.1))

    env.process(walk())
    env.run()
    assert seconds(env.now) == 100


def arrivals(at: list[int], strides: list[int]) -> list[tuple[str, int]]:
    """Let timeouts end and moments come at the same times; say in which order."""
    env = simpy.Environment(initial_time=0)
    order: list[tuple[str, int]] = []

    def work(end: int):
        yield env.timeout(end)
        order.append(("work", env.now))

    def traffic():
        for point in sorted({*at, *strides}):
            yield Moment(env, point)
            if point in at:
                order.append(("traffic", env.now))

    for end in at:
        env.process(work(end))
    env.process(traffic())
    env.run()
    return order


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=8, unique=True),
    st.lists(st.integers(0, 50), max_size=50),
)
def test_a_moment_comes_first_however_the_clock_got_there(at: list[int], strides: list[int]):
    expected = [(kind, time) for time in sorted(at) for kind in ("traffic", "work")]
    assert arrivals(at, strides) == expected


def test_a_moment_now_still_happens() -> None:
    env = simpy.Environment(initial_time=5)
    env.run(until=Moment(env, 5))
    assert env.now == 5


def test_a_moment_can_be_waited_for_with_others() -> None:
    env = simpy.Environment(initial_time=0)
    env.run(until=env.all_of([Moment(env, 7), Moment(env, 3)]))
    assert env.now == 7


@pytest.mark.parametrize("stride", [1.0, 0.5, 0.1, 0.001])
def test_any_step_length_meets_the_end_of_the_warmup_exactly(stride: float) -> None:
    """SUMO's times, rounded to 1e-6 s, hit the same microsecond as the number 600."""
    steps = round(600 / stride)
    assert micros(round(steps * stride, 6)) == micros(600.0)
