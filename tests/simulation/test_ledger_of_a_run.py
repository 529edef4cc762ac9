"""What the rows of a real run must satisfy, whatever the method."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path

import pytest
import torch
from worlds import METHODS, Ran, at, experiment, record, simulate

from testbed.learning.blocks import blocks
from testbed.learning.contribution import serialise, serialise_model
from testbed.ledger import COORDINATOR, EVERYONE, TARIFFS, LedgerRow, per_request, totals
from testbed.simulation.clock import micros

EVERY = pytest.mark.parametrize("method", METHODS)
RUNS = pytest.mark.parametrize("kind", ["ran", "batched"])
WORK = ("download", "train", "fisher", "upload")


def span(row: LedgerRow) -> int:
    return micros(row.t_end) - micros(row.t_start)


@pytest.fixture
def one(request: pytest.FixtureRequest, kind: str, method: str) -> Ran:
    runs: Mapping[str, Ran] = request.getfixturevalue(kind)
    return runs[method]


@RUNS
@EVERY
def test_every_row_is_computing_or_transferring_and_nothing_else(one: Ran) -> None:
    for row in one.outcome.ledger:
        assert span(row) == micros(row.compute_s_billed) + micros(row.network_s) >= 0
        assert min(row.compute_s_billed, row.network_s) == 0
        moves = row.phase in ("broadcast", "download", "upload")
        assert bool(row.bytes_down or row.bytes_up) == moves
        assert (row.bytes_down > 0) == (row.phase in ("broadcast", "download"))
        assert row.compute_s_measured is None
        assert row.byte_basis == "serialised"


@RUNS
@EVERY
def test_a_client_downloads_trains_informs_and_uploads_without_a_gap(one: Ran) -> None:
    steps = defaultdict(list)
    for row in one.outcome.ledger:
        if row.vehicle not in (COORDINATOR, EVERYONE):
            steps[row.request, row.vehicle].append(row)
    assert steps
    for (request, _), rows in steps.items():
        tuning = request > 0 and one.world.method == "finetune"
        expected = tuple(phase for phase in WORK if not (tuning and phase == "fisher"))
        assert tuple(row.phase for row in rows) == expected
        assert all(before.t_end == after.t_start for before, after in pairwise(rows))
        assert all(span(row) > 0 for row in rows)


@RUNS
@EVERY
def test_a_request_is_orders_then_solve_then_broadcast(one: Ran) -> None:
    for _, group in groupby(one.outcome.ledger, key=lambda row: row.request):
        rows = list(group)
        clients = [row for row in rows if row.vehicle not in (COORDINATOR, EVERYONE)]
        solves = [row for row in rows if row.phase == "solve"]
        (sent,) = (row for row in rows if row.phase == "broadcast")
        end = min(row.t_start for row in rows)
        if clients:
            assert len({r.t_start for r in clients if r.phase == "download"}) == 1
            end = max(row.t_end for row in clients)
        for solve in solves:
            assert solve.t_start == end
            end = solve.t_end
        assert sent.t_start == end
        assert sent.vehicle == EVERYONE
        evaluated = [row for row in rows if row.phase == "evaluate"]
        assert len(evaluated) == sent.triggered
        assert all(row.t_start == row.t_end == sent.t_end for row in evaluated)


@EVERY
def test_one_request_is_over_before_the_next_begins(ran: Mapping[str, Ran], method: str) -> None:
    spans = [
        (min(row.t_start for row in rows), max(row.t_end for row in rows))
        for _, group in groupby(ran[method].outcome.ledger, key=lambda row: row.request)
        for rows in [list(group)]
    ]
    assert len(spans) == 9
    assert all(before[1] <= after[0] for before, after in pairwise(spans))


@RUNS
@EVERY
def test_a_request_is_triggered_exactly_when_work_was_done(one: Ran) -> None:
    for _, group in groupby(one.outcome.ledger, key=lambda row: row.request):
        rows = list(group)
        worked = any(row.phase not in ("broadcast",) for row in rows)
        assert {row.triggered for row in rows} == {worked}
        (sent,) = (row for row in rows if row.phase == "broadcast")
        assert (span(sent) > 0) == worked


@RUNS
@EVERY
def test_an_untriggered_request_keeps_the_score(one: Ran) -> None:
    for before, after in pairwise(one.outcome.metrics):
        if not after.triggered:
            assert (after.accuracy, after.loss) == (before.accuracy, before.loss)
            assert not after.subset_changed


def test_the_model_changes_exactly_when_an_edit_triggers(trace: Path) -> None:
    """Cut the run after each request and compare the released models."""
    outcomes = [
        simulate(experiment(editing={"requests": wanted}), trace).outcome for wanted in range(1, 9)
    ]
    full = outcomes[-1]
    assert [metric.triggered for metric in full.metrics].count(False) >= 2
    for before, after in pairwise(outcomes):
        last = after.metrics[-1]
        shared = after.ledger[: len(before.ledger)]
        assert [replace(r, run="") for r in shared] == [replace(r, run="") for r in before.ledger]
        same = all(torch.equal(before.model[name], after.model[name]) for name in after.model)
        assert same == (not last.triggered)


@EVERY
def test_bytes_are_those_of_the_real_messages(ran: Mapping[str, Ran], method: str) -> None:
    one = ran[method]
    model = len(serialise_model(one.outcome.model))
    contributions = one.world.executor.train(range(9))
    (size,) = {len(serialise(trained.contribution)) for trained in contributions}
    for row in one.outcome.ledger:
        tuned = method == "finetune" and row.request > 0
        expected = {
            "download": (model, 0),
            "upload": (0, model if tuned else size),
            "broadcast": (model * row.population, 0),
        }.get(row.phase, (0, 0))
        assert (row.bytes_down, row.bytes_up) == expected


def test_one_clients_seconds_by_hand(ran: Mapping[str, Ran]) -> None:
    """Modelled time from layer shapes, sample counts and the profiles of the configuration."""
    one = ran["fsosa"]
    conv1, conv2, dense1, dense2 = 9 * 32 * 64, 32 * 9 * 64 * 16, 256 * 128, 128 * 10
    forward = 2 * (conv1 + conv2 + dense1 + dense2)
    # Columns with the bias, rows, places: A from every input, G from nine backward passes.
    shapes = [(10, 32, 64), (289, 64, 16), (257, 128, 1), (129, 10, 1)]
    inform = forward * 10 + sum(2 * t * (i * i + 9 * o * o) for i, o, t in shapes)
    speed = 1.28e12 * 0.3
    model = len(serialise_model(one.task.initial))
    upload = len(serialise(one.world.executor.train([0])[0].contribution))
    partition = {m.vehicle: m.partition for m in one.outcome.metrics}
    vehicle = next(
        row.vehicle for row in one.outcome.ledger if row.request and row.phase == "train"
    )
    samples = len(one.task.parts[partition[vehicle]])
    expected = {
        "download": 0.01 + 8 * model / 40e6,
        "train": 3 * forward * samples / speed,
        "fisher": inform * samples / speed,
        "upload": 0.01 + 8 * upload / 40e6,
    }
    for row in one.outcome.ledger:
        if row.vehicle == vehicle and row.request:
            # Rounded up to whole microseconds.
            assert 0 <= row.t_end - row.t_start - expected[row.phase] < 1.001e-6


def test_a_solve_by_hand(ran: Mapping[str, Ran]) -> None:
    one = ran["fsosa"]
    flops = 50 * 3 * sum(2 * (b.rows**2 * b.columns + b.rows * b.columns**2)
                         for b in blocks(one.task.model))  # fmt: skip
    for row in one.outcome.ledger:
        if row.phase == "solve":
            assert row.subset == 3
            assert 0 <= row.compute_s_billed - flops / (30e12 * 0.3) < 1.001e-6


def test_a_faster_link_and_device_shorten_their_own_steps_only(trace: Path) -> None:
    base = simulate(experiment(), trace).outcome.ledger
    fast = simulate(
        experiment(network={"rate_mbps": 80, "latency_ms": 0}, device={"peak_tflops": 2.56}), trace
    ).outcome.ledger
    for before, after in zip(base, fast, strict=True):
        assert (before.phase, before.vehicle, before.request) == (
            after.phase, after.vehicle, after.request,
        )  # fmt: skip
        if before.phase in ("train", "fisher"):
            assert abs(before.compute_s_billed - 2 * after.compute_s_billed) < 2.1e-6
        if before.network_s:
            assert abs(before.network_s - 0.01 - 2 * after.network_s) < 2.1e-6


@RUNS
@EVERY
def test_reused_marks_a_partition_trained_before_in_this_run(one: Ran) -> None:
    made: set[tuple[str, int]] = set()
    holder = {client.vehicle: client.partition for client in one.world.fleet.clients}
    holder |= {metric.vehicle: metric.partition for metric in one.outcome.metrics}
    seen: set[int] = set()
    for row in one.outcome.ledger:
        tuning = one.world.method == "finetune" and row.request > 0
        if row.phase == "train":
            # Vehicle a returns with the partition it had, so a name stands for one partition.
            part = holder[row.vehicle]
            assert row.reused == (part in seen and not tuning)
            seen.add(part)
            if row.reused:
                made.add((row.vehicle, row.request))
        elif row.phase in ("fisher", "upload"):
            assert row.reused == ((row.vehicle, row.request) in made)
        else:
            assert not row.reused
    assert bool(made) == (one.world.method == "retrain")


@RUNS
@EVERY
def test_rows_metrics_totals_and_progress_agree(one: Ran) -> None:
    rows, metrics, last = one.outcome.ledger, one.outcome.metrics, one.seen[-1]
    total = totals(rows)
    assert last.phase == "editing"
    assert last.done == metrics[-1].request == len(metrics) - 1 == one.outcome.counts["requests"]
    assert last.wanted == 8
    assert last.quality == ("accuracy", metrics[-1].accuracy)
    assert last.subset == metrics[-1].subset
    assert last.bytes == {name: total.bytes[name].total for name in TARIFFS}
    assert last.triggered == total.triggered
    answered = {(m.t_start, m.t_end): m for m in metrics[1:]}
    assert len(answered) == total.requests
    assert total.seconds == pytest.approx(sum(end - start for start, end in answered))
    assert total.triggered == sum(m.triggered for m in answered.values())
    for cost in per_request(rows):
        metric = metrics[cost.request]
        assert cost.seconds == pytest.approx(metric.t_end - metric.t_start, abs=1e-9)
        assert cost.triggered == metric.triggered
        solved = {r.result for r in rows if r.request == cost.request and r.phase == "solve"}
        assert solved <= {"ok" if metric.converged else "unconverged"}
    assert {r.result for r in rows if r.phase != "solve"} == {"ok"}
    incremental = sum(
        r.bytes_down + r.bytes_up
        for r in rows
        if r.request and (r.phase != "broadcast" or r.triggered)
    )
    assert total.bytes["incremental"].total == incremental


@RUNS
@EVERY
def test_the_population_of_a_row_is_that_after_its_requests(one: Ran) -> None:
    population, after = 6, {0: 6}
    for metric in one.outcome.metrics[1:]:
        population += 1 if metric.kind == "join" else -1
        after[metric.request] = population
    for row in one.outcome.ledger:
        assert row.population == after[row.request]
        assert row.subset == (0 if one.world.method == "finetune" else 3)
    if one.experiment.editing.handling == "sequential":
        assert {m.request: m.population for m in one.outcome.metrics} == after


@RUNS
def test_every_method_sees_the_same_requests(request: pytest.FixtureRequest, kind: str) -> None:
    runs = request.getfixturevalue(kind)
    seen = {
        method: [(m.request, m.t, m.kind, m.vehicle, m.partition) for m in one.outcome.metrics]
        for method, one in runs.items()
    }
    assert seen["fsosa"] == seen["retrain"] == seen["finetune"]
    assert len({runs[method].outcome.trace.events for method in METHODS}) == 1


def test_every_method_starts_from_the_same_model(ran: Mapping[str, Ran]) -> None:
    first = {
        method: [
            replace(row, run="", method="", subset=0)
            for row in one.outcome.ledger
            if row.request == 0
        ]
        for method, one in ran.items()
    }
    assert first["fsosa"] == first["retrain"] == first["finetune"]
    scores = {
        (one.outcome.metrics[0].accuracy, one.outcome.metrics[0].loss) for one in ran.values()
    }
    assert len(scores) == 1


def test_all_rows_of_a_run_say_whose_they_are(ran: Mapping[str, Ran]) -> None:
    for method, one in ran.items():
        assert {(r.seed, r.method, r.rho, r.density) for r in one.outcome.ledger} == {
            (0, method, 0.5, None)
        }
        (run,) = {row.run for row in one.outcome.ledger}
        assert run.startswith(f"{method}-")
        assert len(run) == len(method) + 9


def test_measured_time_is_billed_and_kept(trace: Path) -> None:
    measured = simulate(experiment(time={"mode": "measured"}), trace).outcome
    modelled = simulate(experiment(), trace).outcome
    assert all(row.compute_s_measured is None for row in modelled.ledger)
    for row in measured.ledger:
        if row.phase in ("train", "fisher", "solve"):
            assert row.compute_s_measured is not None
            assert row.compute_s_measured > 0
            assert 0 <= row.compute_s_billed - row.compute_s_measured < 1.001e-6
        elif row.phase == "evaluate":
            # The experimenter's work: written down, charged to nobody.
            assert row.compute_s_measured is not None
            assert row.compute_s_measured > 0 == row.compute_s_billed
        else:
            assert row.compute_s_measured is None
    free = ("t_start", "t_end", "compute_s_measured", "compute_s_billed", "run")

    def rest(rows: Iterable[LedgerRow]) -> list[LedgerRow]:
        # Rows stand in order of time, which is not the same for both.
        ordered = sorted(rows, key=lambda row: (row.request, row.vehicle, row.phase))
        return [replace(row, **dict.fromkeys(free)) for row in ordered]

    assert rest(measured.ledger) == rest(modelled.ledger)
    assert measured.metrics[-1].accuracy == modelled.metrics[-1].accuracy


def test_the_density_of_the_traffic_is_taken_from_its_header(tmp_path: Path) -> None:
    path = record(tmp_path / "t.csv", at("1 +a +b; 20 -a"))
    small = experiment(
        clients={"initial": 2}, editing={"requests": 1}, fisher={"kind": "diagonal"}
    )
    text = path.read_text()
    for written, expected in (("2.5", 2.5), ("dense", None), ("null", None)):
        path.write_text(f"# density: {written}\n{text}")
        assert {row.density for row in simulate(small, path).outcome.ledger} == {expected}
