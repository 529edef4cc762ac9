from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from testbed.cli.scenario import app
from testbed.errors import ConfigError, ScenarioError

Make = Callable[..., Path]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.setenv("COLUMNS", "120")

    def invoke(*arguments: str) -> str:
        result = CliRunner().invoke(app, list(arguments))
        if isinstance(result.exception, ConfigError | ScenarioError):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.output

    return invoke


def test_list_names_the_city(run: Callable[..., str]) -> None:
    output = run("list")
    assert "city_grid" in output
    assert "2 s" in output
    assert "(800, 800), 500 m" in output


def test_build_writes_where_it_is_told(run: Callable[..., str], tmp_path: Path) -> None:
    path = Path(run("build", "city_grid", "--density", "20", "--out", str(tmp_path)).strip())
    assert path == tmp_path / "city_grid-20.0.rou.xml.gz"
    assert path.is_file()
    cached = Path(run("build", "city_grid", "--density", "20").strip())
    assert cached.read_bytes() == path.read_bytes()


def test_inspect_says_what_the_traffic_offers(run: Callable[..., str]) -> None:
    output = run("inspect", "city_grid", "--end", "300", "--warmup", "120", "--requests", "5")
    rows = {
        cells[0].strip(): cells[1].strip()
        for line in output.splitlines()
        if line.startswith("│") and len(cells := line.strip("│").split("│")) == 2
    }
    assert rows["departed"] == "150"
    assert rows["joins / minute"] == "30.0"
    assert rows["members at the start"] == "60"
    assert rows["5 requests"].startswith("in ")


def test_inspect_counts_participants_only(run: Callable[..., str]) -> None:
    output = run(
        *("inspect", "city_grid", "--end", "120", "--warmup", "60"),
        *("--participation", "0.2", "--membership", "rsu", "--backend", "traci"),
    )
    assert "vehicles that take part" in output
    assert "20 %" in output
    assert "at 60 s" in output
    # No empty heading: the first line of the frame is followed by a row with words.
    lines = output.splitlines()
    assert "simulated" in lines[next(n for n, line in enumerate(lines) if "┌" in line) + 1]
    assert "not reached" in output


def test_a_density_beyond_the_bounds_is_refused(tmp_path: Path) -> None:
    from testbed.config import load

    for density in ("nan", "inf", "1e-6"):
        result = CliRunner().invoke(app, ["build", "city_grid", "--density", density])
        assert result.exit_code != 0
    with pytest.raises(ConfigError, match=r"mobility.density: .* at least 0.001"):
        load(None, ["mobility.density=1e-6"])


def test_inspect_refuses_traffic_that_is_over_too_soon(
    run: Callable[..., str], make_scenario: Make
) -> None:
    path = make_scenario(routes="<routes/>")
    with pytest.raises(ScenarioError, match=r"the traffic is over at 0 s"):
        run("inspect", str(path))
    with pytest.raises(ConfigError, match=r"mobility.rsu: x and y must be given together"):
        run("inspect", str(path), "--x", "3")
    with pytest.raises(ScenarioError, match="did you mean 'city_grid'"):
        run("inspect", "citygrid")
