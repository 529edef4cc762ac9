"""Live traffic in reach of a roadside unit: the run of its trace is the same, byte for byte."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from test_departures import rows_of
from worlds import Ran, executor_of, quick

from testbed.config import Experiment
from testbed.execution import open_executor
from testbed.mobility import open_source, write_trace
from testbed.simulation.world import World

RULES = ("finish", "abort", "resume_on_return", "withdraw_by_proxy")
AREAS = {
    "membership": "multi_rsu",
    "rsus": [
        {"name": "west", "x": 700, "y": 800, "radius": 200},
        {"name": "east", "x": 900, "y": 800, "radius": 200},
    ],
}
# By name: what happens to unfinished work, and who is a member.
CASES: dict[str, tuple[str, dict[str, object]]] = {
    **{rule: (rule, {}) for rule in RULES},
    "one domain": ("abort", AREAS),
    "separate domains": ("abort", {**AREAS, "domain": "separate", "follow": "east"}),
}


def busy(rule: str, **mobility: object) -> Experiment:
    """Return a run in which a visit is hardly long enough for a contribution."""
    return quick(
        mobility={
            "membership": "rsu", "rsu": {"radius": 120}, "warmup": 60, **mobility,
        },
        clients={"initial": 4, "pool": 9},
        device={"peak_tflops": 1e-4, "sigma": 0.3},
        network={"bandwidth_mhz": 1, "latency_ms": 10},
        editing={"requests": 9},
        work={"departure": rule, "proxy_s": 7.5},
    )  # fmt: skip


def go(wanted: Experiment) -> Ran:
    task, executor = executor_of(wanted)
    with open_source(wanted.mobility, 0) as source:
        world = World(wanted, "fsosa", task, executor, source)
        return Ran(wanted, world, world.run(), ())


@pytest.fixture(scope="module")
def lives() -> Mapping[str, Ran]:
    return {name: go(busy(rule, **members)) for name, (rule, members) in CASES.items()}


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("case", CASES)
def test_a_replay_is_the_live_run(
    tmp_path: Path, lives: Mapping[str, Ran], case: str, ending: str
) -> None:
    seen = lives[case].outcome
    path = tmp_path / f"t.{ending}"
    write_trace(path, seen.trace, lives[case].world.source.provenance)
    again = go(busy(CASES[case][0], source="trace", trace=path)).outcome
    assert repr(rows_of(again)) == repr(rows_of(seen))
    assert again.metrics == seen.metrics
    assert again.contact == seen.contact
    assert again.trace.events == seen.trace.events
    assert again.trace.places == seen.trace.places != ()


def test_areas_serve_in_one_domain_and_apart(lives: Mapping[str, Ran]) -> None:
    served = {
        name: {sighting.rsu for sighting in lives[name].outcome.trace.places}
        for name in ("one domain", "separate domains")
    }
    assert served == {"one domain": {"west", "east"}, "separate domains": {"east"}}


def test_a_trace_says_itself_that_its_members_have_places(
    tmp_path: Path, lives: Mapping[str, Ran]
) -> None:
    path = tmp_path / "t.csv"
    write_trace(path, lives["abort"].outcome.trace, lives["abort"].world.source.provenance)
    again = go(busy("abort", source="trace", trace=path, membership="network")).outcome
    assert rows_of(again) == rows_of(lives["abort"].outcome)


def test_visits_are_too_short_for_some(lives: Mapping[str, Ran]) -> None:
    """The rules differ here, so that the comparison above is of something."""
    wasted = {rule: lives[rule].outcome.contact.wasted_bytes for rule in RULES}
    assert wasted["finish"] == 0 < min(wasted["abort"], wasted["withdraw_by_proxy"])
    assert rows_of(lives["abort"].outcome) != rows_of(lives["withdraw_by_proxy"].outcome)


def test_serial_and_processes_give_the_same_run(lives: Mapping[str, Ran]) -> None:
    wanted = busy("abort").model_copy(
        update={"execution": Experiment(execution={"kind": "processes", "workers": 2}).execution}
    )
    task, _ = executor_of(wanted)
    with (
        open_executor(wanted, 0, task) as executor,
        open_source(wanted.mobility, 0) as source,
    ):
        outcome = World(wanted, "fsosa", task, executor, source).run()
    assert outcome.ledger == lives["abort"].outcome.ledger
    assert outcome.metrics == lives["abort"].outcome.metrics
