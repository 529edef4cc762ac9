"""What a request costs, what all cost together, and that nothing is lost between them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.ledger import COLUMNS, TARIFFS, Bytes, LedgerRow, per_request, totals

PHASES = ("broadcast", "download", "train", "fisher", "upload", "fuse", "solve", "evaluate")
ROWS = st.builds(
    LedgerRow,
    **{
        **dict.fromkeys(COLUMNS, st.none()),
        "request": st.integers(0, 6),
        "phase": st.sampled_from(PHASES),
        # Whole seconds add up exactly.
        "t_start": st.integers(0, 1000).map(float),
        "t_end": st.integers(1000, 2000).map(float),
        "bytes_down": st.integers(0, 10**12),
        "bytes_up": st.integers(0, 10**12),
        "subset": st.integers(0, 30),
        "triggered": st.booleans(),
    },
)


def test_overlapping_steps_count_once(row):
    rows = [
        row(vehicle="a", phase="train", t_start=10.0, t_end=14.0),
        row(vehicle="b", phase="train", t_start=10.0, t_end=17.0),
        row(phase="solve", t_start=17.0, t_end=18.5),
    ]
    (cost,) = per_request(rows)
    assert cost.seconds == 8.5  # not 4 + 7 + 1.5


def test_time_between_requests_is_not_billed(row):
    rows = [
        row(request=1, t_start=0.0, t_end=2.0),
        row(request=2, t_start=100.0, t_end=103.0),
    ]
    assert totals(rows).seconds == 5.0


def test_requests_come_in_order_whatever_the_order_of_rows(row):
    costs = per_request([row(request=k, bytes_up=k) for k in (3, 1, 2, 3)])
    assert [cost.request for cost in costs] == [1, 2, 3]
    assert [cost.bytes["incremental"].up for cost in costs] == [1, 2, 6]


def test_the_initial_training_is_shown_but_not_added(row, bill):
    rows = bill(0, uploads=10, model=1000) + bill(1, uploads=1, model=1000)
    assert [cost.request for cost in per_request(rows)] == [0, 1]
    only_request = bill(1, uploads=1, model=1000)
    assert totals(rows) == totals(only_request)
    assert totals(rows).requests == 1


def test_a_batch_is_billed_once_on_its_last_request(bill):
    # Requests 1 to 3 are one batch, 4 stands alone.
    rows = bill(3, uploads=2, model=1000) + bill(4, uploads=0, model=1000)
    total = totals(rows)
    assert (total.requests, total.triggered) == (2, 1)
    assert total.bytes["broadcast"] == Bytes(down=2_000 + 40_000, up=4_000)
    assert total.bytes["paper"] == Bytes(down=40_000, up=20_000)


def test_one_triggered_row_makes_a_triggered_request(row):
    rows = [row(triggered=False), row(triggered=True), row(request=2, triggered=False)]
    assert [cost.triggered for cost in per_request(rows)] == [True, False]
    assert totals(rows).triggered == 1


def test_an_empty_ledger_costs_nothing():
    total = totals([])
    assert (total.requests, total.triggered, total.seconds) == (0, 0, 0)
    assert total.bytes == dict.fromkeys(TARIFFS, Bytes())


def test_mean_edit_cost_under_the_paper_tariff(bill):
    """Two of three requests trigger: 3 broadcasts of 20 and 2 subsets of 20 kB."""
    rows = [r for k in (1, 2, 3) for r in bill(k, uploads=int(k != 2), model=1000)]
    assert totals(rows).bytes["paper"].total == 3 * 20_000 + 2 * 20_000


@given(st.lists(ROWS, max_size=40))
def test_totals_are_the_sum_of_the_requests(rows):
    answered = [cost for cost in per_request(rows) if cost.request]
    costs = answered or per_request(rows)
    total = totals(rows)
    assert total.requests == len({r.request for r in rows} - {0}) == len(answered)
    assert total.triggered == sum(cost.triggered for cost in answered)
    assert total.seconds == sum(cost.seconds for cost in costs)
    for name in TARIFFS:
        assert total.bytes[name].down == sum(cost.bytes[name].down for cost in costs)
        assert total.bytes[name].up == sum(cost.bytes[name].up for cost in costs)


@given(st.lists(ROWS, max_size=40))
def test_the_broadcast_tariff_is_the_plain_sum_of_the_rows(rows):
    billed = [r for r in rows if r.request] or rows
    total = totals(rows).bytes["broadcast"]
    assert total == Bytes(sum(r.bytes_down for r in billed), sum(r.bytes_up for r in billed))


@given(st.lists(ROWS, max_size=40), st.randoms())
def test_the_order_of_rows_never_matters_for_time_and_needed_bytes(rows, random):
    shuffled = list(rows)
    random.shuffle(shuffled)
    before, after = totals(rows), totals(shuffled)
    assert before.seconds == after.seconds
    for name in ("incremental", "broadcast"):
        assert before.bytes[name] == after.bytes[name]


@pytest.mark.parametrize("tariff", TARIFFS)
def test_every_request_is_priced_by_every_tariff(bill, tariff):
    (cost,) = per_request(bill(1, uploads=1, model=1000))
    assert tariff in cost.bytes


def test_a_run_without_requests_costs_its_training(row):
    rows = [
        row(request=0, kind="init", vehicle="a", phase="train", t_start=10.0, t_end=14.0),
        row(request=0, kind="init", vehicle="a", phase="upload", t_start=14.0, t_end=15.0,
            bytes_up=700, triggered=True),
    ]  # fmt: skip
    found = totals(rows)
    assert (found.requests, found.triggered, found.seconds) == (0, 0, 5.0)
    assert found.bytes["incremental"].total == 700
