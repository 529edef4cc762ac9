"""The task of a run without learning: what is shared, what is counted, what is never touched."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from costing import unlearned
from worlds import at, experiment, quick, record

from testbed.config import Experiment, load
from testbed.errors import ConfigError
from testbed.fusion.rules import RULES, rule
from testbed.learning.client import prepare
from testbed.learning.contribution import serialise
from testbed.learning.flops import forward_flops
from testbed.learning.statistics import contribute, statistic_bytes
from testbed.learning.task import ONE_SHOT, Session
from testbed.simulation.books import Books
from testbed.simulation.costs import costs
from testbed.simulation.learning import Learning
from testbed.simulation.outline import outline
from testbed.simulation.placeholder import Placeholder

STATISTICS = sorted({each.statistic for each in RULES.values()} | {"fisher"})


def by(wanted: Experiment, name: str = "fsosa") -> Any:
    return rule(name, wanted.fusion, wanted.fisher, wanted.server.billed_iterations)


def test_points_of_a_sweep_have_one_task() -> None:
    base = outline(experiment(), 0)
    for section, values in (
        ("editing", {"rho": 0.25, "methods": ["retrain"]}),
        ("mobility", {"source": "generated"}),
        ("device", {"peak_tflops": 2.0}),
        ("network", {"rate_mbps": 3}),
    ):
        assert outline(experiment(**{section: values}), 0) is base
    seed, pool, wide = (
        outline(experiment(), 1),
        outline(experiment(clients={"pool": 8}), 0),
        outline(experiment(learning={"model": "mlp"}), 0),
    )
    assert len({id(task) for task in (base, seed, pool, wide)}) == 4
    # Seeds and pools share the pictures' labels and the network.
    assert seed.dataset is pool.dataset is wide.dataset is base.dataset
    assert seed.model is pool.model is base.model is not wide.model


def test_an_outline_has_the_partitions_and_shapes_of_the_real_task() -> None:
    wanted = experiment(data={"holdout": 0.2, "test_share": 0.85})
    for seed in (0, 3):
        blank, real = outline(wanted, seed), prepare(wanted, seed)
        for name in ("parts", "holdouts"):
            pairs = zip(getattr(blank, name), getattr(real, name), strict=True)
            assert all(np.array_equal(one, other) for one, other in pairs)
        for name in ("shape", "classes", "epochs", "kind", "estimator", "upload", "streams"):
            assert getattr(blank, name) == getattr(real, name)
        shapes = [{k: v.shape for k, v in task.initial.items()} for task in (blank, real)]
        assert shapes[0] == shapes[1]


def test_what_follows_from_shapes_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    task = outline(experiment(learning={"model": "mlp", "width": 33}), 0)
    first = costs(experiment(), task, by(experiment()))
    sizes = [first.contribution_bytes(part) for part in range(9)]
    monkeypatch.setattr(torch.nn.Linear, "forward", None)
    monkeypatch.setattr("testbed.learning.statistics.contribution_bytes", None)
    for seed in (0, 5):
        other = outline(experiment(learning={"model": "mlp", "width": 33}), seed)
        again = costs(experiment(editing={"rho": 0.3}), other, by(experiment()))
        assert again.model_bytes == first.model_bytes
        assert [again.contribution_bytes(part) for part in range(9)] == sizes
        assert again.solve_flops(3) == first.solve_flops(3)
    assert forward_flops(task.model, task.shape) == 2 * (64 * 33 + 33 * 10)


@pytest.mark.parametrize("statistic", STATISTICS)
def test_sizes_are_those_of_real_messages(statistic: str) -> None:
    wanted = experiment(
        data={"holdout": 0.3, "test_share": 0.85}, learning={"model": "small-cnn", "epochs": 1}
    )
    blank, real = outline(wanted, 2), prepare(wanted, 2)
    size = statistic_bytes(blank, statistic)
    for part in (0, 4):
        made = contribute(real, part, real.initial, statistic)
        assert size(part) == len(serialise(made))


def test_a_placeholder_writes_down_what_is_asked() -> None:
    wanted = experiment()
    placeholder = Placeholder(outline(wanted, 0))
    assert isinstance(placeholder, Learning)
    one, two = placeholder.train([3, 1], by(wanted))
    placeholder.train([3], by(wanted, "fedavg"))
    session = Session(2, 1)
    placeholder.tune([5, 5, 2], {}, session)
    placeholder.tune([5], {}, session)
    placeholder.tune([5], {}, ONE_SHOT)
    fused = [placeholder.fuse((one.contribution, two.contribution), by(wanted)) for _ in range(2)]
    assert placeholder.trainings == {(3, "fisher"), (1, "fisher"), (3, "model")}
    assert placeholder.tunings == {(5, session): 3, (2, session): 1, (5, ONE_SHOT): 1}
    assert placeholder.fusions == {2: 2}
    # Each fusion makes a model of its own, which is how a release is told.
    assert fused[0].value is not fused[1].value
    assert {each.seconds for each in fused} == {0.0}
    assert np.isnan(placeholder.score({}).value.loss)


def test_to_measure_what_is_not_done_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, ["fidelity=cost", "time.mode=measured"])
    assert "nothing to measure; set time.mode to modelled or fidelity to train" in str(
        caught.value
    )
    assert "\n" not in str(caught.value)


def test_nothing_is_kept_of_requests_that_are_written_down() -> None:
    """Rows and metrics of the requests would take three megabytes; small caches remain."""

    def peak(requests: int) -> int:
        wanted = quick(
            mobility={
                "warmup": 0,
                "source": "schedule",
                "schedule": {"vehicles": 6, "changes": requests, "kind": "mixed", "interval": 50},
            },
            clients={"initial": 6, "pool": 90},
            editing={"requests": requests},
        )
        seen = [0, 0]

        def count(place: int) -> Any:
            return lambda rows: seen.__setitem__(place, seen[place] + len(rows))

        books = Books(rows=count(0), metrics=count(1), steps=lambda step: None)
        tracemalloc.start()
        try:
            outcome = unlearned(wanted, None, "fsosa", books=books).outcome
            used = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert seen[1] == requests + 1
        assert seen[0] > requests
        assert outcome.counts["requests"] == requests
        assert outcome.ledger == outcome.metrics == outcome.trace.events == ()
        return used

    peak(50)  # what is made once
    few, many = peak(100), peak(1100)
    assert many - few < 1e6


def test_a_vehicle_of_made_up_traffic_never_comes_back(tmp_path: Path) -> None:
    returning = unlearned(
        quick(), record(tmp_path / "t.csv", at("1 +a +b +c +d +e +f; 20 -a; 30 +a")), "finetune"
    ).world.fleet
    assert returning.returning
    assert set(returning._former) == set("abcdef")
    made = {"source": "schedule", "warmup": 0, "schedule": {"vehicles": 6, "changes": 5}}
    never = unlearned(quick(mobility=made), None, "finetune").world.fleet
    assert (never.returning, never._former) == (False, {})
