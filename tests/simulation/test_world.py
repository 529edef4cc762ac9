"""When a run begins and ends, what cannot be run, and what a watcher sees."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from worlds import METHODS, TRAFFIC, Ran, at, executor_of, quick, record, run, simulate

from testbed.config import Experiment
from testbed.errors import ConfigError, EditError, ScenarioError
from testbed.mobility import MobilityEvent, Step
from testbed.simulation.world import World

EVERY = pytest.mark.parametrize("method", METHODS)


class Live:
    """The events of a trace, delivered as live traffic delivers them: step by step."""

    def __init__(self, events: Sequence[MobilityEvent], warmup: float, end: float, stride: float):
        self.events, self.warmup, self.end, self.stride = events, warmup, end, stride
        self.provenance: dict[str, Any] = {}

    def counts(self) -> dict[str, int]:
        return {}

    def steps(self):
        for number in range(round(self.end / self.stride)):
            now = round(number * self.stride, 6)
            yield Step(now, tuple(event for event in self.events if event.time == now))


def live(wanted: Experiment, text: str, stride: float, warmup: float, method: str = "fsosa"):
    task, executor = executor_of(wanted)
    source = Live(at(text), warmup, 70.0, stride)
    return World(wanted, method, task, executor, source).run()


# Beginning and end.


def test_the_warmup_ends_at_its_second_not_at_the_next_event(ran: Mapping[str, Ran]) -> None:
    (first, *_), rows = ran["fsosa"].outcome.metrics, ran["fsosa"].outcome.ledger
    assert (first.t, first.t_start) == (10.0, 10.0)
    assert min(row.t_start for row in rows) == 10.0


@pytest.mark.parametrize("handling", ["sequential", "batch"])
@pytest.mark.parametrize("warmup", [10.0, 10.25, 12.0])
@pytest.mark.parametrize("stride", [1.0, 0.1])
@pytest.mark.parametrize("method", ["fsosa", "finetune"])
def test_small_steps_and_a_replay_give_the_same_run(
    tmp_path: Path, method: str, stride: float, warmup: float, handling: str
) -> None:
    text = "1 +a +b +c; 12 +d +e +f; 15 -a +g; 21 +h; 22 +i; 30 -b; 31 -i; 44 +a; 50 -d; 61 +k"
    wanted = quick(
        clients={"initial": 3},
        editing={"requests": 6, "handling": handling},
        network={"latency_ms": 2500},
        mobility={"warmup": warmup},
    )
    seen = live(wanted, text, stride, warmup, method)
    path = record(tmp_path / "t.csv", seen.trace.events, seen.trace.end)
    again = simulate(wanted, path, method).outcome
    assert again.metrics == seen.metrics
    assert [replace(row, run="") for row in again.ledger] == [
        replace(row, run="") for row in seen.ledger
    ]
    assert again.trace == seen.trace
    assert all(torch.equal(again.model[name], seen.model[name]) for name in seen.model)


@pytest.mark.parametrize("stride", [1.0, 0.5])
def test_a_warmup_after_the_last_event_ends_at_its_second_too(
    tmp_path: Path, stride: float
) -> None:
    text = "1 +a +b +c"
    wanted = quick(clients={"initial": 3}, mobility={"warmup": 40})
    seen = live(wanted, text, stride, 40.0)
    again = run(tmp_path, text, end=69, clients={"initial": 3}, mobility={"warmup": 40}).outcome
    assert seen.metrics == again.metrics
    assert [metric.t for metric in seen.metrics] == [40.0]


def test_an_event_at_the_end_of_the_warmup_is_the_first_request(tmp_path: Path) -> None:
    outcome = run(
        tmp_path, "1 +a +b +c; 10 +d", clients={"initial": 3}, editing={"requests": 1}
    ).outcome
    assert outcome.population_initial == 3
    assert [(m.kind, m.t) for m in outcome.metrics] == [("init", 10.0), ("join", 10.0)]


def test_too_few_at_the_end_of_the_warmup_are_waited_for(tmp_path: Path) -> None:
    outcome = run(
        tmp_path, "1 +a; 20 +b; 25 +c; 30 -a",
        clients={"initial": 3}, editing={"requests": 1},
    ).outcome  # fmt: skip
    assert [(m.kind, m.t) for m in outcome.metrics] == [("init", 25.0), ("leave", 30.0)]


def test_a_start_after_the_warmup_is_said(tmp_path: Path) -> None:
    outcome = run(
        tmp_path, "1 +a +b +c; 25 +d; 30 -a",
        clients={"initial": 4}, editing={"requests": 1},
    ).outcome  # fmt: skip
    assert outcome.warnings == (
        "The wanted initial clients were together only 15 s after the warm-up; "
        "the run started then.",
    )


def test_without_initial_all_present_are_clients(tmp_path: Path) -> None:
    outcome = run(
        tmp_path, "1 +a +b +c +d +e; 2 -b; 11 -a",
        clients={"initial": None}, editing={"requests": 1},
    ).outcome  # fmt: skip
    assert (outcome.population_initial, outcome.subset_size) == (4, 2)


def test_the_run_ends_after_the_wanted_requests(ran: Mapping[str, Ran]) -> None:
    outcome = ran["fsosa"].outcome
    assert [metric.request for metric in outcome.metrics] == list(range(9))
    # What comes after the request that was counted out is not looked at any more.
    assert outcome.trace.end == outcome.trace.events[-1].time == 44.0
    assert outcome.warnings == ()


def test_requests_beyond_the_wanted_in_the_same_second_are_not_answered(tmp_path: Path) -> None:
    outcome = run(
        tmp_path, "1 +a +b +c +d; 20 -a -b -c; 30 +e",
        clients={"initial": 4}, editing={"requests": 2},
    ).outcome  # fmt: skip
    assert [metric.vehicle for metric in outcome.metrics] == ["", "a", "b"]
    assert outcome.counts["requests"] == 2
    assert outcome.metrics[-1].population == 2
    # The trace keeps the whole second.
    assert len(outcome.trace.events) == 7


def test_the_end_of_the_traffic_ends_the_run_with_a_warning(tmp_path: Path) -> None:
    outcome = run(tmp_path, TRAFFIC, end=70, editing={"requests": 99}).outcome
    assert outcome.metrics[-1].vehicle == "k"
    (warning,) = outcome.warnings
    assert warning == "The traffic ended after 10 of 99 requests."


def test_traffic_without_any_change_gives_the_initial_model_alone(tmp_path: Path) -> None:
    outcome = run(tmp_path, "1 +a +b +c", end=70, clients={"initial": 3}).outcome
    assert [metric.kind for metric in outcome.metrics] == ["init"]
    assert {row.request for row in outcome.ledger} == {0}
    assert outcome.warnings == ("The traffic ended after 0 of 8 requests.",)


def test_leaves_before_joins_of_one_second_free_a_partition(tmp_path: Path) -> None:
    outcome = run(
        tmp_path, "1 +a +b +c; 20 -a +d",
        clients={"initial": 3, "pool": 3}, editing={"requests": 2},
    ).outcome  # fmt: skip
    leave, join = outcome.metrics[1:]
    assert (leave.kind, join.kind) == ("leave", "join")
    assert leave.partition == join.partition
    assert outcome.counts["without_partition"] == 0


# What cannot be run.


def test_an_empty_traffic_is_told(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("# end: 70\ntime,vehicle,kind\n")
    with pytest.raises(ScenarioError, match="no vehicle ever joined"):
        simulate(quick(), path)


@pytest.mark.parametrize("text", ["1 +a +b +c +d; 12 -a; 30 +a; 40 -b; 41 -c", "1 +a +b +c +d"])
def test_too_few_vehicles_are_told_with_the_most_there_were(tmp_path: Path, text: str) -> None:
    with pytest.raises(
        ScenarioError, match=r"clients\.initial asks for 6 .* never more than 4 at a time; lower"
    ):
        run(tmp_path, text, end=70)


def test_nobody_taking_part_is_told(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"asks for 1 vehicles .*raise mobility.participation"):
        run(
            tmp_path, TRAFFIC, end=70,
            mobility={"participation": 1e-9}, clients={"initial": None},
        )  # fmt: skip


def test_an_empty_subset_is_told_with_the_numbers(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"editing\.rho 0\.3 of 3 .*P = 0"):
        run(tmp_path, "1 +a +b +c; 20 -a", clients={"initial": None}, editing={"rho": 0.3})


@EVERY
def test_the_last_client_leaving_is_told_for_every_method(tmp_path: Path, method: str) -> None:
    with pytest.raises(ScenarioError, match=r"no client is left after request 2, at 30 s"):
        run(tmp_path, "1 +a +b; 20 -a; 30 -b; 40 +c", method, clients={"initial": 2})


@pytest.mark.parametrize("method", ["fsosa", "retrain"])
def test_strict_refuses_a_population_below_the_subset(tmp_path: Path, method: str) -> None:
    text = "1 +a +b +c +d; 20 -a; 30 -b; 40 -c"
    with pytest.raises(EditError, match=r"1 clients are left but the subset needs P = 2"):
        run(
            tmp_path, text, method,
            clients={"initial": 4}, editing={"below_subset": "strict"},
        )  # fmt: skip


def test_shrink_goes_on_and_every_violation_is_flagged(tmp_path: Path) -> None:
    outcome = run(
        tmp_path, "1 +a +b +c +d; 20 -a; 30 -b; 40 -c; 50 +e +f +g; 51 +h +i +j +k +l",
        clients={"initial": 4}, editing={"requests": 11, "rho": 0.75},
    ).outcome  # fmt: skip
    assert [m.subset for m in outcome.metrics] == [3, 3, 2, 1, 2, 3, 3, 3, 3, 3, 3, 3]
    population, subset = outcome.warnings
    assert population == (
        "The population left [M0/2, 2 M0] = [2, 8] at 2 of 11 requests, first at request 3 "
        "with M = 1."
    )
    assert subset == "The population fell below P = 3 at 3 requests; the subset shrank with it."


def test_a_projection_that_stops_early_is_flagged(tmp_path: Path) -> None:
    outcome = run(
        tmp_path, "1 +a +b +c +d; 20 +e",
        clients={"initial": 4}, editing={"requests": 1}, fisher={"kind": "kfac"},
        fusion={"max_iterations": 1}, learning={"momentum": 0},
    ).outcome  # fmt: skip
    loose = [metric for metric in outcome.metrics if not metric.converged]
    assert loose
    solves = {row.request: row.result for row in outcome.ledger if row.phase == "solve"}
    assert [request for request, result in solves.items() if result == "unconverged"] == [
        metric.request for metric in loose
    ]
    (warning,) = outcome.warnings
    assert warning.startswith(f"{len(loose)} projections stopped above fusion.rtol = 1e-06;")
    assert f"{max(m.residual for m in loose):.1e}" in warning


# What a watcher sees.


def test_progress_goes_from_warmup_over_training_to_editing(ran: Mapping[str, Ran]) -> None:
    seen = ran["fsosa"].seen
    phases = [progress.phase for progress in seen]
    assert phases == sorted(phases, key=["warm-up", "training", "editing"].index)
    assert {"warm-up", "editing"} <= set(phases)
    assert [p.time for p in seen] == sorted(p.time for p in seen)
    assert [p.done for p in seen] == sorted(p.done for p in seen)
    for progress in seen:
        assert (progress.quality is None) == (progress.phase != "editing")
        if progress.phase != "editing":
            assert set(progress.bytes.values()) == {0}


def test_progress_counts_clients_when_they_are_all_gone(tmp_path: Path) -> None:
    seen = run(
        tmp_path, "1 +a +b +c +d +e +f +g; 20 -a -b -c -d -e -f -g",
        clients={"initial": 2, "pool": 2}, editing={"requests": 1},
    ).seen  # fmt: skip
    assert seen[-1].population <= 1
