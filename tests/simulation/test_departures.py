"""A vehicle leaves in mid-download, -training or -upload: by hand, under each rule."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from contacts import Scripted, member, of, play, slow
from test_exact_edits import from_scratch
from worlds import METHODS, Ran, at, executor_of, record, simulate

from testbed.editing import fsosa
from testbed.errors import EditError
from testbed.ledger import LedgerRow
from testbed.mobility import Step
from testbed.simulation.world import Outcome, World

START = "1 +a +b +c +d"
# Of vehicle b with seed 0, at 1 Mb/s without latency: 212,632 bytes down take 1.701056 s from
# second 10, 425,024 bytes up 3.400192 s from second 12.979642.
LEAVES = {"download": 11.0, "train": 11.8, "fisher": 12.5, "upload": 14.0}
BEGINS = {"download": 10.0, "train": 11.701056, "fisher": 11.874752, "upload": 12.979642}
ENDS = {"download": 11.701056, "train": 11.874752, "fisher": 12.979642, "upload": 16.379834}
BYTES = {"download": 125_000, "train": 0, "fisher": 0, "upload": 127_544}
WHOLE = {"download": 212_632, "train": 0, "fisher": 0, "upload": 425_024}
PHASES = list(LEAVES)
EACH = pytest.mark.parametrize("phase", PHASES)


def before(phase: str) -> list[str]:
    return PHASES[: PHASES.index(phase)]


def moved(rows: Iterable[LedgerRow]) -> list[int]:
    return [row.bytes_down + row.bytes_up for row in rows]


def rows_of(outcome: Outcome) -> list[LedgerRow]:
    """Return the rows without the name of the run, which names the source too."""
    return [replace(row, run="") for row in outcome.ledger]


def is_exact(ran: Ran) -> bool:
    """Whether the final model is the one built from scratch, bit for bit."""
    rebuilt = from_scratch(ran).fused.model
    return all(torch.equal(rebuilt[name], value) for name, value in ran.outcome.model.items())


def test_the_figures_these_tests_are_reckoned_from() -> None:
    ran = play(slow(), START)
    rows = of(ran, "b")
    assert [row.phase for row in rows] == PHASES
    assert [row.t_start for row in rows] == list(BEGINS.values())
    assert [row.t_end for row in rows] == list(ENDS.values())
    assert moved(rows) == list(WHOLE.values())
    assert ran.outcome.contact.asked == ran.outcome.contact.delivered == 3


@EACH
def test_finish_lets_it_finish(phase: str) -> None:
    stayed, left = play(slow(), START), play(slow(), f"{START}; {LEAVES[phase]} -b; 90 +x")
    assert of(left, "b") == of(stayed, "b")
    assert left.outcome.metrics[1].triggered  # its leave is an edit like any other
    assert left.outcome.contact.wasted_bytes == 0


@EACH
@pytest.mark.parametrize("rule", ["abort", "resume_on_return"])
def test_abort_ends_the_job_at_once(phase: str, rule: str) -> None:
    leave = LEAVES[phase]
    ran = play(slow(work={"departure": rule}), f"{START}; {leave} -b; 90 +x")
    rows = of(ran, "b")
    assert [row.phase for row in rows] == [*before(phase), phase]
    assert [row.result for row in rows] == ["ok"] * len(before(phase)) + ["lost"]
    assert (rows[-1].t_start, rows[-1].t_end) == (BEGINS[phase], leave)
    assert moved(rows) == [WHOLE[one] for one in before(phase)] + [BYTES[phase]]
    # It is a departure: a replacement begins when the other two have delivered.
    others = [r for r in ran.outcome.ledger if r.request == 0 and r.phase == "upload"]
    replaced = of(ran, "a")
    assert replaced[0].t_start == sorted(r.t_end for r in others if r.vehicle not in "ab")[-1]
    start, leaving, _ = ran.outcome.metrics
    assert (start.population, start.subset) == (3, 3)
    # Its own leave changes nothing, and is counted and answered.
    assert (leaving.kind, leaving.vehicle, leaving.triggered) == ("leave", "b", False)
    assert ran.outcome.counts["ignored"] == ran.outcome.counts["lost"] == 1
    figures = ran.outcome.contact
    assert (figures.asked, figures.delivered) == (5, 4)  # x is sampled too
    assert figures.wasted_s == pytest.approx(leave - 10, abs=1e-9)
    assert figures.wasted_bytes == sum(moved(rows))
    assert any("left before they had delivered" in line for line in ran.outcome.warnings)
    assert is_exact(ran)


RETURN = "{leave} -b; 30 -a; 60 +b"


@EACH
def test_resume_on_return_goes_on_where_it_was(phase: str) -> None:
    leave = LEAVES[phase]
    ran = play(
        slow(work={"departure": "resume_on_return"}), f"{START}; {RETURN.format(leave=leave)}"
    )
    first, rest = of(ran, "b"), of(ran, "b", request=3)
    assert first[-1].result == "lost"
    assert [row.phase for row in rest] == PHASES[PHASES.index(phase) :]
    assert {row.result for row in rest} == {"ok"}
    assert (rest[0].t_start, rest[0].t_end) == pytest.approx((60, 60 + ENDS[phase] - leave))
    # Both visits together are one job, to the bit.
    assert moved(first)[-1] + moved(rest)[0] == WHOLE[phase]
    assert sum(moved(first)) + sum(moved(rest)) == sum(WHOLE.values())
    assert (ran.outcome.contact.wasted_s, ran.outcome.contact.wasted_bytes) == (0, 0)
    assert ran.outcome.contact.asked - ran.outcome.contact.delivered == 1
    assert is_exact(ran)


@EACH
def test_after_an_abort_it_begins_anew(phase: str) -> None:
    text = f"{START}; {RETURN.format(leave=LEAVES[phase])}"
    ran = play(slow(work={"departure": "abort"}), text)
    again = of(ran, "b", request=3)
    assert [row.phase for row in again] == PHASES
    assert moved(again) == list(WHOLE.values())
    assert ran.outcome.contact.wasted_bytes == sum(moved(of(ran, "b")))


@EACH
def test_a_silent_vehicle_is_waited_for_until_its_departure_is_filed(phase: str) -> None:
    leave = LEAVES[phase]
    wanted = slow(work={"departure": "withdraw_by_proxy", "proxy_s": 20})
    ran = play(wanted, f"{START}; {leave} -b; 90 +x")
    rows = of(ran, "b")
    # What it did after its going is not heard of, and not billed.
    assert (rows[-1].phase, rows[-1].result, rows[-1].t_end) == (phase, "lost", leave)
    assert moved(rows)[-1] == BYTES[phase]
    assert of(ran, "a")[0].t_start == leave + 20
    filed = ran.outcome.metrics[1]
    assert (filed.vehicle, filed.kind, filed.t, filed.triggered) == ("b", "leave", leave + 20, 0)
    assert ran.outcome.counts["ignored"] == 1
    assert is_exact(ran)


@EACH
def test_a_silent_vehicle_that_is_back_in_time_goes_on(phase: str) -> None:
    leave = LEAVES[phase]
    wanted = slow(work={"departure": "withdraw_by_proxy", "proxy_s": 20})
    ran = play(wanted, f"{START}; {leave} -b; 30 +b; 90 +x")
    pieces = [row for row in of(ran, "b") if row.phase == phase]
    assert [(row.t_start, row.t_end) for row in pieces] == [
        (BEGINS[phase], leave),
        (30, pytest.approx(30 + ENDS[phase] - leave)),
    ]
    assert {row.result for row in of(ran, "b")} == {"ok"}
    assert sum(moved(of(ran, "b"))) == sum(WHOLE.values())
    # It never left.
    assert [(m.kind, m.vehicle) for m in ran.outcome.metrics] == [("init", ""), ("join", "x")]
    assert ran.outcome.contact.delivered == ran.outcome.contact.asked
    assert is_exact(ran)


def test_one_who_is_asked_in_its_silence_is_heard_on_its_return() -> None:
    """A joins last and is sampled by the retraining that its own join triggers."""
    wanted = slow(work={"departure": "withdraw_by_proxy", "proxy_s": 50})
    ran = play(wanted, f"{START}; 40 -a -b -c -d; 41 +x; 70 +a +b +c +d", "", "retrain")
    rows = [row for row in ran.outcome.ledger if row.request == 1 and row.phase == "download"]
    assert {row.t_start for row in rows} == {41.0, 70.0}
    assert {row.result for row in ran.outcome.ledger} == {"ok"}
    assert [m.kind for m in ran.outcome.metrics] == ["init", "join"]


def test_a_filing_after_the_last_step_of_the_traffic_is_heard() -> None:
    wanted = slow(work={"departure": "withdraw_by_proxy", "proxy_s": 20})
    ran = play(wanted, f"{START}; 50 -b")
    assert [(m.kind, m.t) for m in ran.outcome.metrics] == [("init", 10.0), ("leave", 70.0)]


def test_one_who_left_before_it_is_asked_is_lost_at_once() -> None:
    """Retraining samples b, whose leave waits in the queue while x's join is answered."""
    wanted = slow(work={"departure": "abort"}, editing={"rho": 0.99})
    ran = play(wanted, f"{START}; 40 +x; 41 +y -b", "", "retrain", seed=1)
    lost = [row for row in ran.outcome.ledger if row.result == "lost"]
    assert lost
    for row in lost:
        assert row.vehicle == "b"
        assert row.t_start >= 40


def test_the_last_bit_and_the_leave_in_one_microsecond_are_a_loss() -> None:
    """Membership changes come before the work that ends at the same time."""
    ran = play(slow(work={"departure": "abort"}), f"{START}; {ENDS['upload']} -b; 90 +x")
    last = of(ran, "b")[-1]
    assert (last.phase, last.result, last.bytes_up) == ("upload", "lost", WHOLE["upload"])


@pytest.mark.parametrize("method", METHODS)
def test_if_all_leave_with_work_in_hand_one_line_says_so(method: str) -> None:
    wanted = slow(work={"departure": "abort"})
    with pytest.raises(EditError) as told:
        play(wanted, f"{START}; 11 -a -b -c -d; 30 +x", "", method)
    assert str(told.value) == (
        "no client delivered a usable contribution; 4 sampled clients left before they delivered"
    )


@pytest.mark.parametrize("handling", ["sequential", "batch"])
@pytest.mark.parametrize("rule", ["abort", "resume_on_return", "withdraw_by_proxy"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(2))
def test_edits_stay_exact_in_lively_traffic(
    tmp_path: Path, method: str, rule: str, handling: str, seed: int
) -> None:
    text = (
        f"{START}; 12 -a; 13.5 +e; 15 +a; 16 -c; 18 +f -b; 21 +c; 22 -e; 24 +b +e; 26 -f;"
        " 31 +g; 33 -a; 35 -g; 36 +h; 44 +a; 50 +g; 55 -d; 90 +d"
    )
    wanted = slow(
        work={"departure": rule, "proxy_s": 2.5}, editing={"handling": handling, "requests": 30}
    )
    ran = play(wanted, text, "", method, seed)
    state = ran.world.coordinator.state
    assert state is not None
    assert set(state.subset) <= set(state.population)
    # Whoever was lost has a departure or a return waiting; at rest all agree.
    assert {c.vehicle for c in state.population} <= {c.vehicle for c in ran.world.fleet.clients}
    assert ran.outcome.counts["lost"] == ran.outcome.contact.asked - ran.outcome.contact.delivered
    if isinstance(state, fsosa.State):
        assert is_exact(ran)
    # From a file it is the same run again.
    replayed = simulate(wanted, record(tmp_path / "t.csv", at(text)), method, seed).outcome
    assert replayed.metrics == ran.outcome.metrics
    assert replayed.contact == ran.outcome.contact
    assert rows_of(replayed) == rows_of(ran.outcome)


@pytest.mark.parametrize("rule", ["abort", "withdraw_by_proxy"])
@pytest.mark.parametrize("stride", [1.0, 0.1])
def test_many_small_steps_are_the_same_run(rule: str, stride: float) -> None:
    text = "1 +a +b +c +d; 12 -b; 14 +b -c; 40 +e; 41 -d"
    wanted = slow(work={"departure": rule, "proxy_s": 3.25}, editing={"requests": 4})
    task, executor = executor_of(wanted)

    class Stepwise(Scripted):
        def steps(self) -> Iterator[Step]:
            known = {step.time: step for step in super().steps()}
            for number in range(round(90 / stride)):
                now = round(number * stride, 6)
                yield known.get(now, Step(now, ()))

    outcome = World(wanted, "fsosa", task, executor, Stepwise(at(text))).run()
    expected = play(wanted, text).outcome
    assert outcome.ledger == expected.ledger
    assert outcome.metrics == expected.metrics
    assert all(a.request < b.request for a, b in pairwise(outcome.metrics))


def test_a_prepared_contribution_is_only_sent() -> None:
    ran = play(slow(work={"when": "prepared"}), f"{START}; 40 -b")
    rows = of(ran, "b")
    assert [row.phase for row in rows] == ["upload"]
    assert (rows[0].t_start, rows[0].t_end) == (10.0, 13.400192)
    asked = play(slow(), f"{START}; 40 -b")
    assert all(
        torch.equal(value, asked.outcome.model[name]) for name, value in ran.outcome.model.items()
    )
    assert is_exact(ran)


def test_fine_tuning_cannot_be_prepared() -> None:
    ran = play(slow(work={"when": "prepared"}), f"{START}; 40 +x", "", "finetune")
    assert [row.phase for row in of(ran, "x", 1)] == ["download", "train", "upload"]
    assert {row.phase for row in of(ran, member(ran))} == {"upload"}
