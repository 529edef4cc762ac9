"""Path loss, chance and rates, against tables and by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from testbed.config.schema import RADIO_KEYS, NetworkConfig
from testbed.network import Draw, Radio, draw
from testbed.network.radio import (
    PRESETS,
    line_of_sight_probability,
    path_loss_los,
    path_loss_nlos,
    standard_normal,
)
from testbed.streams import Streams

EVEN = Draw(0.5, 0.0)
# Metres, P(LOS), then LOS / NLOS / mean in Mb/s, worked out apart from this code.
TABLE = """
50   0.52   40 40 40       200 200 200      27 27 27
100  0.23   40 40 40       200 200 200      27 23.6 24.4
150  0.13   40 40 40       200 128 138      27 12.9 14.8
200  0.09   40 32 33       200 80 91        27 7.0 8.9
250  0.07   40 23.8 25     200 50 61        27 3.9 5.6
300  0.06   40 17.6 19     200 31 41        27 2.3 3.7
400  0.05   40 9.6 11      200 13 22        27 0.9 2.1
500  0.04   40 5.4 6.6     174 6.5 12.5     27 0 1.0
"""
ROWS = [line.split() for line in TABLE.strip().splitlines()]
NAMES = ["nr-ul-20", "nr-ul-100", "itsg5"]


def radio(**keys) -> Radio:
    return Radio.from_config(NetworkConfig(**keys))


def within_rounding(text: str) -> object:
    decimals = len(text.partition(".")[2])
    return pytest.approx(float(text), abs=0.501 * 10**-decimals)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} m")
@pytest.mark.parametrize("name", NAMES)
def test_expected_rates(row: list[str], name: str) -> None:
    metres, where = float(row[0]), 2 + 3 * NAMES.index(name)
    link = radio(preset=name, fading=False)
    assert line_of_sight_probability(metres) == within_rounding(row[1])
    los, nlos = link.rate_in(metres, True), link.rate_in(metres, False)
    assert los / 1e6 == within_rounding(row[where])
    assert nlos / 1e6 == within_rounding(row[where + 1])
    assert link.rate(metres, EVEN) / 1e6 == within_rounding(row[where + 2])


def test_path_loss_by_hand() -> None:
    # 20 log10 3.5 is 10.8814; sqrt(100^2 + 8.5^2) is 100.3606, whose logarithm is 2.001563.
    assert path_loss_los(100, 3.5) == pytest.approx(32.4 + 21 * 2.001563 + 10.8814, abs=1e-3)
    assert path_loss_nlos(100, 3.5) == pytest.approx(
        22.4 + 35.3 * 2.001563 + 21.3 / 20 * 10.8814, abs=1e-3
    )
    # Beyond the breakpoint, 210 m at 3.5 GHz: log10 400.0903 is 2.602158.
    assert path_loss_los(400, 3.5) == pytest.approx(
        32.4 + 40 * 2.602158 + 10.8814 - 9.5 * math.log10(210**2 + 8.5**2), abs=1e-3
    )


@pytest.mark.parametrize(("ghz", "metres"), [(3.5, 210), (5.9, 354)])
def test_path_loss_is_continuous_at_the_breakpoint(ghz: float, metres: float) -> None:
    before, after = path_loss_los(metres - 1e-6, ghz), path_loss_los(metres + 1e-6, ghz)
    assert after == pytest.approx(before, abs=1e-6)
    slopes = [path_loss_los(d * 1.01, ghz) - path_loss_los(d, ghz) for d in (0.9 * metres, metres)]
    assert slopes[1] / slopes[0] == pytest.approx(40 / 21, rel=0.01)


@given(st.floats(0, 5000), st.floats(0, 5000), st.floats(0.5, 100))
def test_farther_is_never_better(a: float, b: float, ghz: float) -> None:
    near, far = sorted((a, b))
    assert path_loss_los(near, ghz) <= path_loss_los(far, ghz) + 1e-9
    assert path_loss_nlos(near, ghz) <= path_loss_nlos(far, ghz) + 1e-9
    assert path_loss_los(near, ghz) <= path_loss_nlos(near, ghz)
    assert 0 < line_of_sight_probability(far) <= line_of_sight_probability(near) <= 1


def test_right_under_the_antenna() -> None:
    assert line_of_sight_probability(0) == line_of_sight_probability(18) == 1
    assert path_loss_los(0, 3.5) == path_loss_los(10, 3.5)
    for name in PRESETS:
        assert radio(preset=name).rate(0, Draw(0.999, 0)) == radio(preset=name).peak


@given(st.floats(0, 1, exclude_max=True), st.sampled_from(NAMES))
def test_a_vehicle_that_comes_nearer_sees_the_unit_once_and_for_all(u: float, name: str) -> None:
    link = radio(preset=name)
    rates = [link.rate(float(d), Draw(u, 0.0)) for d in range(600, 0, -5)]
    assert rates == sorted(rates)
    states = [u < line_of_sight_probability(float(d)) for d in range(600, 0, -5)]
    assert states == sorted(states)


def test_shadowing_is_so_many_decibels() -> None:
    link = radio(preset="itsg5")
    for draws, los, sigma in ((Draw(0.01, 0.5), True, 4.0), (Draw(0.9, 0.5), False, 7.82)):
        assert link.rate(300, draws) == link.rate_in(300, los, 0.5 * sigma)
        assert link.rate(300, draws) <= link.rate_in(300, los)
    assert (
        link.rate(300, Draw(0.9, 1)) < link.rate(300, Draw(0.9, 0)) < link.rate(300, Draw(0.9, -1))
    )


def test_without_fading_the_draw_has_no_influence() -> None:
    link = radio(fading=False)
    assert len({link.rate(300, Draw(u, z)) for u in (0, 0.5, 0.99) for z in (-2, 0, 3)}) == 1


def test_the_mean_over_draws_of_sight_is_the_mean_rate() -> None:
    drawn, mean = radio(), radio(fading=False)
    rates = [drawn.rate(400, Draw((n + 0.5) / 10_000, 0)) for n in range(10_000)]
    assert sum(rates) / len(rates) == pytest.approx(mean.rate(400, EVEN), rel=2e-3)


def test_nothing_below_minus_ten_decibels_and_something_above() -> None:
    link = radio()
    # -174 + 73.0103 + 5 = -95.9897 dBm of noise; 34 dBm sent, 3 dB of margin: the signal-to-
    # noise ratio is 126.9897 dB less the loss.
    loss = path_loss_nlos(300, 3.5)
    edge = 126.9897 + 10 - loss
    assert link.rate_in(300, False, edge + 1e-3) == 0
    assert link.rate_in(300, False, edge - 1e-3) == pytest.approx(
        20e6 * 0.4 * math.log2(1.1), rel=1e-3
    )


def test_peaks() -> None:
    peaks = {name: radio(preset=name).peak for name in [*PRESETS, "fixed"]}
    assert peaks == {
        "nr-ul-20": 40e6,
        "nr-ul-100": 200e6,
        "nr-dl-20": 88e6,
        "itsg5": 27e6,
        "fixed": 40e6,
    }


def test_a_fixed_rate_knows_no_distance() -> None:
    link = radio(preset="fixed", rate_mbps=6)
    assert {link.rate(d, Draw(0.99, 3)) for d in (0, 100, 1e5)} == {6e6} == {link.peak}
    assert link.rate_in(1e5, los=False) == 6e6


def test_a_given_rate_holds_where_no_distance_is_known() -> None:
    assert radio(rate_mbps=6).peak == 6e6
    assert radio(rate_mbps=6).rate(10, EVEN) == 40e6


def test_every_constant_can_be_overridden() -> None:
    before = radio(preset="nr-ul-20", fading=False)
    keys = {key: getattr(PRESETS["nr-ul-20"], key) for key in RADIO_KEYS}
    assert radio(preset="nr-ul-20", fading=False, **keys) == before
    for key, value in keys.items():
        changed = radio(preset="nr-ul-20", fading=False, **{key: value * 0.8})
        metres = 50 if key == "cap" else 450
        assert changed.rate(metres, EVEN) != before.rate(metres, EVEN), key


def test_the_way_down() -> None:
    both = NetworkConfig(preset="itsg5", power_dbm=10)
    assert Radio.from_config(both) == Radio.from_config(both, downlink=True)
    apart = NetworkConfig(preset="nr-ul-20", downlink="nr-dl-20", cap=1.0, rate_mbps=5)
    up, down = Radio.from_config(apart), Radio.from_config(apart, downlink=True)
    assert (up.constants.cap, up.peak) == (1.0, 5e6)
    assert (down.constants, down.peak) == (PRESETS["nr-dl-20"], 88e6)
    fixed = NetworkConfig(downlink="fixed", rate_mbps=5)
    assert Radio.from_config(fixed, downlink=True).peak == 5e6


def test_a_fixed_rate_refuses_constants() -> None:
    with pytest.raises(ValidationError, match="alpha has no effect on the preset 'fixed'"):
        NetworkConfig(preset="fixed", alpha=0.5)


def test_draws_repeat_and_differ_by_every_name() -> None:
    names = [("a", "v", 1), ("b", "v", 1), ("a", "w", 1), ("a", "v", 2)]
    draws = {draw(Streams(seed), *name) for seed in (0, 1) for name in names}
    assert len(draws) == 8
    assert draw(Streams(0), "a", "v", 1) == draw(Streams(0), "a", "v", 1)


def test_draws_have_the_distributions_they_should() -> None:
    draws = [draw(Streams(3), "a", "v", visit) for visit in range(4000)]
    assert sum(d.u < 0.25 for d in draws) / 4000 == pytest.approx(0.25, abs=0.03)
    mean = sum(d.z for d in draws) / 4000
    assert mean == pytest.approx(0, abs=0.06)
    assert sum(d.z**2 for d in draws) / 4000 == pytest.approx(1, abs=0.1)
    assert sum(d.u * d.z for d in draws) / 4000 - mean / 2 == pytest.approx(0, abs=0.03)


def test_normal_numbers_are_finite_at_both_ends() -> None:
    assert standard_normal(0.5) == pytest.approx(0, abs=1e-12)
    assert standard_normal(0.975) == pytest.approx(1.959964, abs=1e-6)
    assert math.isfinite(standard_normal(0.0))
    assert math.isfinite(standard_normal(1 - 2**-53))
