"""Requests that wait: answered one by one, or together."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from worlds import METHODS, TRAFFIC, Ran, run

from testbed.simulation.metric import Metric

EVERY = pytest.mark.parametrize("method", METHODS)


def test_sequential_requests_are_answered_one_by_one_in_order(tmp_path: Path) -> None:
    outcome = run(tmp_path, TRAFFIC, network={"latency_ms": 3000}).outcome
    answered = outcome.metrics[1:]
    assert [metric.request for metric in answered] == list(range(1, 9))
    assert all(metric.batch == 1 for metric in answered)
    for before, after in pairwise(answered):
        # An idle coordinator begins at once, a busy one when it is free.
        assert after.t_start == max(after.t, before.t_end)


@EVERY
def test_waiting_requests_make_one_batch(batched: Mapping[str, Ran], method: str) -> None:
    outcome = batched[method].outcome
    groups: dict[float, list[Metric]] = {}
    for metric in outcome.metrics[1:]:
        groups.setdefault(metric.t_start, []).append(metric)
    assert max(map(len, groups.values())) > 1
    for start, group in groups.items():
        assert {metric.batch for metric in group} == {len(group)}
        # All had arrived when it began, and all share one released model.
        assert max(metric.t for metric in group) <= start
        shared = {
            (m.t_end, m.population, m.subset, m.accuracy, m.triggered, m.replaced) for m in group
        }
        assert len(shared) == 1
    numbers = [metric.request for metric in outcome.metrics]
    assert numbers == list(range(9))


@EVERY
def test_a_batch_is_billed_once_on_its_last_request(
    batched: Mapping[str, Ran], method: str
) -> None:
    outcome = batched[method].outcome
    last = {}
    for metric in outcome.metrics:
        last[metric.t_start] = metric
    assert {row.request for row in outcome.ledger} == {m.request for m in last.values()}
    for metric in last.values():
        rows = [row for row in outcome.ledger if row.request == metric.request]
        expected = "batch" if metric.batch > 1 else metric.kind
        assert {row.kind for row in rows} == {expected}
        assert sum(row.phase == "broadcast" for row in rows) == 1
        assert sum(row.phase == "solve" for row in rows) <= 1


def test_the_groups_of_a_batch_by_hand(tmp_path: Path) -> None:
    """Each message takes 3 s: a retraining 3 + 3 + 3 s and the work in between."""
    metrics = run(
        tmp_path, "1 +a +b +c +d; 20 +e; 21 -a; 22 +f; 40 +g +h",
        "retrain",
        clients={"initial": 4}, network={"latency_ms": 3000},
        editing={"requests": 5, "handling": "batch"},
    ).outcome.metrics  # fmt: skip
    assert [(m.request, m.batch) for m in metrics] == [
        (0, 1), (1, 1), (2, 2), (3, 2), (4, 2), (5, 2),
    ]  # fmt: skip
    assert [int(m.t_start) for m in metrics] == [10, 20, 29, 29, 40, 40]
    assert [m.population for m in metrics] == [4, 5, 5, 5, 7, 7]


@EVERY
@pytest.mark.parametrize(
    ("text", "final"),
    [
        ("20 +e; 21 +x; 22 -x; 23 +x; 50 -x", {"a", "b", "c", "d", "e"}),
        ("20 +e; 21 -a; 22 +a; 23 -a; 50 +a", {"a", "b", "c", "d", "e"}),
        ("20 +e; 21 -a; 22 +a; 23 -a; 50 +f", {"b", "c", "d", "e", "f"}),
        ("20 +e; 21 -a; 22 +a; 23 +f; 50 -f", {"a", "b", "c", "d", "e"}),
        ("20 +e; 21 +x; 22 -x; 23 +y; 24 -y", {"a", "b", "c", "d", "e"}),
    ],
)
def test_coming_and_going_while_requests_wait_ends_at_the_truth(
    tmp_path: Path, method: str, text: str, final: set[str]
) -> None:
    ran = run(
        tmp_path, f"1 +a +b +c +d; {text}", method,
        clients={"initial": 4}, network={"latency_ms": 3000},
        editing={"requests": 5, "handling": "batch"},
    )  # fmt: skip
    state = ran.world.coordinator.state
    assert state is not None
    assert {client.vehicle for client in state.population} == final
    assert state.population == ran.world.fleet.clients
    assert set(state.subset) <= set(state.population)
    assert len(ran.outcome.metrics) == 6
