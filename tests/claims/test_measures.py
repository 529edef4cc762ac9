"""Every measure against the same number worked out from the files of real runs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cards import STUDY

from testbed.claims.costs import relative, saved, share, unselected
from testbed.claims.law import replaced, triggered, unstable, violations
from testbed.claims.measured import Evidence
from testbed.claims.quality import difference, lead, quality
from testbed.claims.trends import rise
from testbed.errors import ConfigError, ResultsError
from testbed.experiments.grid import read_grid
from testbed.experiments.sweep import sweep
from testbed.reporting.settings import grouped, read

METHODS = "fsosa,retrain,finetune,fedavg"


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sweep over rho with three seeds and real training."""
    folder = tmp_path_factory.mktemp("measures")
    (folder / "study.yaml").write_text(STUDY)
    grid = read_grid(
        folder / "study.yaml", ["rho=0.5,1.0"], ["scale=small"], seeds="0:3", methods=METHODS
    )
    assert not sweep(grid, folder / "out").failed
    return folder / "out"


@pytest.fixture(scope="module")
def settings(studied: Path) -> dict[tuple[float], Evidence]:
    groups = grouped(read(studied), ["editing.rho"])
    return {values: Evidence(runs, "paper") for values, runs in groups.items()}


@pytest.fixture
def half(settings: dict[tuple[float], Evidence]) -> Evidence:
    return settings[0.5,]


def table(evidence: Evidence, method: str, name: str) -> list[pd.DataFrame]:
    """Return a table of every seed, in order of seed."""
    runs = sorted(evidence.of(method), key=lambda run: run.seed)
    frames = [pd.read_csv(run.folder / f"{name}.csv") for run in runs]
    return [frame[frame["request"] > 0] if name == "ledger" else frame for frame in frames]


def seconds(evidence: Evidence, method: str) -> np.ndarray:
    """Return the time of all requests: end minus start of each that was handled."""
    totals = []
    for metrics in table(evidence, method, "metrics"):
        answered = metrics[metrics["request"] > 0]
        totals.append((answered["t_end"] - answered["t_start"]).sum())
    return np.array(totals)


def test_time_is_saved_against_retrain(half: Evidence) -> None:
    own, other = seconds(half, "fsosa"), seconds(half, "retrain")
    found = saved(half, "time")
    assert float(found.value.mean) == pytest.approx(100 * (1 - own.sum() / other.sum()), abs=1e-6)
    assert found.value.low <= found.value.mean <= found.value.high
    assert (found.value.n, found.beside) == (3, {})
    assert float(relative(half, "time").value.mean) == pytest.approx(own.sum() / other.sum())


def test_bytes_are_priced_by_the_cards_tariff_and_shown_by_the_others(half: Evidence) -> None:
    def broadcast(method: str) -> int:
        return sum(
            int(f["bytes_down"].sum() + f["bytes_up"].sum()) for f in table(half, method, "ledger")
        )

    found = saved(Evidence(half.runs, "broadcast"), "bytes")
    expected = 100 * (1 - broadcast("fsosa") / broadcast("retrain"))
    assert float(found.value.mean) == pytest.approx(expected)
    assert set(found.beside) == {"incremental", "paper"}
    other = saved(half, "bytes")
    assert other.beside["broadcast"] == pytest.approx(expected)
    assert found.beside["paper"] == pytest.approx(float(other.value.mean))
    multiple = relative(half, "bytes")
    assert float(multiple.value.mean) == pytest.approx(1 - float(other.value.mean) / 100)
    assert multiple.value.low <= multiple.value.mean <= multiple.value.high
    assert multiple.beside["broadcast"] == pytest.approx(1 - expected / 100)


def test_shares_of_the_bytes_add_up(half: Evidence) -> None:
    parts = [float(share(half, part).value.mean) for part in ("broadcast", "model", "Fisher")]
    assert sum(parts) == pytest.approx(100)
    assert min(parts) > 0


def test_who_is_not_selected_uploads_nothing(half: Evidence) -> None:
    assert float(unselected(half).value.mean) == 0
    run = half.of("fsosa")[0]
    upload = next(row for row in run.ledger if row.request > 0 and row.phase == "upload")
    metrics = run.metrics[run.metrics["request"] > 0]
    idle = int(metrics.loc[metrics["replaced"] == 0, "request"].iloc[0])
    told = replace(run, ledger=(*run.ledger, replace(upload, request=idle)))
    found = unselected(Evidence((told,)))
    assert float(found.value.mean) == upload.bytes_up > 0
    twice = replace(run, ledger=(*run.ledger, upload))
    with pytest.raises(
        ResultsError, match=r"2 clients uploaded for request \d+, which replaced 1"
    ):
        unselected(Evidence((twice,)))


def test_a_model_is_as_large_as_its_diagonal_fisher(half: Evidence) -> None:
    """By the tariff `paper` models and Fisher information are uploaded and nothing else."""
    model, fisher = (float(share(half, part).value.mean) for part in ("model", "Fisher"))
    assert fisher == pytest.approx(model, rel=0.1)


def test_quality_is_compared_request_by_request(half: Evidence) -> None:
    own, other = (table(half, method, "metrics") for method in ("fsosa", "retrain"))
    ends = [
        100 * (a["accuracy"].iloc[-1] - b["accuracy"].iloc[-1])
        for a, b in zip(own, other, strict=True)
    ]
    assert float(difference(half).value.mean) == pytest.approx(np.mean(ends))
    means = [100 * (a["accuracy"] - b["accuracy"]).mean() for a, b in zip(own, other, strict=True)]
    assert float(difference(half, at="mean").value.mean) == pytest.approx(np.mean(means))
    level = np.mean([100 * a["accuracy"].iloc[-1] for a in own])
    assert float(quality(half).value.mean) == pytest.approx(level)


def test_a_lead_is_over_the_best_or_the_worst_of_the_others(half: Evidence) -> None:
    over = ["finetune", "fedavg"]
    gaps = sorted(float(difference(half, against=each).value.mean) for each in over)
    assert float(lead(half, over, "smallest").value.mean) == gaps[0]
    assert float(lead(half, over, "largest").value.mean) == gaps[1]


def test_subsets_change_as_often_as_they_did(half: Evidence) -> None:
    changed = expected = 0.0
    for metrics in table(half, "fsosa", "metrics"):
        for before, after in zip(
            metrics.iloc[:-1].itertuples(), metrics.iloc[1:].itertuples(), strict=True
        ):
            if after.kind == "leave":
                changed += after.subset_changed
                expected += min(1.0, 3 / before.population)
    assert expected > 0
    assert float(triggered(half, "leave").value.mean) == pytest.approx(changed / expected)


def test_batches_are_counted_once(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    grid = read_grid(
        tmp_path / "study.yaml",
        ["rho=0.5"],
        ["fidelity=cost", "scale=small", "editing.handling=batch", "editing.requests=60",
         "mobility.schedule.changes=60", "mobility.schedule.interval=0.002", "clients.pool=40"],
        methods="fsosa",
    )  # fmt: skip
    assert not sweep(grid, tmp_path / "out").failed
    (run,) = read(tmp_path / "out")
    evidence = Evidence((run,), "paper")
    batches = {}
    for row in run.metrics.itertuples():
        if row.batch > 1:
            batches[row.t_end] = (row.batch, row.subset_changed, row.replaced)
    assert batches
    bounds = [2 * 0.5 * k for k, _, _ in batches.values()]
    counts = [number for _, _, number in batches.values()]
    assert float(replaced(evidence).value.mean) == pytest.approx(sum(counts) / sum(bounds))
    changes = sum(changed for _, changed, _ in batches.values())
    capped = sum(min(1.0, bound) for bound in bounds)
    assert float(triggered(evidence, "batch").value.mean) == pytest.approx(changes / capped)


def test_what_rises_with_rho_does(settings: dict[tuple[float], Evidence], half: Evidence) -> None:
    whole = settings[1.0,]
    edits = float(rise(settings, "edits").value.mean)
    assert edits > 0
    rates = [
        np.mean(
            [
                frame.loc[frame["request"] > 0, "triggered"].mean()
                for frame in table(each, "fsosa", "metrics")
            ]
        )
        for each in (half, whole)
    ]
    assert edits == pytest.approx(100 * (rates[1] - rates[0]))
    times = [seconds(each, "fsosa") for each in (half, whole)]
    assert float(rise(settings, "time").value.mean) == pytest.approx((times[1] - times[0]).mean())
    levels = [
        np.mean([frame["accuracy"].mean() for frame in table(each, "fsosa", "metrics")])
        for each in (half, whole)
    ]
    assert float(rise(settings, "quality").value.mean) == pytest.approx(
        100 * (levels[1] - levels[0])
    )


def test_bytes_that_rise_are_shown_by_every_tariff(
    settings: dict[tuple[float], Evidence], half: Evidence
) -> None:
    sent = [
        np.mean([(f["bytes_down"] + f["bytes_up"]).sum() for f in table(each, "fsosa", "ledger")])
        for each in (half, settings[1.0,])
    ]
    found = rise(settings, "bytes")
    assert found.beside["broadcast"] == pytest.approx((sent[1] - sent[0]) / 1e6)
    assert set(found.beside) == {"incremental", "broadcast"}
    assert float(found.value.mean) > 0


def test_neighbours_are_no_further_apart_than_rho() -> None:
    # M = 10, P = 5: one half, which is rho; with rho 0.55 P is the same, and the ratio smaller.
    assert float(unstable(Evidence(), [0.5], [10, 10]).value.mean) == 1
    assert float(unstable(Evidence(), [0.55], [10, 10]).value.mean) == pytest.approx(0.5 / 0.55)
    found = unstable(Evidence(), [0.5], [4, 5])
    assert found.value.n == 4
    with pytest.raises(ConfigError, match="no population from 2 to 3 has a subset"):
        unstable(Evidence(), [0.1], [2, 3])


def test_the_coupling_is_the_best_one() -> None:
    found = violations(Evidence(), largest=4, most=2)
    assert float(found.value.mean) == 0
    assert found.value.n > 100


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda half: saved(half, "time", method="pfnm"), "runs fsosa, .* and not pfnm"),
        (lambda half: saved(Evidence(half.runs), "bytes"), "bytes need the card's tariff"),
        (lambda half: rise({(1,): half}, "quality"), "rise compares settings"),
    ],
)  # fmt: skip
def test_a_question_that_makes_no_sense_is_refused(half, call, told) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match=told):
        call(half)


def test_what_the_runs_do_not_hold_is_not_made_up(half: Evidence) -> None:
    with pytest.raises(ResultsError, match="no batch was handled"):
        replaced(half)
    with pytest.raises(ResultsError, match="no batch was handled"):
        triggered(half, "batch")
    still = {(1,): half, (2,): half}
    assert float(rise(still, "quality").value.mean) == 0
