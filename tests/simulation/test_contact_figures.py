"""Figures about waiting and contact, by hand."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import METHODS, run

from testbed.simulation.contact import Spread
from testbed.simulation.metric import Metric
from testbed.simulation.tally import Tally


def test_percentiles_by_hand() -> None:
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(3, 1.2, 2.0, pytest.approx(2.8))
    assert Spread.of([]) == Spread(0, None, None, None)


def metric(request: int, t: float, t_start: float, **values: object) -> Metric:
    """Return a row about a request that came at `t` and was begun at `t_start`."""
    defaults = dict.fromkeys(Metric.__dataclass_fields__, 0) | {
        "kind": "join", "t_end": t_start + 1, "batch": 1, "population": 4, "converged": True,
    }  # fmt: skip
    return Metric(**{**defaults, "request": request, "t": t, "t_start": t_start, **values})


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=20))
def test_the_queue_is_what_has_come_and_was_not_begun(pairs: list[tuple[int, int]]) -> None:
    arrivals = sorted(arrival for arrival, _ in pairs)
    starts: list[int] = []
    for arrival, (_, delay) in zip(arrivals, pairs, strict=True):
        starts.append(max(arrival, (starts or [0])[-1]) + delay % 5)
    tally = Tally(initial=4, size=2)
    tally.add([metric(0, 0, 0)])
    waiting = []
    for number, (arrival, start) in enumerate(zip(arrivals, starts, strict=True)):
        before = tally.waiting_sum
        tally.add([metric(number + 1, arrival, start)])
        so_far = zip(arrivals[: number + 1], starts, strict=False)
        waiting.append(sum(begun > arrival for _, begun in so_far))
        assert tally.waiting_sum - before == waiting[-1]
    assert tally.waiting_most == max(waiting, default=0)
    assert tally.requests == len(pairs)


def test_a_tally_counts_what_is_out_of_the_ordinary() -> None:
    tally = Tally(initial=4, size=2)
    tally.add([metric(0, 9, 9)])
    strays = [metric(1, 10, 10, population=9), metric(2, 11, 11, population=1, subset=1)]
    tally.add(strays)
    tally.add([metric(3, 12, 12, population=1, kind="leave", t_end=14.0)])
    tally.add([metric(number, 20, 21, batch=2, converged=False, residual=r)
               for number, r in ((4, 1e-3), (5, 1e-4))])  # fmt: skip
    assert (tally.first.request, tally.last.request, tally.requests) == (0, 5, 5)
    assert (tally.outside, tally.strayed) == (3, strays[0])
    # Without a subset nothing can have shrunk.
    assert tally.shrunk == 1
    assert (tally.loose, tally.residual) == (2, 1e-3)
    assert list(tally.forget) == [2.0]
    assert list(tally.include) == [1.0, 1.0, 2.0, 2.0]
    assert (tally.batch_most, round(tally.batches)) == (2, 4)


GROUPS = "1 +a +b +c +d; 20 +e; 21 -a; 22 +f; 40 +g +h"
SLOW = {"latency_ms": 3000}


def test_batches_and_queue_by_hand(tmp_path: Path) -> None:
    """Handling takes a little over 9 s: 20 to 29, then two that waited, then two at once."""
    outcome = run(
        tmp_path, GROUPS, "retrain", clients={"initial": 4}, network=SLOW,
        editing={"requests": 5, "handling": "batch"},
    ).outcome  # fmt: skip
    figures, metrics = outcome.contact, outcome.metrics
    assert (figures.queue_max, figures.queue_mean) == (2, pytest.approx(3 / 5))
    assert (figures.batch_max, figures.batch_mean) == (2, pytest.approx(5 / 3))
    (forgotten,) = [m for m in metrics if m.kind == "leave"]
    wait = pytest.approx(forgotten.t_end - 21, abs=1e-6)
    assert figures.forget == Spread(1, wait, wait, wait)
    included = sorted(m.t_end - m.t for m in metrics if m.kind == "join")
    assert figures.include.count == len(included) == 4
    # The median of four lies between the middle two; e's took 9 s and f's 7 s longer.
    assert figures.include.p50 == pytest.approx((included[1] + included[2]) / 2)


def test_sequential_handling_lets_the_queue_grow(tmp_path: Path) -> None:
    outcome = run(
        tmp_path, GROUPS, "retrain", clients={"initial": 4}, network=SLOW,
        editing={"requests": 5},
    ).outcome  # fmt: skip
    # 20 at once; 21 and 22 wait till 29 and 38; 40 finds 22's at work, and so does the other.
    assert outcome.contact.queue_max == 2
    assert outcome.contact.queue_mean == pytest.approx((0 + 1 + 2 + 1 + 2) / 5)
    assert (outcome.contact.batch_max, outcome.contact.batch_mean) == (1, 1.0)
    assert all(before.t_end <= after.t_start for before, after in pairwise(outcome.metrics))


@pytest.mark.parametrize("method", METHODS)
def test_nobody_leaves_early_where_all_may_finish(tmp_path: Path, method: str) -> None:
    outcome = run(tmp_path, GROUPS, method, clients={"initial": 4}).outcome
    figures = outcome.contact
    asked = sum(row.phase == "download" for row in outcome.ledger)
    assert figures.asked == figures.delivered == asked > 0
    assert (figures.wasted_s, figures.wasted_bytes, outcome.counts["lost"]) == (0.0, 0, 0)
