"""Rows with sensible defaults, so that a test names only what it is about."""

from typing import Any

import pytest

from testbed.ledger import COORDINATOR, EVERYONE, LedgerRow

DEFAULTS: dict[str, Any] = {
    "run": "fsosa-0a1b2c3d",
    "seed": 0,
    "method": "fsosa",
    "rho": 0.5,
    "density": None,
    "request": 1,
    "kind": "leave",
    "vehicle": COORDINATOR,
    "phase": "solve",
    "round": 0,
    "t_start": 0.0,
    "t_end": 0.0,
    "compute_s_measured": None,
    "compute_s_billed": 0.0,
    "network_s": 0.0,
    "bytes_down": 0,
    "bytes_up": 0,
    "byte_basis": "serialised",
    "population": 20,
    "subset": 10,
    "reused": False,
    "triggered": False,
    "result": "ok",
}


def make_row(**values: Any) -> LedgerRow:
    return LedgerRow(**{**DEFAULTS, **values})


def make_request(
    request: int, *, uploads: int, model: int, population: int = 20, subset: int = 10
) -> list[LedgerRow]:
    """Bill one request: `uploads` clients work, then everyone gets the model.

    An upload carries the weights and a Fisher as large as the model.
    """
    common = {
        "request": request, "population": population, "subset": subset, "triggered": uploads > 0,
    }  # fmt: skip
    rows = [
        make_row(
            **common,
            vehicle=f"veh{number}",
            phase=phase,
            bytes_down=model if phase == "download" else 0,
            bytes_up=2 * model if phase == "upload" else 0,
        )
        for number in range(uploads)
        for phase in ("download", "train", "fisher", "upload")
    ]
    sent = make_row(**common, vehicle=EVERYONE, phase="broadcast", bytes_down=population * model)
    return [*rows, sent]


@pytest.fixture(scope="session")
def row():
    return make_row


@pytest.fixture(scope="session")
def bill():
    return make_request
