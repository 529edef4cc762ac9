import math
import os
import stat
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
from traffic import record

from testbed.config.schema import MobilityConfig, RsuConfig
from testbed.errors import ConfigError, ScenarioError
from testbed.mobility import (
    MobilityEvent,
    Trace,
    check_order,
    open_source,
    read_trace,
    write_trace,
)
from testbed.mobility.sumo import QUIET, program

Make = Callable[..., Path]
CITY = Path(__file__).resolve().parents[2] / "sumo_scenarios" / "city_grid"


def tripinfo(folder: Path, *arguments: str) -> tuple[set[tuple[str, float]], ...]:
    """Run SUMO by itself; return its own (vehicle, depart) and (vehicle, arrival) stamps."""
    output = folder / "tripinfo.xml"
    command = [program("sumo"), *arguments, *QUIET, "--tripinfo-output", str(output)]
    subprocess.run(
        [*command, "--tripinfo-output.write-unfinished"], check=True, capture_output=True
    )
    trips = ET.parse(output).getroot().findall("tripinfo")
    departs = {(trip.attrib["id"], float(trip.attrib["depart"])) for trip in trips}
    arrivals = {(trip.attrib["id"], float(trip.attrib["arrival"])) for trip in trips}
    return departs, {(name, time) for name, time in arrivals if time >= 0}


@pytest.mark.parametrize("step_length", [1.0, 0.5])
def test_both_back_ends_agree_with_sumo_itself(tmp_path: Path, step_length: float) -> None:
    config = MobilityConfig(end=400, warmup=0, step_length=step_length)
    events = record(config, seed=11)
    assert record(config.model_copy(update={"backend": "traci"}), seed=11) == events
    departs, arrivals = tripinfo(
        tmp_path,
        *("-c", str(CITY / "city_grid.sumocfg"), "-e", "400"),
        *("--seed", "11", "--step-length", str(step_length)),
    )
    assert {(e.vehicle, e.time) for e in events if e.kind == "join"} == departs
    assert {(e.vehicle, e.time) for e in events if e.kind == "leave"} == arrivals
    assert len(departs) == 200
    assert len(arrivals) > 50


@pytest.mark.parametrize("step_length", [1.0, 0.5])
def test_both_back_ends_agree_on_coverage(step_length: float) -> None:
    config = MobilityConfig(end=400, warmup=0, membership="rsu", step_length=step_length)
    events = record(config)
    assert record(config.model_copy(update={"backend": "traci"})) == events
    assert sum(event.kind == "leave" for event in events) > 20
    check_order(events)


def test_coverage_agrees_with_positions_that_sumo_writes(tmp_path: Path) -> None:
    config = MobilityConfig(end=300, warmup=0, membership="rsu", rsu=RsuConfig(hysteresis=0))
    fcd = tmp_path / "fcd.xml"
    tripinfo(
        tmp_path,
        *("-c", str(CITY / "city_grid.sumocfg"), "-e", "300", "--seed", "1"),
        *("--fcd-output", str(fcd), "--precision", "6"),
    )
    members: set[str] = set()
    expected: list[MobilityEvent] = []
    for step in ET.parse(fcd).getroot():
        time = float(step.attrib["time"])
        inside = {
            vehicle.attrib["id"]
            for vehicle in step
            if math.hypot(float(vehicle.attrib["x"]) - 800, float(vehicle.attrib["y"]) - 800)
            <= 500
        }
        expected += [MobilityEvent(time, name, "leave") for name in sorted(members - inside)]
        expected += [MobilityEvent(time, name, "join") for name in sorted(inside - members)]
        members = inside
    assert record(config) == expected


def test_hysteresis_only_takes_spurious_visits_away() -> None:
    def visits(hysteresis: float) -> int:
        rsu = RsuConfig(hysteresis=hysteresis, radius=405)
        config = MobilityConfig(end=700, warmup=0, membership="rsu", rsu=rsu)
        return sum(event.kind == "join" for event in record(config))

    assert 0 < visits(0.2) < visits(0.0)


def test_the_seed_decides_and_decides_alone() -> None:
    config = MobilityConfig(end=300, warmup=0)
    assert record(config, seed=1) == record(config, seed=1)
    assert record(config, seed=1) != record(config, seed=2)


def test_steps_are_clean_multiples_of_the_step_length() -> None:
    config = MobilityConfig(end=30, warmup=0, step_length=0.1)
    with open_source(config, 1) as source:
        times = [step.time for step in source.steps()]
    assert times == [round(k * 0.1, 6) for k in range(300)]


def test_what_a_source_says_about_itself() -> None:
    config = MobilityConfig(end=240, warmup=60, membership="rsu", rsu=RsuConfig(radius=300))
    with open_source(config, 5) as source:
        assert (source.warmup, source.end) == (60, 240)
        for _ in source.steps():
            pass
        counts, provenance = source.counts(), source.provenance
    assert counts["departed"] == 120
    assert counts["loaded"] >= counts["departed"] >= counts["arrived"] > 0
    assert (counts["teleports"], counts["colliding"], counts["pending"]) == (0, 0, 0)
    assert provenance["scenario"] == "city_grid"
    assert len(str(provenance["fingerprint"])) == 64
    assert {key: provenance[key] for key in ("seed", "density", "step_length", "backend")} == {
        "seed": 5,
        "density": 2.0,
        "step_length": 1.0,
        "backend": "libsumo",
    }
    assert (provenance["rsu_x"], provenance["rsu_radius"]) == (800.0, 300.0)
    assert str(provenance["sumo"])[0].isdigit()


@pytest.mark.parametrize("name", ["run.csv", "run.parquet"])
def test_a_written_run_replays_the_same_events(tmp_path: Path, name: str) -> None:
    with open_source(MobilityConfig(end=300, warmup=100, step_length=0.5), 1) as source:
        live = [step for step in source.steps() if step.events]
        events = tuple(event for step in live for event in step.events)
        write_trace(tmp_path / name, Trace(events, source.end), source.provenance)
    config = MobilityConfig(source="trace", trace=tmp_path / name)
    with open_source(config, seed=99) as replayed:
        assert list(replayed.steps()) == live
        assert (replayed.warmup, replayed.end) == (100, 300)
        assert replayed.provenance["fingerprint"] == source.provenance["fingerprint"]
    assert read_trace(tmp_path / name)[0].events == events


def test_density_makes_more_traffic_and_is_remembered() -> None:
    sparse = record(MobilityConfig(end=120, warmup=0, density=4.0))
    dense = record(MobilityConfig(end=120, warmup=0, density=1.0))
    assert [sum(e.kind == "join" for e in events) for events in (sparse, dense)] == [30, 120]


def test_density_works_without_a_writable_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(record(MobilityConfig(end=20, warmup=0, density=4.0))) == 5


def test_an_own_scenario_runs_to_its_last_vehicle(make_scenario: Make) -> None:
    config = MobilityConfig(scenario=str(make_scenario()))
    with open_source(config, 1) as source:
        assert (source.warmup, source.end) == (0, math.inf)
        assert source.provenance["end"] is None
        assert source.provenance["density"] is None
        steps = list(source.steps())
    events = [event for step in steps for event in step.events]
    assert [(e.vehicle, e.kind) for e in events] == [
        *(("a", "join"), ("a", "leave"), ("b", "join"), ("b", "leave")),
    ]
    assert (events[0].time, events[2].time) == (5, 400)
    assert steps[-1].time == events[-1].time


def test_a_quarter_of_a_known_time_is_warm_up(make_scenario: Make) -> None:
    config = MobilityConfig(scenario=str(make_scenario(end="0:10:00")))
    with open_source(config, 1) as source:
        assert (source.warmup, source.end) == (150, 600)


def test_a_scenario_that_begins_late_keeps_its_own_clock(make_scenario: Make) -> None:
    path = make_scenario(extra='<time><begin value="100"/><end value="500"/></time>')
    for backend in ("libsumo", "traci"):
        with open_source(MobilityConfig(scenario=str(path), backend=backend), 1) as source:
            assert (source.warmup, source.end) == (200, 500)
            steps = list(source.steps())
        joins = [(e.vehicle, e.time) for step in steps for e in step.events if e.kind == "join"]
        assert (steps[0].time, joins) == (100, [("b", 400.0)])


def test_an_empty_scenario_yields_nothing(make_scenario: Make) -> None:
    path = make_scenario(routes="<routes/>")
    for backend in ("libsumo", "traci"):
        with open_source(MobilityConfig(scenario=str(path), backend=backend), 1) as source:
            assert list(source.steps()) == []
            assert source.counts()["departed"] == 0


def test_a_vehicle_that_finds_no_room_is_never_a_member(make_scenario: Make) -> None:
    vehicles = "".join(
        f'<vehicle id="{n}" depart="0" departPos="0"><route edges="A0A1 A1A2"/></vehicle>'
        for n in range(6)
    )
    path = make_scenario(routes=f"<routes>{vehicles}</routes>", end="4")
    with open_source(MobilityConfig(scenario=str(path), warmup=0), 1) as source:
        joins = [event for step in source.steps() for event in step.events]
        counts = source.counts()
    assert counts["loaded"] == 6
    assert counts["departed"] == len(joins) == 6 - counts["pending"]
    assert counts["pending"] > 0


def test_the_scenario_folder_is_only_read(make_scenario: Make) -> None:
    outputs = (
        '<output><tripinfo value="trip.xml"/><output-prefix value="x"/>'
        '<save-state.times value="5"/></output>'
        '<report><log value="log.txt"/><v value="true"/></report>'
    )
    path = make_scenario(extra=outputs, folder="with space ü%")
    detector = '<e1Detector id="d" lane="A0A1_0" pos="5" period="10" file="e1.xml"/>'
    (path.parent / "d.add.xml").write_text(f"<additional>{detector}</additional>")
    additional = '<additional-files value="d.add.xml"/></input>'
    path.write_text(path.read_text().replace("</input>", additional))
    before = {entry.name: entry.read_bytes() for entry in path.parent.iterdir()}
    path.parent.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        for backend in ("libsumo", "traci"):
            config = MobilityConfig(scenario=str(path), backend=backend, end=60, warmup=0)
            assert len(record(config)) == 2
    finally:
        path.parent.chmod(stat.S_IRWXU)
    assert {entry.name: entry.read_bytes() for entry in path.parent.iterdir()} == before


@pytest.mark.parametrize("city", ["bologna_acosta", "bologna_pasubio"])
def test_a_real_city_runs_and_nothing_is_written_into_it(bologna: Path, city: str) -> None:
    before = sorted(os.listdir(bologna / city))
    rsu = RsuConfig(x=900, y=650, radius=300)
    config = MobilityConfig(
        scenario=str(bologna / city / "run.sumocfg"), membership="rsu", rsu=rsu, end=120
    )
    events = record(config)
    assert record(config.model_copy(update={"backend": "traci"})) == events
    assert len(events) > 20
    with open_source(config, 1) as source:
        assert (source.warmup, source.end) == (30, 120)
    assert sorted(os.listdir(bologna / city)) == before


def test_real_detectors_change_no_traffic(bologna: Path, tmp_path: Path) -> None:
    folder = bologna / "bologna_acosta"
    events = record(MobilityConfig(scenario=str(folder / "run.sumocfg"), end=120))
    plain = record(MobilityConfig(scenario=str(folder / "headless.sumocfg"), end=120))
    assert events == plain


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"end": 400, "warmup": 400}, "warm-up of 400 s leaves nothing of the 400 s"),
        ({"end": 500}, "warm-up of 600 s leaves nothing of the 500 s"),
        ({"step_length": 0.0015}, r"step_length is 0.0015 s; SUMO counts in whole milliseconds"),
    ],
)
def test_times_that_do_not_fit_are_refused(keys: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_source(MobilityConfig(**keys), 1)
    assert len(record(MobilityConfig(end=10, warmup=0))) == 5


def test_a_seed_that_sumo_cannot_take_is_refused() -> None:
    with pytest.raises(ConfigError, match="seed 2147483648 is beyond SUMO's largest"):
        open_source(MobilityConfig(), 2**31)
    assert record(MobilityConfig(end=10, warmup=0), seed=2**31 - 1)


def test_what_an_own_scenario_lacks_is_asked_for(make_scenario: Make) -> None:
    path = str(make_scenario())
    with pytest.raises(ConfigError, match=r"set mobility.rsu.x and mobility.rsu.y"):
        open_source(MobilityConfig(scenario=path, membership="rsu"), 1)
    with pytest.raises(ConfigError, match=r"set mobility.rsu.radius"):
        open_source(MobilityConfig(scenario=path, membership="rsu", rsu=RsuConfig(x=1, y=2)), 1)
    with pytest.raises(ConfigError, match=r"density is only for generated scenarios"):
        open_source(MobilityConfig(scenario=path, density=2.0), 1)


@pytest.mark.parametrize(
    "option", ['<random value="true"/>', '<random v="YES"/>', "<random>1</random>"]
)
def test_randomness_that_no_seed_repeats_is_refused(make_scenario: Make, option: str) -> None:
    path = make_scenario(extra=f"<random_number>{option}</random_number>")
    with pytest.raises(ScenarioError, match=r"sets random to .*no two runs would be alike"):
        open_source(MobilityConfig(scenario=str(path)), 1)


def test_random_false_and_a_seed_of_its_own_do_no_harm(make_scenario: Make) -> None:
    extra = '<random_number><random value="false"/><seed value="5"/></random_number>'
    config = MobilityConfig(scenario=str(make_scenario(extra=extra)))
    assert len(record(config)) == 4
