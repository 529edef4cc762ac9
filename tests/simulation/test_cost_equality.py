"""A run without learning has the ledger of the run with it, whatever the method."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy
from costing import LEARNED, bill, known, unlearned
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import Ran, at, experiment, quick, record, simulate

from testbed.config import Experiment
from testbed.editing.methods import METHODS
from testbed.execution import Executor, Trained, Tuned
from testbed.learning.blocks import State
from testbed.learning.task import ONE_SHOT, Session
from testbed.simulation.air import Air
from testbed.simulation.vehicle import Job, Progress, Stage, undisturbed
from testbed.streams import Streams

# Everybody of the initial six leaves but one, so that members do in every method.
TRAFFIC = (
    "1 +a +b +c +d +e +f; 12 +g; 15 -a; 15.5 +h; 21 -b +i; 22 -c; 23 +late; 30 -d; 31 -h;"
    " 44 +a; 50 -e; 61 +k"
)
SMALL: dict[str, Any] = {
    "data": {"test_share": 0.85, "holdout": 0.2},
    "learning": {"model": "small-cnn", "epochs": 3, "lr": 0.02, "batch": 16},
    "rounds": {"rounds": 3, "store_every": 1, "retraining": 2, "distillation": 1},
    "editing": {"requests": 11},
}

# Rules whose fusion takes seconds, even of the smallest network.
SLOW = ("fedfisher", "fedfisher-diagonal", "ma-echo", "dense")
SMALLER = {
    "learning": {**SMALL["learning"], "model": "mlp", "width": 8},
    "editing": {"requests": 1},
}


@pytest.fixture(scope="module")
def traffic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("traffic") / "t.csv", at(TRAFFIC), end=70)


@dataclass
class Counting:
    """An executor that counts what it is asked for, as a placeholder does."""

    executor: Executor
    trainings: set[tuple[int, str]] = field(default_factory=set)
    tunings: Counter[tuple[int, Session]] = field(default_factory=Counter)

    def train(self, parts: Sequence[int], statistic: str = "fisher") -> list[Trained]:
        self.trainings.update((part, statistic) for part in parts)
        return self.executor.train(parts, statistic)

    def tune(self, parts: Sequence[int], start: State, session: Session = ONE_SHOT) -> list[Tuned]:
        self.tunings.update((part, session) for part in parts)
        return self.executor.tune(parts, start, session)


def both(wanted: Experiment, trace: Path, method: str) -> tuple[Ran, Ran]:
    return simulate(wanted, trace, method, wrapped=Counting), unlearned(wanted, trace, method)


def same(learned: Ran, costed: Ran) -> None:
    """Check that nothing differs but what is measured of models."""
    assert {row.result for row in learned.outcome.ledger} <= {"ok", "lost"}
    assert bill(costed) == bill(learned)
    assert known(costed) == known(learned)
    for name in ("counts", "contact", "notes", "population_initial", "subset_size", "covered"):
        assert getattr(costed.outcome, name) == getattr(learned.outcome, name)
    assert costed.outcome.trace == learned.outcome.trace
    assert costed.world.fleet.clients == learned.world.fleet.clients


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_billed_as_if_it_had_learned(traffic: Path, method: str) -> None:
    sections = SMALL | SMALLER if method in SLOW else SMALL
    learned, costed = both(quick(**sections), traffic, method)
    same(learned, costed)
    assert sum(metric.triggered for metric in costed.outcome.metrics) >= 2
    # What was asked for is what would have been learned.
    executor, placeholder = learned.world.executor, costed.world.executor
    assert placeholder.trainings == executor.trainings
    assert placeholder.tunings == executor.tunings
    assert bool(executor.tunings) == (METHODS[method].in_rounds or method == "finetune")
    solves = [row for row in learned.outcome.ledger if row.phase == "solve"]
    assert placeholder.fusions.total() == len(solves)


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_known_of_models_that_nobody_made(traffic: Path, method: str) -> None:
    outcome = unlearned(quick(**SMALL), traffic, method).outcome
    assert outcome.model == {}
    for metric in outcome.metrics:
        for name in LEARNED[:4]:
            assert np.isnan(getattr(metric, name))
        assert (metric.iterations, metric.residual, metric.converged) == (0, 0.0, True)
    assert all(row.compute_s_measured is None for row in outcome.ledger)


@pytest.mark.parametrize(
    "sections",
    [
        {"fisher": {"kind": "kfac"}},
        {"fisher": {"kind": "kfac", "upload": "half"}},
        {"fisher": {"upload": "low-rank", "rank": 4, "kind": "kfac"}},
        {"learning": {"model": "mlp", "width": 16, "epochs": 3}},
        {"editing": {"requests": 11, "handling": "batch"}, "network": {"latency_ms": 3000}},
        {"work": {"when": "prepared"}},
        {"device": {"sigma": 0.5, "peak_tflops": 1e-3}},
        {"work": {"departure": "abort"}, "device": {"peak_tflops": 1e-4}},
        {"work": {"departure": "resume_on_return"}, "device": {"peak_tflops": 1e-4}},
        {"work": {"departure": "withdraw_by_proxy", "proxy_s": 2}, "network": {"rate_mbps": 5}},
    ],
    ids=lambda sections: "-".join(f"{k}={v}" for s in sections.values() for k, v in s.items()),
)
def test_every_setting_is_billed_as_if_it_had_learned(
    traffic: Path, sections: dict[str, Any]
) -> None:
    wanted = quick(**{**SMALL, **sections})
    for method in ("fsosa", "federaser"):
        same(*both(wanted, traffic, method))


def test_those_who_leave_with_work_in_hand_are_lost_in_both(traffic: Path) -> None:
    slow = quick(**SMALL, work={"departure": "abort"}, device={"peak_tflops": 1e-4})
    learned, costed = both(slow, traffic, "retrain")
    same(learned, costed)
    assert any(row.result == "lost" for row in costed.outcome.ledger)
    assert costed.outcome.counts["lost"] > 0


def test_another_seed_is_another_run(traffic: Path) -> None:
    one, other = (unlearned(quick(**SMALL), traffic, "fsosa", seed) for seed in (0, 1))
    assert [row["bytes_up"] for row in bill(one)] != [row["bytes_up"] for row in bill(other)]
    assert simulate(quick(**SMALL), traffic, "fsosa", 1).outcome.ledger[-1].t_end == (
        other.outcome.ledger[-1].t_end
    )


def test_whether_the_weights_are_learned_does_not_matter_for_what_is_sent(traffic: Path) -> None:
    costed = unlearned(experiment(**SMALL), traffic, "fsosa")
    task = costed.world.task
    assert set(map(type, costed.world.coordinator.state.contributions.values())) != {dict}
    assert all(not each.model for each in costed.world.coordinator.state.contributions.values())
    # The network is another one than that of the run, with the same shapes.
    learned = simulate(experiment(**SMALL), traffic, "fsosa")
    assert task.initial.keys() == learned.task.initial.keys()
    assert all(
        value.shape == learned.task.initial[name].shape for name, value in task.initial.items()
    )


# Jobs that nothing can interrupt -------------------------------------------------------


MICROS = st.integers(0, 10**7)
BITS = MICROS.map(lambda size: 8 * size)
STAGES = st.lists(
    st.one_of(
        st.builds(Stage, st.just("download"), BITS, st.just("down")),
        st.builds(Stage, st.just("train"), MICROS),
        st.builds(Stage, st.just("fisher"), MICROS, measured=st.floats(0, 9)),
        st.builds(Stage, st.just("upload"), BITS, st.just("up")),
    ),
    min_size=1,
    max_size=5,
)


@settings(deadline=None, max_examples=60)
@given(
    STAGES,
    st.integers(0, 10**9),
    st.booleans(),
    st.sampled_from([None, "train", "upload"]),
    st.floats(0.001, 1e4),
    st.floats(0, 100),
)
def test_a_job_that_nothing_interrupts_is_known_beforehand(
    stages: list[Stage], start: int, reused: bool, useless: str | None, rate: float, latency: float
) -> None:
    env = simpy.Environment(initial_time=start)
    network = {"preset": "fixed", "rate_mbps": rate, "latency_ms": latency}
    air = Air(env, quick(network=network), Streams(0), located=False)
    steps: list[Any] = []
    job = Job(env, air, "a", stages, steps, Progress(), reused=reused, useless=useless, turn=3)
    env.run()
    assert job.process.value is True
    assert undisturbed(air, "a", stages, start, reused=reused, useless=useless, turn=3) == steps
    assert env.now == steps[-1].end


@pytest.mark.parametrize("method", ["fsosa", "retrain", "federaser", "finetune"])
def test_what_is_known_beforehand_is_what_is_simulated(
    traffic: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where everybody has time to finish, an abort takes the long way to the same ledger."""
    stay = SMALL | {"editing": {"requests": 2}}
    short = unlearned(quick(**stay), traffic, method)
    monkeypatch.setattr("testbed.simulation.jobs.undisturbed", None)
    long = unlearned(quick(**stay, work={"departure": "abort"}), traffic, method)
    assert bill(long) == bill(short)
    assert known(long) == known(short)
    assert long.outcome.counts["lost"] == 0
