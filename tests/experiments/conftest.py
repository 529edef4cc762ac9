from pathlib import Path

import pytest
from specs import finish, small


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of three methods on live traffic; read-only."""
    out = tmp_path_factory.mktemp("live") / "small"
    finish(small(), out)
    return out


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Where a test that replays keeps its trace."""
    return tmp_path / "minute.csv"
