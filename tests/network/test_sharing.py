"""Transfers in a cell: by hand, and against a slow model in fractions."""

import time
from itertools import permutations

import numpy as np
import pytest
import simpy
from cells import MICROS, Act, play, reckon
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.network import Cell

RESNET = 44_700_000 * 8
POLICIES = pytest.mark.parametrize("policy", ["fair", "slots", "none"])


@pytest.mark.parametrize(("flows", "seconds"), [(1, 8.94), (10, 89.4)])
def test_a_resnet_alone_and_ten_at_once(flows: int, seconds: float) -> None:
    played = play([Act(0, n, 40_000_000, RESNET) for n in range(flows)], "fair")
    assert set(played.ends.values()) == {round(seconds * MICROS)}
    assert len(played.ends) == flows


def test_every_flow_alone_and_two_at_a_time() -> None:
    ten = [Act(0, n, 40_000_000, RESNET) for n in range(10)]
    assert set(play(ten, "none").ends.values()) == {8_940_000}
    ends = play(ten, "slots", slots=2).ends
    assert ends == {n: 8_940_000 * (n // 2 + 1) for n in range(10)}


def test_a_late_comer_by_hand() -> None:
    """Alone a sends 3 of 8 Mbit; then both have half, until b's 2 Mbit are through."""
    a, b = Act(0, 0, 1_000_000, 8_000_000), Act(3 * MICROS, 1, 1_000_000, 2_000_000)
    assert play([a, b], "fair").ends == {1: 7 * MICROS, 0: 10 * MICROS}
    assert play([a, b], "slots").ends == {0: 8 * MICROS, 1: 10 * MICROS}
    assert play([a, b], "none").ends == {1: 5 * MICROS, 0: 8 * MICROS}


def test_air_time_is_shared_and_not_bits() -> None:
    """The slow one has half of its own rate, whatever the other's is."""
    acts = [Act(0, 0, 1_000_000, 1_000_000), Act(0, 1, 9_000_000, 36_000_000)]
    assert play(acts, "fair").ends == {0: 2 * MICROS, 1: 5 * MICROS}


@POLICIES
def test_a_stalled_flow_waits_and_costs_the_others_nothing(policy) -> None:
    acts = [
        Act(0, 0, 0, 1_000_000),
        Act(0, 1, 1_000_000, 3_000_000),
        Act(5 * MICROS, 0, 500_000),
    ]
    assert play(acts, policy).ends == {1: 3 * MICROS, 0: 7 * MICROS}
    assert play(acts[:2], policy).ends == {1: 3 * MICROS}


def test_a_flow_that_stalls_lends_its_slot_and_has_it_back() -> None:
    acts = [
        Act(0, 0, 1_000_000, 4_000_000),
        Act(0, 1, 1_000_000, 4_000_000),
        Act(1 * MICROS, 0, 0),
        Act(3 * MICROS, 0, 1_000_000),
    ]
    assert play(acts, "slots").ends == {0: 6 * MICROS, 1: 8 * MICROS}


def test_a_rate_that_changes_twice() -> None:
    acts = [Act(0, 0, 8, 40), Act(2 * MICROS, 0, 2), Act(6 * MICROS, 0, 4)]
    assert play(acts, "fair").ends == {0: 10 * MICROS}


def test_whole_bits_of_a_cancelled_flow() -> None:
    acts = [Act(0, 0, 3, 100), Act(0, 1, 3, 100), Act(2_500_000, 0, None)]
    played = play(acts, "fair")
    assert played.cancelled == {0: 3}  # 3.75
    assert played.ends == {1: 2_500_000 + 32_083_334}  # 96.25 bits at 3 a second, rounded up


def test_cancelled_in_the_microsecond_of_its_last_bit() -> None:
    played = play([Act(0, 0, 8, 8), Act(MICROS, 0, None)], "fair")
    assert played == reckon([Act(0, 0, 8, 8), Act(MICROS, 0, None)], "fair")
    assert (played.cancelled, played.ends) == ({0: 8}, {})


def test_what_is_over_stays_so() -> None:
    env = simpy.Environment()
    cell = Cell(env, "fair")
    flow, other = cell.send(8, 8), cell.send(80, 8)
    env.run(until=3 * MICROS)
    assert flow.done.processed
    assert flow.done.value is None
    cell.rate(flow, 5)
    assert cell.cancel(flow) == 8
    assert cell.cancel(other) == 16 == cell.cancel(other)
    env.run()
    assert not other.done.triggered


def test_nothing_to_send_is_sent_at_once() -> None:
    env = simpy.Environment()
    assert Cell(env, "fair").send(0, 0).done.triggered


@pytest.mark.parametrize("rate", [-1.0, float("nan"), float("inf")])
def test_impossible_rates_are_refused_and_change_nothing(rate: float) -> None:
    cell = Cell(simpy.Environment(), "fair")
    with pytest.raises(ValueError, match="the rate"):
        cell.send(8, rate)
    flow = cell.send(8, 8)
    with pytest.raises(ValueError, match="the rate"):
        cell.rate(flow, rate)
    with pytest.raises(ValueError, match="-1 bits"):
        cell.send(-1, 8)
    assert cell.cancel(flow) == 0


def test_rates_are_whole_and_never_fall_to_nothing() -> None:
    env = simpy.Environment()
    cell = Cell(env, "fair")
    flow = cell.send(8, 0.2)
    env.run(until=flow.done)
    assert env.now == 8 * MICROS


@st.composite
def scripts(draw):
    """Transfers that start, move, stall and leave at few enough times to coincide often."""
    count = draw(st.integers(1, 7))
    times = st.integers(0, 12).map(lambda n: n * 700_001)
    rates = st.one_of(st.just(0), st.integers(1, 20), st.integers(1, 40_000_000))
    acts = []
    for number in range(count):
        start = draw(times)
        acts.append(Act(start, number, draw(rates), draw(st.integers(1, 200_000_000))))
        moves = [at for at in sorted(draw(st.sets(times, max_size=4))) if at > start]
        acts.extend(Act(at, number, draw(rates)) for at in moves)
        end = draw(times)
        if end > start and draw(st.booleans()):
            acts = [act for act in acts if act.flow != number or act.at < end]
            acts.append(Act(end, number, None))
    return sorted(acts, key=lambda act: (act.at, act.flow))


@POLICIES
@settings(deadline=None, max_examples=120)
@given(acts=scripts(), slots=st.integers(1, 3))
def test_to_the_microsecond_and_the_bit_as_the_slow_model(policy, acts, slots) -> None:
    assert play(acts, policy, slots) == reckon(acts, policy, slots)


@settings(deadline=None, max_examples=60)
@given(acts=scripts(), data=st.data())
def test_the_order_within_a_microsecond_is_irrelevant(acts, data) -> None:
    shuffled = sorted(data.draw(st.permutations(acts)), key=lambda act: act.at)
    assert play(shuffled, "fair") == play(acts, "fair")


@POLICIES
@settings(deadline=None, max_examples=60)
@given(acts=scripts())
def test_moves_that_change_nothing_change_nothing(policy, acts) -> None:
    """A live run looks every second, a replay only where something happens."""
    rates: dict[int, int] = {}
    padded = []
    for at in sorted({act.at for act in acts} | set(range(0, 9 * MICROS, 500_000))):
        padded += [Act(at, number, rate) for number, rate in rates.items()]
        for act in (act for act in acts if act.at == at):
            padded.append(act)
            rates.pop(act.flow, None)
            if act.rate is not None:
                rates[act.flow] = act.rate
    assert play(padded, policy, 2) == play(acts, policy, 2)


def test_bits_sent_are_the_integral_of_the_shared_rate() -> None:
    """Equal flows, cancelled at one time: together they sent what one alone would have."""
    for count in (1, 2, 3, 7, 30):
        acts = [Act(0, n, 30_000_000, 10**12) for n in range(count)]
        acts += [Act(7 * MICROS, n, None) for n in range(count)]
        sent = play(acts, "fair").cancelled
        assert len(set(sent.values())) == 1
        assert 0 <= 210_000_000 - sum(sent.values()) < count


def test_every_order_of_three_at_once() -> None:
    three = [Act(0, 0, 7, 50), Act(0, 1, 11, 90), Act(0, 2, 13, 20)]
    assert (
        len({tuple(sorted(play(list(o), "fair").ends.items())) for o in permutations(three)}) == 1
    )


@POLICIES
def test_five_hundred_flows_and_many_moves_stay_cheap(policy) -> None:
    """10^4 moves; the bound is far above what they take, and far below a quadratic cost."""
    env = simpy.Environment()
    cell = Cell(env, policy, 10)
    rng = np.random.default_rng(0)
    flows = [cell.send(10**9, 4e7) for _ in range(500)]
    rates = rng.uniform(0, 4e7, 10_000)

    def moves():
        for number, rate in enumerate(rates):
            yield env.timeout(int(rng.integers(1, 4_000)))
            cell.rate(flows[number % 500], rate)

    start = time.perf_counter()
    env.run(until=env.process(moves()))
    assert time.perf_counter() - start < 5
    assert sum(cell.cancel(flow) for flow in flows) > 0
    assert len(cell._ends) <= 2 * 500 + 100
