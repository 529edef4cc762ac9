import dataclasses

import pytest

from testbed.ledger import COLUMNS


def test_columns_are_those_of_the_design_in_order():
    assert COLUMNS[:6] == ("run", "seed", "method", "rho", "density", "request")
    assert COLUMNS[-2:] == ("triggered", "result")
    assert len(COLUMNS) == len(set(COLUMNS)) == 23


def test_rows_are_frozen(row):
    with pytest.raises(dataclasses.FrozenInstanceError):
        row().bytes_up = 1
