import dataclasses

import pytest

from testbed.ledger import COLUMNS, Ledger


def test_columns_are_those_of_the_design_in_order():
    assert COLUMNS[:6] == ("run", "seed", "method", "rho", "density", "request")
    assert COLUMNS[-2:] == ("triggered", "result")
    assert len(COLUMNS) == len(set(COLUMNS)) == 23


def test_rows_are_frozen(row):
    with pytest.raises(dataclasses.FrozenInstanceError):
        row().bytes_up = 1


def test_ledger_keeps_rows_in_order_of_addition(row):
    ledger = Ledger([row(request=2)])
    ledger.add(row(request=1))
    assert [r.request for r in ledger.rows] == [2, 1]


def test_ledger_hands_out_what_cannot_be_appended_to(row):
    ledger = Ledger()
    before = ledger.rows
    ledger.add(row())
    assert before == ()
    assert isinstance(ledger.rows, tuple)


def test_ledger_does_not_share_the_list_it_was_made_from(row):
    source = [row()]
    ledger = Ledger(source)
    source.clear()
    assert len(ledger.rows) == 1
