"""Joins and leaves at even intervals."""

from itertools import pairwise

import pytest

from testbed.config.schema import MobilityConfig, ScheduleConfig
from testbed.errors import ConfigError
from testbed.mobility import open_source
from testbed.mobility.schedule import plan
from testbed.streams import Streams


def config(**schedule: object) -> MobilityConfig:
    return MobilityConfig.model_validate({"source": "schedule", "schedule": schedule})


def counted(kind: str, seed: int = 0, vehicles: int = 5, changes: int = 40) -> list[int]:
    """Return the population after each change, checking every event on the way."""
    schedule = ScheduleConfig(vehicles=vehicles, changes=changes, kind=kind, interval=10)
    trace = plan(schedule, Streams(seed))
    present: set[str] = set()
    sizes = []
    for number, event in enumerate(trace.events):
        if event.kind == "join":
            assert event.vehicle not in present
            present.add(event.vehicle)
        else:
            present.remove(event.vehicle)
        assert event.time == 10.0 * max(0, number + 1 - vehicles)
        if number + 1 > vehicles:
            sizes.append(len(present))
    assert trace.end == 10.0 * (changes + 1)
    return sizes


def test_joins_and_leaves_go_one_way() -> None:
    assert counted("joins", changes=4) == [6, 7, 8, 9]
    assert counted("leaves", changes=4) == [4, 3, 2, 1]


@pytest.mark.parametrize("seed", range(5))
def test_a_mixed_schedule_goes_both_ways_and_never_to_nobody(seed: int) -> None:
    sizes = counted("mixed", seed, vehicles=1, changes=200)
    steps = {after - before for before, after in pairwise(sizes)}
    assert steps == {-1, 1}
    assert min(sizes) >= 1
    assert counted("mixed", seed, vehicles=1, changes=200) == sizes


def test_who_leaves_is_drawn_by_the_seed() -> None:
    def first_to_go(seed: int) -> str:
        schedule = ScheduleConfig(vehicles=20, changes=1, kind="leaves")
        return plan(schedule, Streams(seed)).events[-1].vehicle

    assert len({first_to_go(seed) for seed in range(200)}) == 20


def test_the_source_replays_the_plan_and_says_what_it_was_made_from() -> None:
    with open_source(config(vehicles=3, changes=2, interval=7.5), 4) as source:
        steps = [(step.time, [event.kind for event in step.events]) for step in source.steps()]
        assert steps == [(0.0, ["join"] * 3), (7.5, ["join"]), (15.0, ["join"])]
        assert source.warmup == 0.0
        told = source.provenance
    assert (told["source"], told["seed"], told["membership"]) == ("schedule", 4, "network")
    assert (told["schedule_vehicles"], told["schedule_kind"], told["end"]) == (3, "joins", 22.5)


def test_an_early_end_cuts_the_changes_off() -> None:
    early = config(vehicles=3, changes=9, interval=10).model_copy(update={"end": 30.0})
    with open_source(early, 0) as source:
        assert [step.time for step in source.steps()] == [0.0, 10.0, 20.0]


def test_a_warmup_that_leaves_nothing_is_refused() -> None:
    late = config(vehicles=3, changes=2, interval=10).model_copy(update={"warmup": 30.0})
    with pytest.raises(ConfigError, match="warm-up of 30 s leaves nothing of the 30 s"):
        open_source(late, 0)


def test_leaves_that_leave_nobody_are_refused() -> None:
    with pytest.raises(ValueError, match="5 leaves of 5 vehicles leave nobody"):
        ScheduleConfig(vehicles=5, changes=5, kind="leaves")
