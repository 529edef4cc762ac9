"""What a run asks for is known before it is done."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from specs import replayed, small
from sweeps import CITY, swept, write

from testbed.config import Experiment
from testbed.errors import ConfigError, ScenarioError
from testbed.execution import Blueprint, Clients, task_of
from testbed.execution.crew import SerialCrew
from testbed.experiments.estimate import Probe, estimate
from testbed.experiments.grid import read_grid
from testbed.experiments.plan import Need, Plan, asks, groups, make_plan, need, survey, trainings
from testbed.experiments.rundir import find_runs
from testbed.experiments.sweep import store_of
from testbed.experiments.traffic import EndOfTapeError, load
from testbed.fusion.rules import Rule
from testbed.learning.task import Session
from testbed.mobility import open_source
from testbed.simulation.learning import Real
from testbed.simulation.outline import outline
from testbed.simulation.world import World

METHODS = (
    "fsosa",
    "retrain",
    "finetune",
    "federaser",
    "fedrr",
    "fats-cu",
    "fedavg",
    "fisher-merging",
)


@dataclass(frozen=True)
class Listening(Real):
    """Real learning, of which is noted what was asked."""

    trainings: set[tuple[int, str]] = field(default_factory=set)
    tunings: Counter[tuple[int, Session]] = field(default_factory=Counter)
    fusions: list[int] = field(default_factory=list)
    releases: list[Any] = field(default_factory=list)

    def train(self, parts: Sequence[int], rule: Rule) -> Any:
        self.trainings.update((part, rule.statistic) for part in parts)
        return super().train(parts, rule)

    def tune(self, parts: Sequence[int], start: Any, session: Session) -> Any:
        self.tunings.update((part, session) for part in parts)
        return super().tune(parts, start, session)

    def fuse(self, contributions: Any, rule: Rule) -> Any:
        self.fusions.append(len(contributions))
        return super().fuse(contributions, rule)

    def score(self, model: Any) -> Any:
        self.releases.append(model)
        return super().score(model)


def listen(experiment: Experiment, method: str) -> tuple[Listening, World, int]:
    """Do a run for real; return what was asked, and the rows of its ledger."""
    task = task_of(Blueprint.of(experiment, 0))
    heard = Listening(task, Clients(task))
    with open_source(experiment.mobility, 0) as source:
        world = World(experiment, method, task, heard, source)
        return heard, world, len(world.run().ledger)


# One run.


@pytest.mark.parametrize("method", METHODS)
def test_a_plan_is_what_a_run_asks_for(trace: Path, method: str) -> None:
    experiment = replayed(
        trace, editing={"methods": [method]}, learning={"epochs": 2}, rounds={"rounds": 2}
    )
    heard, world, rows = listen(experiment, method)
    with open_source(experiment.mobility, 0) as source:
        planned = need(experiment, 0, method, source)
    assert planned.trainings == heard.trainings == trainings(experiment, 0, method)
    costs = world.coordinator.costs
    assert planned.fusion_flops == sum(map(costs.solve_flops, heard.fusions))
    assert (planned.releases, planned.rows) == (len(heard.releases), rows)
    # Two epochs are what a training takes; a curvature session's passes count threefold.
    expected = 0
    for (part, session), times in heard.tunings.items():
        epochs = 2 if session.epochs is None else session.epochs
        passes = 3 if session.optimiser == "curvature" else 1
        expected += times * costs.training[part] * epochs * passes // 2
    assert planned.tuning_flops == expected
    assert bool(heard.tunings) == (method in ("finetune", "federaser", "fedrr", "fats-cu"))


def test_statistics_have_the_names_that_methods_use(trace: Path) -> None:
    experiment = replayed(trace)
    for method, statistic in (
        ("fsosa", "fisher"), ("fedavg", "model"), ("fedfisher", "kfac+holdout"),
    ):  # fmt: skip
        asked = trainings(experiment, 0, method)
        assert {name for _, name in asked} == {statistic}
        assert {part for part, _ in asked} <= set(range(6))


def test_rounds_ask_for_no_contribution(trace: Path) -> None:
    experiment = replayed(trace, learning={"epochs": 2}, rounds={"rounds": 2})
    assert trainings(experiment, 0, "fats-cu") == frozenset()


def test_common_random_numbers(trace: Path) -> None:
    """With one seed the methods draw the same subsets, so that they share trainings."""
    experiment = replayed(trace)
    first, second = (trainings(experiment, 0, method) for method in ("retrain", "fedavg"))
    assert {part for part, _ in first} == {part for part, _ in second}


def test_a_run_that_would_fail_says_why(trace: Path) -> None:
    with pytest.raises(ScenarioError, match=r"clients\.initial asks for 6"):
        trainings(replayed(trace, clients={"initial": 6}), 0, "fsosa")
    with pytest.raises(ConfigError, match="rounds"):
        trainings(replayed(trace, rounds={"rounds": 10}), 0, "fats-cu")


# Many runs.


def test_runs_of_the_same_traffic_are_planned_together(tmp_path: Path) -> None:
    config = write(tmp_path, CITY)
    axes = ["rho=0.34,0.67", "density=2,4", "alpha=0.1,0.5"]
    grid = read_grid(config, axes, seeds="0:2")
    found = groups(asks(grid, tmp_path))
    assert len(found) == 2 * 2  # densities and seeds
    assert {len(group) for group in found} == {2 * 2 * 2}  # rho, alpha and methods
    for group in found:
        assert len({ask.cell.seed for ask in group}) == 1
        assert len({ask.experiment.mobility for ask in group}) == 1


def test_where_traffic_costs_nothing_points_are_planned_side_by_side(tmp_path: Path) -> None:
    grid = read_grid(write(tmp_path), ["rho=0.5,0.75"], seeds="0:2")
    found = groups(asks(grid, tmp_path))
    assert [[str(ask) for ask in group] for group in found] == [
        [f"rho={rho} {method} seed={seed}" for method in ("fsosa", "retrain")]
        for rho in ("0.5", "0.75")
        for seed in (0, 1)
    ]


def test_a_survey_leaves_the_traffic_for_the_runs(tmp_path: Path) -> None:
    grid = read_grid(write(tmp_path, CITY), ["rho=0.34,0.67"])
    (group,) = groups(asks(grid, tmp_path))
    found = survey(group, tmp_path / "tape")
    assert all(isinstance(each, Need) for each in found)
    player, heard = load(tmp_path / "tape").play(), list[float]()
    with pytest.raises(EndOfTapeError):
        heard.extend(step.time for step in player.steps())
    # It was simulated for as long as somebody listened: no longer than the last run needs.
    assert (player.warmup, player.end) == (60.0, 300.0)
    assert heard[0] == 0.0
    assert 60 < heard[-1] < 290


def test_a_survey_names_what_fails_and_goes_on(tmp_path: Path) -> None:
    grid = read_grid(write(tmp_path), ["clients.initial=6,4"], methods="fsosa")
    found = [survey(group)[0] for group in groups(asks(grid, tmp_path))]
    assert isinstance(found[0], str)
    assert found[0].startswith("clients.initial asks for 6 vehicles")
    assert isinstance(found[1], Need)


def planned(config: Path, axes: list[str], out: Path, **options: Any) -> Plan:
    grid = read_grid(config, axes, **options)
    return make_plan(asks(grid, out), SerialCrew(), store_of(grid, out))


def test_a_plan_counts_each_training_once(tmp_path: Path) -> None:
    plan = planned(write(tmp_path), ["rho=0.5,0.75"], tmp_path / "out")
    assert len(plan.runs) == 4
    parts = {
        part for run in plan.runs if isinstance(run.need, Need) for part, _ in run.need.trainings
    }
    assert len(plan.todo) == len(plan.left) == len(parts)
    assert plan.asked > len(parts)
    # Statistics of other methods are of the same trainings.
    more = planned(write(tmp_path), ["rho=0.5,0.75"], tmp_path / "out",
                   methods="fsosa,retrain,fisher-merging")  # fmt: skip
    assert {job.key for job in plan.todo} <= {job.key for job in more.todo}
    assert any(len(job.keys) == 2 for job in more.todo)


def test_other_clients_are_other_trainings(tmp_path: Path) -> None:
    one = planned(write(tmp_path), ["alpha=0.5"], tmp_path / "out")
    two = planned(write(tmp_path), ["alpha=0.5,5"], tmp_path / "out")
    assert len(two.todo) > len(one.todo)
    # A Fisher in another form is another statistic of the same models.
    forms = planned(write(tmp_path), ["fisher.upload=full,half"], tmp_path / "out")
    assert [job.key for job in forms.todo] == [job.key for job in one.todo]
    assert {len(job.keys) for job in forms.todo} == {2}


def test_a_plan_knows_the_store(tmp_path: Path) -> None:
    config = write(tmp_path)
    swept(config, ["rho=0.5"], tmp_path / "out", methods="fsosa")
    plan = planned(config, ["rho=0.5,0.75"], tmp_path / "out")
    assert len(plan.left) < len(plan.todo)
    grid, *_ = swept(config, ["rho=0.5,0.75"], tmp_path / "out")
    again = planned(config, ["rho=0.5,0.75"], tmp_path / "out")
    assert (len(again.todo), again.left) == (len(plan.todo), ())
    assert estimate(again, store_of(grid, tmp_path / "out")).trainings_s == 0
    assert estimate(again, store_of(grid, tmp_path / "out")).store_bytes == 0


# Estimates.


def test_disk_is_estimated_by_what_messages_weigh(tmp_path: Path) -> None:
    config, out = write(tmp_path), tmp_path / "out"
    axes = ["rho=0.5,0.75"]
    plan = planned(config, axes, out, methods="fsosa,retrain,fedavg,fisher-merging")
    grid = read_grid(config, axes, methods="fsosa,retrain,fedavg,fisher-merging")
    store = store_of(grid, out)
    guessed = estimate(plan, store)
    swept(config, axes, out, methods="fsosa,retrain,fedavg,fisher-merging")
    entries = [path for path in store.folder.rglob("*") if path.is_file()]
    assert guessed.store_bytes == pytest.approx(
        sum(path.stat().st_size for path in entries), rel=0.05
    )
    results = [path for run in find_runs(out) for path in run.folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in results)
    assert size / 2 < guessed.results_bytes < 2 * size


def test_time_is_proportional_to_operations() -> None:
    probe = Probe(outline(small(), 0))
    assert probe.seconds(2 * 10**9) == pytest.approx(2 * probe.seconds(10**9))
    assert probe.seconds(10**9) > 0
    assert probe.seconds(0) == 0
    assert probe.seconds(10**9, "fisher") != probe.seconds(10**9)
    assert probe.release() > 0
    # A statistic that costs nothing takes no time.
    assert probe.seconds(0, "model") == 0


def test_every_part_of_the_work_is_estimated(tmp_path: Path) -> None:
    config = write(tmp_path, learning={"epochs": 2}, rounds={"rounds": 2})
    grid = read_grid(config, ["rho=0.5"], methods="fsosa,fats-cu")
    plan = make_plan(asks(grid, tmp_path), SerialCrew(), store_of(grid, tmp_path))
    found = estimate(plan, store_of(grid, tmp_path))
    parts = (found.trainings_s, found.tunings_s, found.fusions_s, found.releases_s)
    assert all(part > 0 for part in parts)
    assert found.total_s == pytest.approx(sum(parts))
    assert not list(tmp_path.glob("rho*"))
