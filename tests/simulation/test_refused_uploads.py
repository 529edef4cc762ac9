"""Uploads that cannot be used: the client is refused, the run goes on, and all say so."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from worlds import METHODS, Ran, at, experiment, quick, record, simulate

from testbed.editing.clients import Client
from testbed.errors import EditError, ScenarioError
from testbed.execution import Executor
from testbed.execution.executor import Trained, Tuned
from testbed.learning.contribution import Contribution
from testbed.learning.factors import Diagonal, Kronecker
from testbed.learning.task import ONE_SHOT
from testbed.simulation.coordinator import Refusal

EVERY = pytest.mark.parametrize("method", METHODS)
TRAFFIC = "1 +a +b +c +d +e +f; 12 +g; 15 -a; 20 +h; 25 -b; 31 -c"

Spoil = Callable[[Contribution], Contribution]


@dataclass
class Spoiling:
    """An executor whose clients with the given partitions send something useless."""

    inner: Executor
    bad: Collection[int]
    spoil: Spoil
    asked: list[int] = field(default_factory=list)

    def train(self, parts: Sequence[int], statistic: str = "fisher") -> list[Trained]:
        self.asked += parts
        return [
            replace(one, contribution=self.spoil(one.contribution)) if part in self.bad else one
            for part, one in zip(parts, self.inner.train(parts, statistic), strict=True)
        ]

    def tune(
        self, parts: Sequence[int], start: Mapping[str, torch.Tensor], session=ONE_SHOT
    ) -> list[Tuned]:
        return [
            replace(one, model=infinite(Contribution(1, one.model, {})).model)
            if part in self.bad
            else one
            for part, one in zip(parts, self.inner.tune(parts, start, session), strict=True)
        ]


def first(contribution: Contribution) -> tuple[str, torch.Tensor]:
    name = next(iter(contribution.model))
    return name, contribution.model[name]


def with_tensor(contribution: Contribution, value: torch.Tensor) -> Contribution:
    return replace(contribution, model={**contribution.model, first(contribution)[0]: value})


def infinite(contribution: Contribution) -> Contribution:
    value = first(contribution)[1].clone()
    value.view(-1)[0] = float("inf")
    return with_tensor(contribution, value)


def with_factor(contribution: Contribution, change: Callable[[Any], Any]) -> Contribution:
    name = next(iter(contribution.fisher))
    return replace(
        contribution, fisher={**contribution.fisher, name: change(contribution.fisher[name])}
    )


def lopsided(factor: Any) -> Any:
    a = factor.a.clone()
    a[0, 1] += a.abs().max()
    return Kronecker(a, factor.g)


KINDS: dict[str, tuple[Spoil, str]] = {
    "nan": (lambda c: with_tensor(c, first(c)[1] * float("nan")), "NaN or infinite"),
    "inf": (infinite, "NaN or infinite"),
    "shape": (lambda c: with_tensor(c, first(c)[1][:1]), "has shape"),
    "type": (lambda c: with_tensor(c, first(c)[1].double()), "has type torch.float64"),
    "missing": (
        lambda c: replace(c, model=dict(list(c.model.items())[1:])),
        "is missing",
    ),
    "foreign": (
        lambda c: replace(c, fisher={**c.fisher, "other": next(iter(c.fisher.values()))}),
        "the Fisher of other is foreign",
    ),
    "asymmetric": (lambda c: with_factor(c, lopsided), "is not symmetric"),
    "indefinite": (
        lambda c: with_factor(c, lambda f: Kronecker(f.a, -f.g)),
        "is not positive semi-definite",
    ),
    "samples": (lambda c: replace(c, samples=0), "number of samples is 0"),
}


def ruined(
    folder: Path,
    bad: Collection[int],
    method: str = "fsosa",
    spoil: Spoil = infinite,
    text: str = TRAFFIC,
    kind: str = "diagonal",
    **sections: Any,
) -> Ran:
    wanted = experiment(
        **{
            "fisher": {"kind": kind},
            "editing": {"requests": 5},
            "clients": {"initial": 6, "pool": 9},
            **sections,
        }
    )
    return simulate(
        wanted,
        record(folder / "t.csv", at(text)),
        method,
        wrapped=lambda inner: Spoiling(inner, bad, spoil),
    )


def initial_members(folder: Path, **sections: Any) -> list[Client]:
    """Return who is drawn first, in the same traffic with nobody spoiling anything."""
    ran = ruined(folder, (), **sections)
    rows = [row for row in ran.outcome.ledger if (row.request, row.phase) == (0, "train")]
    assert isinstance(ran.world.executor, Spoiling)
    # The executor is asked in the canonical order, which is by vehicle.
    vehicles = sorted(row.vehicle for row in rows)
    return list(map(Client, vehicles, ran.world.executor.asked))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_useless_contribution_is_a_departure(tmp_path: Path, kind: str) -> None:
    spoil, reason = KINDS[kind]
    victim = initial_members(tmp_path)[0]
    outcome = ruined(
        tmp_path, [victim.partition], spoil=spoil, kind="kfac", editing={"requests": 1}
    ).outcome
    start, after = outcome.metrics[:2]
    assert (start.population, start.subset) == (5, 3)
    assert (outcome.population_initial, outcome.subset_size) == (6, 3)
    assert after.population == 6
    (warning,) = outcome.warnings
    assert f"vehicle {victim.vehicle} (partition {victim.partition}) at request 0" in warning
    assert reason in warning
    assert outcome.counts["refused"] == 1
    assert all(value.isfinite().all() for value in outcome.model.values())


def test_a_negative_diagonal_is_refused_too(tmp_path: Path) -> None:
    victim = initial_members(tmp_path)[1]
    ran = ruined(
        tmp_path, [victim.partition], spoil=lambda c: with_factor(c, lambda f: Diagonal(-f.f))
    )
    assert any("has a negative entry" in warning for warning in ran.outcome.warnings)


def test_the_wasted_work_is_billed_and_its_replacement_trains_after_it(tmp_path: Path) -> None:
    victim = initial_members(tmp_path)[0]
    ran = ruined(tmp_path, [victim.partition])
    rows = [row for row in ran.outcome.ledger if row.request == 0]
    trained = [row.vehicle for row in rows if row.phase == "train"]
    assert len(trained) == len(set(trained)) == 4
    assert victim.vehicle in trained
    useless = [(row.vehicle, row.phase) for row in rows if row.result != "ok"]
    assert useless == [(victim.vehicle, "upload")]
    assert sum(row.phase == "upload" for row in rows) == 4
    (replacement,) = [
        row for row in rows if row.phase == "download" and row.t_start > rows[0].t_start
    ]
    assert replacement.t_start == max(
        row.t_end for row in rows if row.phase == "upload" and row.vehicle != replacement.vehicle
    )
    assert sum(row.phase == "solve" for row in rows) == 1
    # The refused vehicle gets no model and is no part of M.
    (broadcast,) = [row for row in rows if row.phase == "broadcast"]
    assert broadcast.bytes_down == 5 * ran.world.coordinator.costs.model_bytes
    assert {row.population for row in rows} == {5}


@EVERY
def test_the_leave_of_a_refused_client_has_no_effect_and_its_return_is_an_arrival(
    tmp_path: Path, method: str
) -> None:
    victim = initial_members(tmp_path)[0]
    name = victim.vehicle
    text = f"1 +a +b +c +d +e +f; 20 -{name}; 30 +{name}; 40 -{name}"
    ran = ruined(tmp_path, [victim.partition], method, text=text, editing={"requests": 3})
    metrics = ran.outcome.metrics
    refusals = ran.world.coordinator.refusals
    assert refusals[0] == Refusal(0, victim, refusals[0].reason)
    gone, back, again = metrics[1:]
    assert (metrics[0].population, gone.population, again.population) == (5, 5, 5)
    if method != "retrain":  # which trains anew at every request
        assert not gone.triggered
        assert not gone.subset_changed
    # Back, it is trained again where it is sampled, and refused again.
    found_out = any(refusal.request == 2 for refusal in refusals)
    assert back.population == 6 - found_out
    assert ran.outcome.counts["ignored"] == 1 + any(r.request in (2, 3) for r in refusals[1:])
    assert ran.outcome.counts["refused"] == len(refusals)
    if method == "finetune":
        assert found_out


@pytest.mark.parametrize("handling", ["sequential", "batch"])
@pytest.mark.parametrize("seed", range(3))
@EVERY
def test_the_population_is_the_traffic_without_the_refused(
    tmp_path: Path, method: str, handling: str, seed: int
) -> None:
    wanted = quick(editing={"requests": 5, "handling": handling}, network={"latency_ms": 3000})
    trace = record(tmp_path / "t.csv", at(TRAFFIC))
    ran = simulate(
        wanted, trace, method, seed, wrapped=lambda inner: Spoiling(inner, {0, 3, 7}, infinite)
    )
    coordinator, outcome = ran.world.coordinator, ran.outcome
    state = coordinator.state
    assert state is not None
    out = {refusal.client for refusal in coordinator.refusals}
    assert out  # some of three bad ones among nine partitions were met
    assert {client.partition for client in out} <= {0, 3, 7}
    assert set(state.population) == set(ran.world.fleet.clients) - out
    assert not out & set(state.subset)
    assert outcome.metrics[-1].population == len(state.population)
    assert {row.population for row in outcome.ledger if row.request == 5} == {
        len(state.population)
    }
    assert sum("was refused" in warning for warning in outcome.warnings) == len(
        coordinator.refusals
    )
    assert [metric.request for metric in outcome.metrics] == list(range(6))


def test_refused_work_alone_makes_no_new_model(tmp_path: Path) -> None:
    """Fine-tuning: the only newcomer is refused, so nothing is merged, sent or evaluated."""
    clean = ruined(tmp_path, (), "finetune", text="1 +a +b +c +d +e +f; 12 +g",
                   editing={"requests": 1}).outcome  # fmt: skip
    newcomer = clean.metrics[1].partition
    bad = ruined(tmp_path, [newcomer], "finetune", text="1 +a +b +c +d +e +f; 12 +g",
                 editing={"requests": 1})  # fmt: skip
    start, join = bad.outcome.metrics
    assert [refusal.request for refusal in bad.world.coordinator.refusals] == [1]
    assert (join.triggered, join.population, join.accuracy) == (False, 6, start.accuracy)
    rows = [row for row in bad.outcome.ledger if row.request == 1]
    assert [row.phase for row in rows if row.vehicle == "g"] == ["download", "train", "upload"]
    assert {row.triggered for row in rows} == {False}
    assert not any(row.phase == "evaluate" for row in rows)
    (sent,) = [row for row in rows if row.phase == "broadcast"]
    assert sent.t_start == sent.t_end


@pytest.mark.parametrize("kind", ["kfac", "diagonal"])
@EVERY
def test_training_that_diverges_everywhere_ends_with_one_line(
    tmp_path: Path, method: str, kind: str
) -> None:
    wanted = quick(
        learning={"lr": 1e12, "epochs": 2}, editing={"requests": 2}, fisher={"kind": kind}
    )
    with pytest.raises(EditError) as told:
        simulate(wanted, record(tmp_path / "t.csv", at(TRAFFIC)), method)
    line = str(told.value)
    assert line.startswith(
        "no client delivered a usable contribution; 6 uploads were refused, the"
    )
    assert "NaN or infinite" in line
    assert line.endswith("lower learning.lr")
    assert "\n" not in line


THREE: dict[str, Any] = {
    "text": "1 +a +b +c; 12 +d",
    "clients": {"initial": 3, "pool": 9},
}


def test_strict_mode_names_the_refusal_that_left_too_few(tmp_path: Path) -> None:
    """P = 2 of 3, both of whom are refused: one is left."""
    rules = {"rho": 0.7, "below_subset": "strict", "requests": 1}
    bad = [client.partition for client in initial_members(tmp_path, editing=rules, **THREE)]
    assert len(bad) == 2
    with pytest.raises(
        EditError, match=r"1 clients are left .* P = 2; .*; 2 uploads were refused"
    ):
        ruined(tmp_path, bad, editing=rules, **THREE)


def test_the_last_client_leaving_after_refusals_is_told_with_them(tmp_path: Path) -> None:
    rules = {"rho": 0.7, "requests": 1}
    bad = initial_members(tmp_path, editing=rules, **THREE)
    (alone,) = {"a", "b", "c"} - {client.vehicle for client in bad}
    leaves = {**THREE, "text": f"1 +a +b +c; 12 -{alone}"}
    with pytest.raises(ScenarioError, match=r"no client is left .*; 2 uploads were refused, the"):
        ruined(tmp_path, [client.partition for client in bad], editing=rules, **leaves)


def test_shrink_goes_on_below_p_after_refusals(tmp_path: Path) -> None:
    rules = {"rho": 0.7, "requests": 1}
    bad = [client.partition for client in initial_members(tmp_path, editing=rules, **THREE)]
    outcome = ruined(tmp_path, bad, editing=rules, **THREE).outcome
    start, join = outcome.metrics
    assert (start.population, start.subset) == (1, 1)
    assert (join.population, join.subset, join.replaced) == (2, 2, 1)
    outside, below, *refused = outcome.warnings
    assert "[M0/2, 2 M0] = [1.5, 6]" in outside
    assert below == "The population fell below P = 2 at 1 requests; the subset shrank with it."
    assert len(refused) == 2
