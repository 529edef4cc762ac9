"""Every second and byte of a run, one row per billed step."""

from testbed.ledger.rows import COLUMNS, COORDINATOR, EVERYONE, Ledger, LedgerRow, Result
from testbed.ledger.tariffs import TARIFFS, Bytes
from testbed.ledger.totals import RequestCost, Totals, per_request, totals

__all__ = [
    "COLUMNS",
    "COORDINATOR",
    "EVERYONE",
    "TARIFFS",
    "Bytes",
    "Ledger",
    "LedgerRow",
    "RequestCost",
    "Result",
    "Totals",
    "per_request",
    "totals",
]
