"""Vehicles that stop, jump, crash, wait in vain or were there before: who counts as what."""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from traffic import CITY, record

from testbed.config.schema import MobilityConfig, RsuConfig
from testbed.errors import ConfigError, ScenarioError
from testbed.mobility import open_source
from testbed.mobility.live import SumoSource
from testbed.mobility.sumo import program

Make = Callable[..., Path]
BOTH = pytest.mark.parametrize("backend", ["libsumo", "traci"])
ROUTE = '<route edges="A0A1 A1A2 A2A3"/>'
# Six that want to depart at one place and one moment, where there is not room for all.
CROWD = "".join(f'<vehicle id="{n}" depart="0" departPos="0">{ROUTE}</vehicle>' for n in range(6))


def option(name: str, value: object) -> str:
    return f'<processing><{name} value="{value}"/></processing>'


def follow(
    scenario: Path | str, **keys: Any
) -> tuple[list[tuple[str, str, float]], Mapping[str, int]]:
    """Return who joined and left when, and the counts; these must add up at every moment."""
    with open_source(MobilityConfig(scenario=str(scenario), warmup=0, **keys), 1) as source:
        events = []
        for step in source.steps():
            counts = source.counts()
            assert counts["departed"] == counts["running"] + counts["arrived"]
            events += [(event.kind, event.vehicle, event.time) for event in step.events]
        return events, source.counts()


@BOTH
def test_a_vehicle_that_parks_stays_a_member(make_scenario: Make, backend: str) -> None:
    stop = '<stop lane="A1A2_0" endPos="100" duration="60" parking="true"/>'
    path = make_scenario(
        routes=f'<routes><vehicle id="p" depart="0">{ROUTE}{stop}</vehicle></routes>'
    )
    for keys in ({}, {"membership": "rsu", "rsu": RsuConfig(x=0, y=200, radius=700)}):
        events, _ = follow(path, backend=backend, **keys)
        assert [(kind, vehicle) for kind, vehicle, _ in events] == [("join", "p"), ("leave", "p")]
        assert events[1][2] - events[0][2] > 100


# Two vehicles close both lanes of the first road for a long time; SUMO lifts the third over.
CLOSED = "".join(
    f'<vehicle id="s{n}" depart="0" departLane="{n}"><route edges="A0A1 A1A2"/>'
    f'<stop lane="A0A1_{n}" endPos="150" duration="300"/></vehicle>'
    for n in (0, 1)
)


@BOTH
@pytest.mark.parametrize("edges", ["A0A1 A1A2 A2A3", "A0A1"])
def test_a_vehicle_that_jumps_makes_one_visit(
    make_scenario: Make, backend: str, edges: str
) -> None:
    jumper = f'<vehicle id="t" depart="2"><route edges="{edges}"/></vehicle>'
    path = make_scenario(
        routes=f"<routes>{CLOSED}{jumper}</routes>", extra=option("time-to-teleport", 20)
    )
    events, counts = follow(path, backend=backend)
    mine = [kind for kind, vehicle, _ in events if vehicle == "t"]
    assert mine == ["join", "leave"]
    assert counts["teleports"] >= 1
    assert (counts["departed"], counts["arrived"], counts["running"]) == (3, 3, 0)


@BOTH
def test_vehicles_that_crash_and_are_removed_leave(make_scenario: Make, backend: str) -> None:
    bad = '<vType id="bad" decel="0.3" emergencyDecel="0.3" tau="0.01"/>'
    crash = (
        '<vehicle id="b" type="bad" depart="40" departPos="60" departSpeed="max" departLane="0" '
        'insertionChecks="none"><route edges="A0A1 A1A2"/></vehicle>'
    )
    path = make_scenario(
        routes=f"<routes>{bad}{CLOSED}{crash}</routes>", extra=option("collision.action", "remove")
    )
    events, counts = follow(path, backend=backend)
    gone = next(time for kind, vehicle, time in events if (kind, vehicle) == ("leave", "b"))
    assert gone < 60
    assert counts["colliding"] >= 2
    assert (counts["departed"], counts["arrived"]) == (3, 3)


@BOTH
def test_a_vehicle_that_is_given_up_is_dropped_and_never_a_member(
    make_scenario: Make, backend: str
) -> None:
    path = make_scenario(routes=f"<routes>{CROWD}</routes>", extra=option("max-depart-delay", 3))
    events, counts = follow(path, backend=backend)
    assert counts["loaded"] == 6
    assert counts["dropped"] == 2
    assert counts["departed"] == sum(kind == "join" for kind, _, _ in events) == 4
    assert counts["pending"] == 0


@BOTH
def test_flows_and_persons_do_not_confuse_the_counts(make_scenario: Make, backend: str) -> None:
    flow = f'<flow id="f" begin="0" end="50" period="10">{ROUTE}</flow>'
    person = '<person id="q" depart="0"><walk edges="A0A1"/></person>'
    events, counts = follow(
        make_scenario(routes=f"<routes>{flow}{person}</routes>"), backend=backend
    )
    assert (counts["loaded"], counts["arrived"], counts["dropped"]) == (5, 5, 0)
    assert len(events) == 10


@BOTH
def test_a_flow_that_goes_on_hides_no_vehicle_that_is_given_up(
    make_scenario: Make, backend: str
) -> None:
    flow = f'<flow id="f" begin="50" end="500" period="10">{ROUTE}</flow>'
    path = make_scenario(
        routes=f"<routes>{CROWD}{flow}</routes>", extra=option("max-depart-delay", 3)
    )
    _, counts = follow(path, backend=backend, end=20)
    assert (counts["departed"], counts["dropped"], counts["pending"]) == (4, 2, 0)


@BOTH
def test_vehicles_of_a_saved_state_are_members_from_the_start(
    make_scenario: Make, backend: str
) -> None:
    vehicles = "".join(
        f'<vehicle id="{name}" depart="{depart}">{ROUTE}</vehicle>'
        for name, depart in (("old", 0), ("new", 30))
    )
    path = make_scenario(routes=f"<routes>{vehicles}</routes>")
    state = path.with_name("state.xml")
    saving = ["--save-state.times", "20", "--save-state.files", str(state), "-e", "21"]
    subprocess.run([program("sumo"), "-c", str(path), *saving], check=True, capture_output=True)
    loading = '<load-state value="state.xml"/></input>'
    path.write_text(path.read_text().replace("</input>", loading))
    events, counts = follow(path, backend=backend)
    assert events[:2] == [("join", "old", 20.0), ("join", "new", 30.0)]
    assert {vehicle for kind, vehicle, _ in events if kind == "leave"} == {"old", "new"}
    assert (counts["departed"], counts["arrived"], counts["dropped"]) == (2, 2, 0)


@pytest.mark.parametrize("city", ["bologna_acosta", "bologna_pasubio"])
def test_the_counts_of_a_real_city_add_up(bologna: Path, city: str) -> None:
    events, counts = follow(bologna / city / "run.sumocfg", end=200)
    assert counts["departed"] == sum(kind == "join" for kind, _, _ in events) > 200
    assert counts["loaded"] > counts["departed"] + counts["pending"]
    assert counts["dropped"] == 0


def test_scale_multiplies_the_traffic_of_a_real_city(bologna: Path) -> None:
    keys: dict[str, Any] = {
        "scenario": str(bologna / "bologna_pasubio" / "run.sumocfg"),
        "end": 150,
    }

    def departed(**scale: float) -> tuple[int, object]:
        with open_source(MobilityConfig(warmup=0, **keys, **scale), 1) as source:
            assert sum(len(step.events) for step in source.steps()) > 0
            return source.counts()["departed"], source.provenance["scale"]

    (half, said), (whole, nothing) = departed(scale=0.5), departed()
    assert (said, nothing) == (0.5, None)
    assert 0.4 < half / whole < 0.6
    assert departed(scale=1.0)[0] == whole


@BOTH
def test_scale_is_exact_on_few_vehicles(make_scenario: Make, backend: str) -> None:
    events, counts = follow(make_scenario(), scale=3.0, backend=backend)
    assert (counts["departed"], counts["arrived"]) == (6, 6)
    assert len({vehicle for _, vehicle, _ in events}) == 6


def test_density_and_scale_are_each_refused_where_the_other_belongs(make_scenario: Make) -> None:
    with pytest.raises(
        ConfigError, match=r"'city_grid' is generated; set mobility.density"
    ) as one:
        open_source(MobilityConfig(scale=2.0), 1)
    own = MobilityConfig(scenario=str(make_scenario()), density=2.0)
    with pytest.raises(ConfigError, match=r"leave it out and set mobility.scale") as other:
        open_source(own, 1)
    assert "\n" not in str(one.value) + str(other.value)
    assert len(record(MobilityConfig(end=10, warmup=0))) == 5


def test_a_vehicle_that_was_missed_is_noticed() -> None:
    with open_source(MobilityConfig(end=60, warmup=0), 1) as source:
        assert isinstance(source, SumoSource)
        steps = source.steps()
        next(steps)
        # Removed behind the source's back: in the lists at once, and no more after a step.
        source._link._api.vehicle.remove("v0")
        source._link._api.simulation.clearPending()
        list(steps)
        with pytest.raises(ScenarioError, match=r"departed and .* arrived but SUMO has .* on the"):
            source.counts()


def test_the_committed_city_loses_nobody() -> None:
    _, counts = follow(CITY, end=300)
    assert (counts["departed"], counts["dropped"], counts["pending"]) == (150, 0, 0)
