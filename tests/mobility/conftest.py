import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
CITY = REPOSITORY / "sumo_scenarios" / "city_grid"

# Two vehicles on a straight road; the second departs when all is quiet again.
ROUTES = """<routes>
    <vehicle id="a" depart="5"><route edges="A0A1 A1A2"/></vehicle>
    <vehicle id="b" depart="400"><route edges="A0A1 A1A2"/></vehicle>
</routes>"""


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def make_scenario(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a small scenario and returns its ``.sumocfg``."""

    def make(routes: str = ROUTES, extra: str = "", folder: str = "own", end: str = "") -> Path:
        place = tmp_path / folder
        place.mkdir(parents=True)
        shutil.copy(CITY / "net.net.xml.gz", place)
        (place / "demand.rou.xml").write_text(routes)
        config = place / "run.sumocfg"
        config.write_text(
            '<configuration><input><net-file value="net.net.xml.gz"/>'
            f'<route-files value="demand.rou.xml"/></input>{extra}'
            f"{f'<time><end value={end!r}/></time>' if end else ''}</configuration>"
        )
        return config

    return make
