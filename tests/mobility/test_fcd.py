"""Traces made from the FCD output of the real SUMO are those of the live run."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.config.schema import MobilityConfig
from testbed.errors import TraceError
from testbed.mobility import read_trace
from testbed.mobility.fcd import import_fcd
from testbed.mobility.fcd_files import timesteps
from testbed.mobility.membership import NetworkRule
from testbed.mobility.recording import import_file, record
from testbed.mobility.sumo import QUIET, environment, program

SEED, END = 3, 240
MEMBERSHIPS = {
    "network": {},
    "rsu": {"membership": "rsu", "rsu": {"grace": 4, "minimum_stay": 3}},
    "one": {
        "membership": "multi_rsu",
        "rsus": [
            {"name": "west", "x": 500, "y": 800, "radius": 300},
            {"name": "east", "x": 1100, "y": 800, "radius": 300},
        ],
    },
}
MEMBERSHIPS["separate"] = {**MEMBERSHIPS["one"], "domain": "separate", "follow": "east"}
CITY = Path(__file__).resolve().parents[2] / "sumo_scenarios" / "city_grid" / "city_grid.sumocfg"


def drive(config: Path, output: Path, *options: str) -> None:
    """Run the real SUMO with ``--fcd-output``."""
    command = [program("sumo"), "-c", str(config), "--fcd-output", str(output), *QUIET]
    subprocess.run([*command, *options], env=environment(), check=True, capture_output=True)


@pytest.fixture(scope="module")
def fcd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same drive in each of SUMO's formats, all but one with every digit."""
    folder = tmp_path_factory.mktemp("fcd")
    options = ("--seed", str(SEED), "--end", str(END), "--step-length", "1")
    for name in ("f.xml", "f.xml.gz", "f.csv", "f.parquet"):
        drive(CITY, folder / name, *options, "--precision", "6")
    drive(CITY, folder / "short.csv.gz", *options, "--fcd-output.attributes", "id,x,y")
    return folder


def config(**keys: object) -> MobilityConfig:
    return MobilityConfig.model_validate({"warmup": 60, "end": END, **keys})


@pytest.mark.parametrize("rule", MEMBERSHIPS)
def test_every_format_gives_the_trace_of_the_live_run(
    fcd: Path, tmp_path: Path, rule: str
) -> None:
    chosen = config(**MEMBERSHIPS[rule])
    record(chosen, SEED, tmp_path / "live.csv")
    live, header = read_trace(tmp_path / "live.csv")
    assert len(live.events) > 50
    assert bool(live.places) == (rule != "network")
    for name in ("f.xml", "f.xml.gz", "f.csv", "f.parquet"):
        import_file(fcd / name, chosen, tmp_path / "t.csv", "city_grid")
        imported, facts = read_trace(tmp_path / "t.csv")
        assert imported == live
        shared = header.keys() & facts.keys() - {"fingerprint", "source"}
        assert {key: facts[key] for key in shared} == {key: header[key] for key in shared}
        assert {"membership", "begin", "end", "step_length", "warmup"} <= shared


def test_whole_centimetres_are_enough_for_who_is_there(fcd: Path, tmp_path: Path) -> None:
    import_file(fcd / "short.csv.gz", config(), tmp_path / "short.csv")
    import_file(fcd / "f.csv", config(), tmp_path / "long.csv")
    assert read_trace(tmp_path / "short.csv")[0] == read_trace(tmp_path / "long.csv")[0]


def test_half_steps_and_a_vehicle_that_comes_late(
    make_scenario: Callable[..., Path], tmp_path: Path
) -> None:
    scenario = make_scenario()  # a departs at 5 s, b at 400 s, when the road is empty
    drive(scenario, tmp_path / "f.xml", "--step-length", "0.5", "--seed", "1")
    chosen = config(scenario=str(scenario), step_length=0.5, warmup=0, end=1000)
    record(chosen, 1, tmp_path / "live.csv")
    import_file(tmp_path / "f.xml", chosen, tmp_path / "t.csv")
    live, imported = (read_trace(tmp_path / name)[0] for name in ("live.csv", "t.csv"))
    assert [event.time for event in imported.events if event.kind == "join"] == [5, 400]
    assert imported.events == live.events


def test_a_teleport_is_no_departure(make_scenario: Callable[..., Path], tmp_path: Path) -> None:
    """Two vehicles close the road, SUMO lifts the third over."""
    closed = "".join(
        f'<vehicle id="s{lane}" depart="0" departLane="{lane}"><route edges="A0A1 A1A2"/>'
        f'<stop lane="A0A1_{lane}" endPos="150" duration="300"/></vehicle>'
        for lane in (0, 1)
    )
    jumper = '<vehicle id="t" depart="2"><route edges="A0A1 A1A2 A2A3"/></vehicle>'
    scenario = make_scenario(
        routes=f"<routes>{closed}{jumper}</routes>",
        extra='<processing><time-to-teleport value="20"/></processing>',
    )
    drive(scenario, tmp_path / "f.xml", "--seed", "1", "--step-length", "1")
    chosen = config(scenario=str(scenario), end=1000, warmup=0)
    counts = record(chosen, 1, tmp_path / "live.csv")
    import_file(tmp_path / "f.xml", chosen, tmp_path / "t.csv")
    assert counts["teleports"] == 4
    live, imported = (read_trace(tmp_path / name)[0] for name in ("live.csv", "t.csv"))
    assert imported.events == live.events


def test_bologna(bologna: Path, tmp_path: Path) -> None:
    scenario = bologna / "bologna_acosta" / "headless.sumocfg"
    drive(scenario, tmp_path / "f.parquet", "--seed", "1", "--end", "600", "--step-length", "1")
    chosen = config(scenario=str(scenario), end=600)
    record(chosen, 1, tmp_path / "live.csv")
    import_file(tmp_path / "f.parquet", chosen, tmp_path / "t.csv")
    live, imported = (read_trace(tmp_path / name)[0] for name in ("live.csv", "t.csv"))
    assert len(live.events) > 300
    assert imported == live


def test_a_file_is_read_as_it_is_decoded(fcd: Path) -> None:
    """The first timestep is there before the rest is: nothing is read ahead."""
    cut = fcd / "cut.xml"
    cut.write_bytes((fcd / "f.xml").read_bytes()[:-100])
    steps = timesteps(cut)
    assert next(steps).time == 0
    with pytest.raises(TraceError, match=r"cut.xml line \d+: the file is cut off"):
        list(steps)


def test_a_single_timestep(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("timestep_time;vehicle_id;vehicle_x;vehicle_y\n7;a;0;0\n")
    trace, facts = import_fcd(path, NetworkRule(), needs_positions=False)
    assert [(event.time, event.kind) for event in trace.events] == [(7, "join")]
    assert (trace.end, facts["begin"], facts["step_length"]) == (7, 7, 0)
