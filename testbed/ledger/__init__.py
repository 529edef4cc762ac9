"""Every second and byte of a run, one row per billed step."""

from testbed.ledger.rows import COLUMNS, COORDINATOR, EVERYONE, LedgerRow, Result
from testbed.ledger.tariffs import TARIFFS, Bytes
from testbed.ledger.totals import RequestCost, Totals, add_up, in_order, per_request, totals

__all__ = [
    "COLUMNS",
    "COORDINATOR",
    "EVERYONE",
    "TARIFFS",
    "Bytes",
    "LedgerRow",
    "RequestCost",
    "Result",
    "Totals",
    "add_up",
    "in_order",
    "per_request",
    "totals",
]
