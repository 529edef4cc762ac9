"""Tariffs against bytes computed by hand: M = 20 clients, P = 10, Fisher = model."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.ledger import TARIFFS, Bytes, totals

MODEL = 1_000  # bytes


def price(rows):
    return {name: tariff(rows) for name, tariff in TARIFFS.items()}


def test_there_are_three_tariffs():
    assert tuple(TARIFFS) == ("incremental", "broadcast", "paper")


def test_bytes_add_up_by_direction():
    assert Bytes(1, 20) + Bytes(300, 4000) == Bytes(301, 4020)
    assert Bytes(301, 4020).total == 4321
    assert Bytes().total == 0


def test_retraining_uploads_the_whole_subset(bill):
    # Down: 10 clients get W0, 20 get the model.  Up: 10 x (weights + Fisher).
    prices = price(bill(1, uploads=10, model=MODEL))
    assert prices["incremental"] == Bytes(down=30_000, up=20_000)
    assert prices["broadcast"] == Bytes(down=30_000, up=20_000)
    # 2 M model bytes: the download of W0 is not charged.
    assert prices["paper"] == Bytes(down=20_000, up=20_000)
    assert prices["paper"].total == 2 * 20 * MODEL


def test_a_triggered_edit_needs_one_new_client(bill):
    prices = price(bill(1, uploads=1, model=MODEL))
    assert prices["incremental"] == Bytes(down=21_000, up=2_000)
    assert prices["broadcast"] == Bytes(down=21_000, up=2_000)


def test_the_paper_charges_a_triggered_edit_like_a_recomputation(bill):
    edit, retraining = bill(1, uploads=1, model=MODEL), bill(1, uploads=10, model=MODEL)
    assert TARIFFS["paper"](edit) == TARIFFS["paper"](retraining) == Bytes(20_000, 20_000)


def test_a_request_that_changes_nothing_costs_a_broadcast_or_nothing(bill):
    prices = price(bill(1, uploads=0, model=MODEL))
    assert prices["incremental"] == Bytes()
    assert prices["broadcast"] == Bytes(down=20_000)
    assert prices["paper"] == Bytes(down=20_000)


def test_no_rows_cost_nothing():
    assert price([]) == dict.fromkeys(TARIFFS, Bytes())


def test_a_method_without_subset_pays_its_own_uploads(bill):
    prices = price(bill(1, uploads=3, model=MODEL, subset=0))
    assert prices["paper"] == Bytes(down=20_000, up=6_000)


def test_reused_contributions_are_billed_all_the_same(row):
    fresh = [row(phase="upload", bytes_up=7, triggered=True)]
    reused = [row(phase="upload", bytes_up=7, triggered=True, reused=True)]
    assert price(fresh) == price(reused)


def test_the_papers_saving_of_a_quarter(bill):
    """Half of the requests trigger (P/M = 1/2): 1.5 M against 2 M model bytes."""
    requests = range(1, 41)
    edits = [r for k in requests for r in bill(k, uploads=k % 2, model=MODEL)]
    retraining = [r for k in requests for r in bill(k, uploads=10, model=MODEL)]
    own, reference = totals(edits).bytes["paper"].total, totals(retraining).bytes["paper"].total
    assert own == 40 * 30 * MODEL
    assert reference == 40 * 40 * MODEL
    assert 100 * (1 - Fraction(own, reference)) == 25


def test_charging_only_what_is_needed_saves_far_more_than_published(bill):
    """The reason for the third tariff: 23 of 100 kB every other request, not 25 %."""
    edits = bill(1, uploads=1, model=MODEL) + bill(2, uploads=0, model=MODEL)
    retraining = bill(1, uploads=10, model=MODEL) + bill(2, uploads=10, model=MODEL)
    own, reference = (totals(rows).bytes["incremental"].total for rows in (edits, retraining))
    assert (own, reference) == (23_000, 100_000)


@pytest.mark.parametrize("uploads", [1, 2, 5, 10])
def test_the_paper_tariff_charges_the_subset_whatever_was_replaced(bill, uploads):
    assert TARIFFS["paper"](bill(1, uploads=uploads, model=MODEL)).up == 20_000


def test_what_was_lost_on_the_way_costs_but_stands_for_no_upload(bill, row):
    rows = bill(1, uploads=2, model=MODEL)
    lost = row(phase="upload", bytes_up=700, result="lost", triggered=True)
    assert TARIFFS["paper"]([*rows, lost]) == TARIFFS["paper"](rows)
    assert TARIFFS["paper"]([lost]) == Bytes()
    for name in ("incremental", "broadcast"):
        assert TARIFFS[name]([*rows, lost]).up == TARIFFS[name](rows).up + 700


def test_the_rest_of_an_upload_stands_for_a_whole_one(bill, row):
    """Begun on an earlier visit; the subset's other uploads say how large one is."""
    rest = row(phase="upload", bytes_up=300, triggered=True)
    assert TARIFFS["paper"]([*bill(1, uploads=2, model=MODEL), rest]).up == 20_000


@given(
    uploads=st.integers(0, 12),
    population=st.integers(1, 40),
    subset=st.integers(0, 12),
    model=st.integers(1, 10**8),
)
def test_broadcast_is_never_cheaper_than_incremental(bill, uploads, population, subset, model):
    prices = price(bill(1, uploads=uploads, model=model, population=population, subset=subset))
    assert prices["broadcast"].total >= prices["incremental"].total
    assert prices["paper"].down == population * model
    assert prices["paper"].up == 2 * model * ((subset or uploads) if uploads else 0)
