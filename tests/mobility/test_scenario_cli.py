from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from testbed.cli.scenario import app
from testbed.errors import ConfigError, ScenarioError, TestbedError, TraceError

Make = Callable[..., Path]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.setenv("COLUMNS", "120")

    def invoke(*arguments: str) -> str:
        result = CliRunner().invoke(app, list(arguments))
        if isinstance(result.exception, TestbedError):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.output

    return invoke


def table(output: str) -> dict[str, str]:
    """Return the rows of the table that was printed."""
    return {
        cells[0].strip(): cells[1].strip()
        for line in output.splitlines()
        if line.startswith("│") and len(cells := line.strip("│").split("│")) == 2
    }


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
    rows = table(output)
    assert rows["departed"] == "150"
    assert rows["joins / minute"] == "30.0"
    assert rows["members at the start, M0"] == "60"
    assert rows["re-joins"] == "0"
    assert rows["5 requests"].startswith("in ")


def test_inspect_counts_participants_only(run: Callable[..., str]) -> None:
    output = run(
        *("inspect", "city_grid", "--end", "120", "--warmup", "60"),
        *("--participation", "0.2", "--membership", "rsu", "--backend", "traci"),
    )
    assert table(output)["vehicles that take part"].endswith("(20 %)")
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


# Four members from 0; 8 and 2 are allowed, 9 and 1 are not.  "a" leaves and comes back.
TRACE = (
    '# end: 130\n# membership: "rsu"\n# warmup: 10\ntime,vehicle,kind\n'
    + "".join(f"0,{name},join\n" for name in "abcd")
    + "20,a,leave\n30,a,join\n"
    + "".join(f"40,{name},join\n" for name in "efgh")
    + "70,i,join\n82,i,leave\n"
)


def test_inspect_reads_a_trace(run: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(TRACE)
    rows = table(run("inspect", str(path), "--requests", "3"))
    assert rows == {
        "simulated": "0 to 130 s, from a trace",
        "events": "12",
        "events in trace": "12",
        "vehicles that take part": "9 (100 %)",
        "re-joins": "1",
        "warm-up ends": "at 10 s",
        "joins / minute": "3.0",
        "leaves / minute": "1.0",
        "members at the start, M0": "4",
        "members min / mean / max": "3 / 7.0 / 9",
        "M0/2 <= M <= 2 M0": "violated by 1 changes, 10 % of the time",
        "stay p10 / p50 / p90": "13 / 16 / 19 s",
        "3 requests": "in 30 s",
    }


def test_what_inspect_proposes_is_what_a_run_begins_with(
    run: Callable[..., str], tmp_path: Path
) -> None:
    options = ("--end", "700", "--seed", "5")
    output = run("inspect", "city_grid", *options, "--clients", "12")
    line = next(line for line in output.splitlines() if line.startswith("12 clients"))
    settings = [word for word in line.split() if word.startswith("mobility.")]
    assert [setting.split("=")[0] for setting in settings] == [
        "mobility.participation",
        "mobility.warmup",
    ]
    share, warmup = (setting.split("=")[1] for setting in settings)
    again = run("inspect", "city_grid", *options, "--participation", share, "--warmup", warmup)
    assert table(again)["members at the start, M0"] == "12"
    assert "never so many members" in run(
        "inspect", "city_grid", "--end", "60", "--warmup", "9", "--clients", "500"
    )


@pytest.mark.parametrize(("name", "magic"), [("f.png", b"\x89PNG"), ("f.pdf", b"%PDF")])
def test_inspect_draws_a_figure(
    run: Callable[..., str], tmp_path: Path, name: str, magic: bytes
) -> None:
    (tmp_path / "t.csv").write_text(TRACE)
    output = run("inspect", str(tmp_path / "t.csv"), "--figure", str(tmp_path / name))
    assert (tmp_path / name).read_bytes().startswith(magic)
    assert f"figure: {tmp_path / name}" in output


def test_inspect_refuses_what_makes_no_sense(run: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(TRACE)
    with pytest.raises(ConfigError, match=r"--figure f.gif: call it \*.png or \*.pdf"):
        run("inspect", str(path), "--figure", "f.gif")
    with pytest.raises(ConfigError, match=r"--step-length is for live traffic .* is a trace"):
        run("inspect", str(path), "--step-length", "1")
    with pytest.raises(ConfigError, match=r"--set 'seeds=1': only keys of mobility\.\*"):
        run("inspect", str(path), "--set", "seeds=1")
    with pytest.raises(ConfigError, match=r"f.xml is neither .* testbed scenario import f.xml"):
        run("inspect", "f.xml")
    with pytest.raises(ConfigError, match=r"the warm-up ends at 500 s but .*t.csv at 130 s"):
        run("inspect", str(path), "--warmup", "500")
    with pytest.raises(ScenarioError, match=r"over at 130 s, before the warm-up ends at 130 s"):
        run("inspect", str(path), "--warmup", "130")
    path.write_text(TRACE.replace("20,a", "40,a"))
    with pytest.raises(TraceError, match=r"t.csv line 10: time 30 comes after 40"):
        run("inspect", str(path))


def test_generate_writes_a_trace_that_inspect_reads(
    run: Callable[..., str], tmp_path: Path
) -> None:
    for name in ("g.csv", "g.parquet"):
        told = run(
            *("generate", "--out", str(tmp_path / name), "--per-minute", "60", "--end", "900"),
            *("--mean-stay", "20", "--stay", "log-normal", "--sigma", "0.5", "--seed", "3"),
        )
        assert "in 900 s, 20 members expected" in told
    rows = [table(run("inspect", str(tmp_path / name))) for name in ("g.csv", "g.parquet")]
    assert rows[0] == rows[1]
    mean = float(rows[0]["members min / mean / max"].split(" / ")[1])
    # The variance of the mean over T seconds is at most lambda E[stay^2] / T.
    assert abs(mean - 20) < 4 * (20**2 * 1.285 / 900) ** 0.5
    with pytest.raises(ConfigError, match=r"mobility.arrivals.mean_stay: 0.0 must be at least"):
        run("generate", "--out", str(tmp_path / "h.csv"), "--mean-stay", "0")
    assert not (tmp_path / "h.csv").exists()
