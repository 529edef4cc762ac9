"""Members of several areas, their distances, and what decides who is one, in real traffic."""

from math import hypot
from pathlib import Path

import pytest
from traffic import record, replayed, steps, written

from testbed.config import load
from testbed.config.schema import AreaConfig, MobilityConfig, RsuConfig
from testbed.errors import ConfigError
from testbed.mobility import check_order, open_source

# On two junctions of the grid city, 400 m apart.
WEST = AreaConfig(name="west", x=600, y=800, radius=300)
EAST = AreaConfig(name="east", x=1000, y=800, radius=300)
MULTI = MobilityConfig(end=300, warmup=0, membership="multi_rsu", rsus=(WEST, EAST))
ONE = MobilityConfig(end=300, warmup=0, membership="rsu")


def test_distances_are_those_of_the_positions_that_sumo_writes(tmp_path: Path) -> None:
    positions = written(tmp_path, end=300)
    found = 0
    for step in steps(ONE):
        for vehicle, (rsu, metres) in step.distances.items():
            x, y = positions[step.time, vehicle]
            assert rsu == "rsu"
            assert metres == pytest.approx(hypot(x - 800, y - 800), abs=0.0051)
            assert metres <= 550.01
            assert round(metres, 2) == metres
            found += 1
    assert found > 5000


@pytest.mark.parametrize("config", [ONE, MULTI, MULTI.model_copy(update={"domain": "separate"})])
def test_distances_hold_the_members_and_nobody_else(config: MobilityConfig) -> None:
    members: set[str] = set()
    for step in steps(config):
        for event in step.events:
            (members.add if event.kind == "join" else members.remove)(event.vehicle)
        assert step.distances.keys() == members
    assert members


def test_network_membership_knows_no_distances() -> None:
    assert not any(step.distances for step in steps(MobilityConfig(end=60, warmup=0)))


def test_one_domain_hands_over_without_an_event() -> None:
    handed_over, before = 0, {}
    for step in steps(MULTI):
        assert all(event.rsu == "" for event in step.events)
        named = {event.vehicle for event in step.events}
        now = {vehicle: place.rsu for vehicle, place in step.distances.items()}
        for vehicle in now.keys() & before.keys() - named:
            handed_over += now[vehicle] != before[vehicle]
        before = now
    assert handed_over > 10


def test_separate_areas_split_the_members_of_one_domain() -> None:
    apart = MULTI.model_copy(update={"domain": "separate"})
    one = steps(MULTI)
    west, east = (steps(apart.model_copy(update={"follow": name})) for name in ("west", "east"))
    assert west == steps(apart)
    for whole, left, right in zip(one, west, east, strict=True):
        assert {**left.distances, **right.distances} == whole.distances
        assert left.distances.keys().isdisjoint(right.distances)
    # A hand-over is a leave here and a join there, at the same time.
    changes = [[event for step in part for event in step.events] for part in (west, east)]
    assert {event.rsu for event in changes[0]} == {"west"}
    leaves = {(e.time, e.vehicle) for e in changes[0] if e.kind == "leave"}
    joins = {(e.time, e.vehicle) for e in changes[1] if e.kind == "join"}
    assert len(leaves & joins) > 5


def test_one_of_several_areas_is_the_same_as_one_alone() -> None:
    alone = MULTI.model_copy(update={"rsus": (WEST,)})
    single = ONE.model_copy(update={"rsu": RsuConfig(x=600, y=800, radius=300)})
    assert record(alone) == record(single)


def test_several_areas_are_the_same_over_a_socket_and_replayed(tmp_path: Path) -> None:
    apart = MULTI.model_copy(update={"domain": "separate", "end": 150})
    for number, config in enumerate((MULTI.model_copy(update={"end": 150}), apart)):
        live, again = replayed(config, tmp_path / f"{number}.parquet")
        assert steps(config.model_copy(update={"backend": "traci"})) == live
        assert again == [step for step in live if step.events or step.distances]
        check_order([event for step in live for event in step.events])


def test_a_minimum_stay_and_a_grace_take_visits_away() -> None:
    def joins(**keys: float) -> int:
        rsu = RsuConfig(radius=405, hysteresis=0, **keys)
        events = record(ONE.model_copy(update={"rsu": rsu, "end": 900}))
        check_order(events)
        return sum(event.kind == "join" for event in events)

    plain = joins()
    assert joins(minimum_stay=20) < plain
    assert joins(grace=60) < plain


def test_a_minimum_stay_delays_the_join_by_itself() -> None:
    def joined(stay: float) -> dict[str, float]:
        rsu = RsuConfig(minimum_stay=stay)
        events = record(ONE.model_copy(update={"rsu": rsu}))
        return {event.vehicle: event.time for event in reversed(events) if event.kind == "join"}

    at_once, later = joined(0), joined(30)
    assert len(later) > 20
    assert all(time - at_once[vehicle] >= 30 for vehicle, time in later.items())
    assert sum(time - at_once[vehicle] == 30 for vehicle, time in later.items()) > 20


def test_what_areas_were_followed_is_remembered() -> None:
    apart = MULTI.model_copy(update={"domain": "separate", "end": 10, "follow": "east"})
    with open_source(apart, 1) as source:
        facts = source.provenance
    assert facts["rsus"] == "west (600.0, 800.0) 300.0; east (1000.0, 800.0) 300.0"
    assert (facts["domain"], facts["follow"]) == ("separate", "east")
    assert (facts["rsu_hysteresis"], facts["rsu_minimum_stay"], facts["rsu_grace"]) == (0.1, 0, 0)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([], "'multi_rsu' needs mobility.rsus, a list of name, x, y and radius"),
        (["mobility.rsus=[{name: a, x: 1, y: 2}]"], "radius"),
        (["mobility.rsus=[{name: a b, x: 1, y: 2, radius: 3}]"], "name"),
        (["mobility.rsus=[{name: a, x: 1, y: 2, radius: 0}]"], "radius"),
        (
            ["mobility.rsus=[{name: a, x: 1, y: 2, radius: 3},{name: a, x: 1, y: 9, radius: 3}]"],
            "rsus must have different names",
        ),
        (
            ["mobility.rsus=[{name: a, x: 1, y: 2, radius: 3}]", "mobility.follow=a"],
            "follow needs domain 'separate'",
        ),
        (
            [
                "mobility.rsus=[{name: a, x: 1, y: 2, radius: 3}]",
                "mobility.domain=separate",
                "mobility.follow=b",
            ],
            "follow is 'b'; rsus has a",
        ),
    ],
)
def test_areas_that_do_not_fit_are_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load(None, ["mobility.membership=multi_rsu", *overrides])
    assert "\n" not in str(caught.value)
