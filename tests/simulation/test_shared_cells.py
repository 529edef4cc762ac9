"""Transfers where distance and company matter."""

from fractions import Fraction
from typing import Any

import pytest
from contacts import of, play, slow
from test_departures import is_exact

from testbed.config import Experiment
from testbed.simulation.clock import micros

START = "1 +a +b +c +d"
RSU = {"membership": "rsu"}
NEAR = "1 a@x:50 b@x:50 c@x:50 d@x:50"


def shared(**sections: Any) -> Experiment:
    """Return the world of `slow` under a roadside unit whose rate no distance changes."""
    return slow(
        mobility={**RSU, **sections.pop("mobility", {})},
        network={"preset": "fixed", "rate_mbps": 1, **sections.pop("network", {})},
        **sections,
    )


def test_ten_uploads_share_a_cell() -> None:
    everybody = " ".join(f"+v{n}" for n in range(11))
    places = " ".join(f"v{n}@x:50" for n in range(11))
    wanted = shared(
        work={"when": "prepared"}, clients={"initial": 11, "pool": 11}, editing={"rho": 0.95}
    )
    ran = play(wanted, f"1 {everybody}", f"1 {places}")
    uploads = [row for row in ran.outcome.ledger if row.phase == "upload"]
    assert len(uploads) == 10
    size = ran.world.coordinator.costs.contribution_bytes(0)
    # 1 Mb/s is 8 us a byte, of ten at once 80 us.
    assert {(micros(row.t_start), micros(row.t_end)) for row in uploads} == {
        (10_000_000, 10_000_000 + 80 * size)
    }


def test_slots_let_so_many_send_at_once() -> None:
    wanted = shared(work={"when": "prepared"}, network={"sharing": "slots", "slots": 2})
    ran = play(wanted, START, NEAR)
    size = ran.world.coordinator.costs.contribution_bytes(0)
    ends = sorted(micros(r.t_end) for r in ran.outcome.ledger if r.phase == "upload")
    assert ends == [10_000_000 + 8 * size * turn for turn in (1, 1, 2)]


def test_two_areas_do_not_share() -> None:
    wanted = shared(work={"when": "prepared"})
    ran = play(wanted, START, "1 a@x:50 b@x:50 c@y:50 d@y:50")
    uploads = {
        row.vehicle: micros(row.t_end) for row in ran.outcome.ledger if row.phase == "upload"
    }
    size = ran.world.coordinator.costs.contribution_bytes(0)
    (alone,) = {"a", "b", "c", "d"} - uploads.keys()
    pairs = {"a": "b", "b": "a", "c": "d", "d": "c"}
    for vehicle, end in uploads.items():
        turns = 1 if pairs[vehicle] == alone else 2
        assert end == 10_000_000 + 8 * size * turns


def test_a_handover_goes_on_in_the_other_cell() -> None:
    """Three share x until second 12; then b has y for itself."""
    wanted = shared(work={"when": "prepared"})
    ran = play(wanted, START, f"{NEAR}; 12 b@y:50")
    (row,) = of(ran, "b")
    bits = 8 * row.bytes_up
    sent = Fraction(2_000_000, 3)  # of 1 Mb/s shared by three in 2 s
    assert micros(row.t_end) - 12_000_000 == pytest.approx(float(bits - sent), abs=2)
    assert row.result == "ok"
    # The two who stay have half of it each from there on.
    others = [r for r in ran.outcome.ledger if r.phase == "upload" and r.vehicle != "b"]
    assert [micros(r.t_end) - 12_000_000 for r in others] == [
        pytest.approx(float(2 * (bits - sent)), abs=2)
    ] * 2


def test_a_rate_that_falls_with_the_distance() -> None:
    wanted = slow(
        mobility=RSU, work={"when": "prepared"}, clients={"initial": 2},
        network={"preset": "nr-ul-20", "fading": False}, editing={"rho": 0.5},
    )  # fmt: skip
    ran = play(wanted, "1 +a +b", "1 a@x:50 b@x:50; 10.02 a@x:450 b@x:450")
    air = ran.world.air
    (row,) = [row for row in ran.outcome.ledger if row.phase == "upload"]
    far = air.rate(row.vehicle, "up")
    assert 0 < far < 40e6
    left = 8 * row.bytes_up - 40e6 * 0.02
    assert row.t_end == pytest.approx(10.02 + left / far, abs=2e-6)


ITSG5 = {"preset": "itsg5", "rate_mbps": 1, "fading": False}
FAR = "a@x:9000 b@x:9000 c@x:9000 d@x:9000"


@pytest.mark.parametrize("rule", ["finish", "abort", "resume_on_return", "withdraw_by_proxy"])
def test_a_vehicle_without_any_rate_blocks_nobody(rule: str) -> None:
    """It leaves, or the traffic ends; either way its job does."""
    wanted = slow(mobility=RSU, network=ITSG5, work={"departure": rule, "proxy_s": 5})
    near = " ".join(f"{v}@x:50" for v in "acd")
    leaves = play(wanted, f"{START}; 40 -b; 60 +x", f"1 {near} b@x:9000; 60 x@x:50")
    stays = play(wanted, f"{START}; 60 +x", f"1 {near} b@x:9000; 60 x@x:50; 80 x@x:50")
    for ran, end in ((leaves, 40.0), (stays, 80.0)):
        (row,) = of(ran, "b")
        assert (row.phase, row.result, row.bytes_down) == ("download", "lost", 0)
        assert row.t_end == end
        assert ran.outcome.metrics[0].population == 3
        assert ran.outcome.metrics[-1].vehicle == "x"
        assert is_exact(ran)
    assert leaves.outcome.counts["ignored"] == 1


def test_a_stalled_transfer_goes_on_when_the_vehicle_comes_nearer() -> None:
    wanted = slow(mobility=RSU, network=ITSG5, work={"when": "prepared"})
    ran = play(wanted, START, f"1 {FAR}; 25 a@x:50 b@x:50 c@x:50 d@x:50; 26")
    uploads = [row for row in ran.outcome.ledger if row.phase == "upload"]
    assert {row.result for row in uploads} == {"ok"}
    rate = ran.world.air.rate("b", "up")
    bits = 8 * uploads[0].bytes_up
    assert [row.t_end for row in uploads] == [pytest.approx(25 + 3 * bits / rate, abs=2e-6)] * 3


def test_a_broadcast_takes_as_long_as_the_worst_vehicle_that_hears_it() -> None:
    wanted = slow(mobility=RSU, work={"when": "prepared"},
                  network={"preset": "nr-ul-20", "fading": False})  # fmt: skip
    places = "1 a@x:50 b@x:400 c@y:50 d@x:9000"
    ran = play(wanted, f"{START}; 60 -a", f"{places}; 90")
    air, size = ran.world.air, ran.world.coordinator.costs.model_bytes
    assert air.rate("d", "down") == 0
    (sent,) = [r for r in ran.outcome.ledger if (r.phase, r.request) == ("broadcast", 0)]
    assert sent.t_end - sent.t_start == pytest.approx(8 * size / air.rate("b", "down"), abs=2e-6)


def test_a_new_visit_has_another_shadow_and_a_run_repeats() -> None:
    wanted = slow(mobility=RSU, work={"when": "prepared"}, network={"preset": "nr-ul-20"})
    text, where = f"{START}; 30 -a; 40 +a; 50 -b; 60 +b", "1 a@x:450 b@x:450 c@x:450 d@x:450"
    first, second = (play(wanted, text, f"{where}; 95 c@x:450") for _ in range(2))
    assert first.outcome.ledger == second.outcome.ledger
    air = first.world.air
    assert air._visits["a"] == 2
    later = air.rate("a", "up")
    air._visits["a"] = 1
    assert air.rate("a", "up") != later
