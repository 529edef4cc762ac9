from collections.abc import Mapping
from pathlib import Path

import pytest
from worlds import METHODS, TRAFFIC, Ran, at, experiment, record, simulate


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine changes for which there is room, and one newcomer for whom there is not."""
    return record(tmp_path_factory.mktemp("trace") / "trace.csv", at(TRAFFIC), end=70)


@pytest.fixture(scope="session")
def ran(trace: Path) -> Mapping[str, Ran]:
    """Every method on the same traffic, with K-FAC; read-only."""
    return {method: simulate(experiment(), trace, method) for method in METHODS}


@pytest.fixture(scope="session")
def batched(trace: Path) -> Mapping[str, Ran]:
    """The same over a slow link, requests that wait being answered together; read-only."""
    slow = experiment(
        editing={"requests": 8, "handling": "batch"},
        network={"latency_ms": 3000},
        fisher={"kind": "diagonal"},
    )
    return {method: simulate(slow, trace, method) for method in METHODS}
