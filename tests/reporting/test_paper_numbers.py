"""What the figures of sweeps show is what the ledgers say."""

import re
import weakref
from collections import Counter
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from extents import boxes, texts

from testbed.experiments.rundir import Run
from testbed.ledger import TARIFFS, LedgerRow, totals
from testbed.reporting.comparison import by_method, column, costs
from testbed.reporting.intervals import mean
from testbed.reporting.paper.communication import breakdown, communication
from testbed.reporting.paper.difference import difference, differences
from testbed.reporting.paper.quantities import BYTES, QUANTITIES, TIME, pairs, saved
from testbed.reporting.paper.sweeps import (
    savings_against_density,
    savings_against_rho,
    scalability,
    traffic,
)
from testbed.reporting.paper.tradeoff import tradeoff
from testbed.reporting.paper.trigger import answers, trigger
from testbed.reporting.paper.waiting import waiting, waits
from testbed.reporting.settings import grouped, read
from testbed.reporting.style import COLUMN, PAGE, looks
from testbed.reporting.table import summarise

UNITS = {"s": 1, "min": 60, "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}


def lines_of(axes, method):
    """Return the lines of a method, told by its marker."""
    return [line for line in axes.lines if line.get_marker() == looks([method])[method].marker]


def test_quantities_are_the_totals_of_the_ledger(runs):
    for run in runs:
        total = totals(run.ledger)
        assert TIME.total(run) == pytest.approx(total.seconds)
        for name in TARIFFS:
            assert BYTES[name].total(run) == total.bytes[name].total


def test_runs_are_paired_by_seed(runs):
    methods = by_method(runs)
    both = pairs(methods["fsosa"], methods["retrain"][1:])
    assert [(own.method, own.seed, other.method, other.seed) for own, other in both] == [
        ("fsosa", 1, "retrain", 1)
    ]


def test_a_saving_is_one_of_sums():
    found = saved([(25.0, 100.0), (150.0, 300.0)])
    assert found.mean == pytest.approx(100 * (1 - 175 / 400))
    # Either seed alone, as resampling gives.
    assert (found.low, found.high) == (pytest.approx(50), pytest.approx(75))
    assert saved([]) is None
    assert saved([(0.0, 0.0)]) is None


@pytest.mark.parametrize("draw", [savings_against_rho, savings_against_density])
def test_savings_are_those_of_the_table(sweep, draw):
    where = "density=3.6" if draw is savings_against_rho else "rho=0.5"
    runs = read(sweep, [where])
    key = "editing.rho" if draw is savings_against_rho else "mobility.density"
    groups = grouped(runs, [key])
    panels = draw(runs, PAGE).axes
    assert [axes.get_title() for axes in panels] == [one.name for one in QUANTITIES]
    for place, axes in enumerate(panels):
        (line,) = lines_of(axes, "fsosa")
        expected = []
        for group in groups.values():
            one = next(s for s in summarise(group) if s.method == "fsosa")
            expected.append([one.seconds_saved, *one.bytes_saved.values()][place])
        assert sorted(line.get_ydata()) == pytest.approx(sorted(expected))
        (reference,) = lines_of(axes, "retrain")
        assert np.abs(reference.get_ydata()).max() < 1e-9


def test_density_is_shown_as_joins_and_leaves_per_minute(sweep):
    runs = read(sweep, ["rho=0.5"])
    (line,) = lines_of(savings_against_density(runs, PAGE).axes[0], "retrain")
    # Both densities have the same made-up traffic: 8 requests per run.
    spans = [np.ptp(column(run, "t")) for run in runs]
    assert line.get_xdata() == pytest.approx([60 * 8 * len(spans) / sum(spans)] * 2)


def test_cost_per_request_against_clients(tmp_path, make_run):
    for count in (20, 40):
        make_run(
            tmp_path / str(count), "retrain", requests=5,
            clients={"initial": count}, population_initial=count,
        )  # fmt: skip
    runs = read(tmp_path)
    axes = scalability(runs, PAGE).axes[0]
    (line,) = axes.lines
    assert line.get_xdata().tolist() == [20, 40]
    unit = UNITS[axes.get_ylabel()[len("per request (") : -1]]
    per_request = [totals(run.ledger).seconds / 5 for run in runs]
    assert line.get_ydata() * unit == pytest.approx(per_request)
    assert axes.get_ylim()[0] <= 0


def test_waiting_times_against_traffic_are_means_of_means(sweep):
    runs = read(sweep, ["rho=0.5"])
    axes = next(a for a in traffic(runs, PAGE).axes if a.get_title() == "time to forget")
    (line,) = lines_of(axes, "retrain")
    group = [run for run in runs if run.method == "retrain" and "3.6" in str(run.folder)]
    expected = np.mean([waits(run, "leave").mean() for run in group])
    unit = UNITS[axes.get_ylabel()[len("mean (") : -1]]
    assert line.get_ydata()[0] * unit == pytest.approx(expected)


def test_differences_are_paired_request_by_request(runs):
    methods = by_method(runs)
    found = differences(runs, lambda run: column(run, "accuracy"))
    assert list(found) == ["fsosa", "finetune"]
    gaps = [
        column(own, "accuracy") - column(other, "accuracy")
        for own, other in zip(methods["fsosa"], methods["retrain"], strict=True)
    ]
    assert found["fsosa"].values.mean == pytest.approx(np.mean(gaps, axis=0))
    assert found["fsosa"].values.low == pytest.approx(mean(gaps).low)
    axes = difference(runs, PAGE).axes[1]
    (line,) = lines_of(axes, "fsosa")
    own = np.mean([totals(run.ledger).seconds for run in methods["fsosa"]])
    other = np.mean([totals(run.ledger).seconds for run in methods["retrain"]])
    unit = UNITS[axes.get_title().removeprefix("time, ")]
    assert line.get_ydata()[-1] * unit == pytest.approx(own - other)


def test_only_common_seeds_are_compared(runs):
    lone = [run for run in runs if run.seed == 0 or run.method == "fsosa"]
    found = differences(lone, lambda run: column(run, "accuracy"))
    assert found["fsosa"].values.n == 1


def test_a_trade_off_has_a_point_per_rho(by_rho):
    axes = tradeoff(by_rho, PAGE).axes[0]
    marks = lines_of(axes, "fsosa")
    assert len(marks) == 2
    sizes = [mark.get_markersize() for mark in marks]
    assert sizes[0] < sizes[1]
    group = grouped(by_rho, ["editing.rho"])[(0.3,)]
    own = by_method(group)["fsosa"]
    unit = UNITS[axes.get_xlabel().removeprefix("time, ")]
    assert marks[0].get_xdata()[0] * unit == pytest.approx(np.mean([TIME.total(r) for r in own]))
    final = 100 * np.mean([column(run, "accuracy")[-1] for run in own])
    assert marks[0].get_ydata()[0] == pytest.approx(final)


def made(rows, ledger=(), **manifest):
    """A run whose metrics are (kind, batch, t_end, population, subset changed)."""
    names = ("kind", "batch", "t_end", "population", "subset_changed")
    table = pd.DataFrame(rows, columns=names).assign(request=range(len(rows)), t=0.0)
    config = {"editing": {"rho": 0.5}}
    base = {"method": "fsosa", "seed": 0, "config": config, "subset_size": 5}
    return Run(Path("run"), {**base, **manifest}, tuple(ledger), table)


def test_bounds_go_by_the_clients_before_the_request():
    run = made([
        ("init", 1, 0.0, 10, True),
        ("leave", 1, 1.0, 9, True),     # P/M = 5/10
        ("join", 1, 2.0, 10, False),    # P/(M+1) = 5/10
        ("leave", 1, 3.0, 9, False),    # 5/10
        ("leave", 1, 3.0, 8, True),     # 5/9, released in the same moment
        ("join", 3, 4.0, 9, True),      # a batch of three: min(1, 2 * 0.5 * 3)
        ("leave", 3, 4.0, 9, True),
        ("join", 3, 4.0, 9, True),
        ("join", 1, 5.0, 10, False),    # 5/10
    ])  # fmt: skip
    table = answers(run)
    assert table["what"].tolist() == ["leave", "join", "leave", "leave", "batch", "join"]
    assert table["bound"].tolist() == pytest.approx([0.5, 0.5, 0.5, 5 / 9, 1.0, 0.5])
    assert table["changed"].tolist() == [True, False, False, True, True, False]
    assert table["k"].tolist() == [1, 1, 1, 1, 3, 1]


def test_a_population_below_p_changes_the_subset_for_sure():
    run = made([("init", 1, 0.0, 4, True), ("leave", 1, 1.0, 3, True)])
    assert answers(run)["bound"].tolist() == [1.0]


def test_trigger_rates_are_counted_over_all_runs(by_rho):
    axes = trigger(by_rho).axes[0]
    own = [run for run in by_rho if run.method == "fsosa"]
    table = pd.concat([answers(run) for run in own])
    leaves = table[table["what"] == "leave"]
    bound, measured = axes.lines[0], lines_of(axes, "fsosa")[0]
    assert measured.get_xdata().tolist() == [0.3, 0.5]
    least, most = sorted(len(leaves[leaves["rho"] == rho]) for rho in (0.3, 0.5))
    n = str(most) if least == most else f"{least} to {most}"
    assert axes.get_title() == f"deletions, n = {n}\nbound P/M"
    for place, rho in enumerate((0.3, 0.5)):
        some = leaves[leaves["rho"] == rho]
        assert measured.get_ydata()[place] == pytest.approx(100 * some["changed"].mean())
        assert bound.get_ydata()[place] == pytest.approx(100 * some["bound"].mean())


def test_batches_stand_at_rho_times_their_size(tmp_path, make_run):
    for rho in (0.1, 0.2):
        make_run(tmp_path / str(rho), "fsosa", requests=9, batch=3, editing={"rho": rho})
    (axes,) = trigger(read(tmp_path)).axes
    assert axes.get_title() == "batches, n = 3\nbound min(1, 2ρk)"
    assert axes.lines[0].get_xdata() == pytest.approx([0.3, 0.6])
    assert axes.lines[0].get_ydata() == pytest.approx([60, 100])


def test_waits_are_from_request_to_release(runs):
    run = by_method(runs)["retrain"][0]
    metrics = run.metrics
    left = metrics[metrics["kind"] == "leave"]
    assert waits(run, "leave") == pytest.approx(left["t_end"] - left["t"])
    assert len(waits(run, "join")) + len(waits(run, "leave")) == 31


def test_the_distribution_counts_every_leave_of_every_seed(runs):
    forget, include = waiting(runs).axes
    group = by_method(runs)["fsosa"]
    seconds = np.sort(np.concatenate([waits(run, "leave") for run in group]))
    (line,) = lines_of(forget, "fsosa")
    unit = UNITS[forget.get_xlabel().split("(")[1][:-1]]
    assert line.get_xdata()[1:] * unit == pytest.approx(seconds)
    assert line.get_ydata()[-1] == 100
    assert line.get_ydata()[1] == pytest.approx(100 / len(seconds))
    # Both methods heard the same traffic, and each of their lines is over so many of it.
    joins = sum(len(waits(run, "join")) for run in group)
    assert include.get_title() == f"joins, n = {joins}"


def test_lines_over_different_numbers_of_requests_say_so():
    long = made([("init", 1, 0, 10, True), *[("leave", 1, 1.0, 9, True)] * 12])
    short = made([("init", 1, 0, 10, True), *[("leave", 1, 1.0, 9, True)] * 5], method="retrain")
    (axes,) = waiting([long, short]).axes
    assert axes.get_title() == "leaves, n = 5 to 12"


@pytest.mark.parametrize("longest", [0.19, 0.204, 0.31, 0.52, 9.7, 11.0])
def test_the_times_of_two_panels_stand_apart(longest):
    run = made([
        ("init", 1, 0, 10, True), ("leave", 1, longest, 9, True), ("join", 1, longest, 10, True),
    ])  # fmt: skip
    figure = waiting([run], COLUMN)
    placed = [box for box, text in zip(boxes(figure), texts(figure), strict=True)
              if re.fullmatch(r"[\d.]+", text.get_text())]  # fmt: skip
    below = sorted((box for box in placed if box.y0 == min(box.y0 for box in placed)),
                   key=lambda box: box.x0)  # fmt: skip
    assert len(below) >= 4
    digit = 0.6 * below[0].height
    assert all(right.x0 - left.x1 >= digit for left, right in pairwise(below))


def row(phase, request=1, **values):
    base = dict.fromkeys(LedgerRow.__dataclass_fields__, 0)
    return LedgerRow(**{**base, "phase": phase, "request": request, "result": "ok",
                        "triggered": True, "population": 10, "subset": 4, **values})  # fmt: skip


def test_an_upload_is_a_model_and_the_fisher_information():
    run = made([("init", 1, 0.0, 10, True)], [
        row("broadcast", request=0, bytes_down=10_000),
        row("upload", request=0, bytes_up=2_500),
        row("download", bytes_down=1_000),
        row("upload", bytes_up=2_500),
        row("upload", bytes_up=500, result="lost"),
        row("broadcast", bytes_down=10_000),
        row("broadcast", request=2, bytes_down=10_000, triggered=False),
    ])  # fmt: skip
    found = breakdown(run)
    # A model has 1,000 bytes, so of an upload 1,500 are Fisher; of half an upload, half.
    assert found["incremental"] == pytest.approx(
        {"broadcast": 10_000, "model": 1_000 + 1_200, "Fisher": 1_800}
    )
    assert found["broadcast"]["broadcast"] == 20_000
    # The whole subset is charged: four uploads, and no download.
    assert found["paper"] == pytest.approx({"broadcast": 20_000, "model": 4_000, "Fisher": 6_000})


def test_models_trained_in_rounds_have_no_fisher():
    run = made([("init", 1, 0.0, 10, True)], [
        row("broadcast", bytes_down=10_000),
        row("upload", bytes_up=1_000, round=1),
        row("upload", bytes_up=2_500, round=0),
    ])  # fmt: skip
    assert breakdown(run)["broadcast"] == pytest.approx(
        {"broadcast": 10_000, "model": 2_000, "Fisher": 1_500}
    )


def test_parts_add_up_to_the_tariffs(runs, batched):
    for run in (*runs, *batched):
        for name, parts in breakdown(run).items():
            assert sum(parts.values()) == pytest.approx(totals(run.ledger).bytes[name].total)
            assert all(value >= 0 for value in parts.values())


def test_bars_end_where_the_total_stands_beside_retrains(runs):
    panels = communication(runs, PAGE).axes
    names = [label.get_text() for label in panels[0].get_yticklabels()]
    methods = [summary.label for summary in summarise(runs)]
    assert names == methods
    for axes, tariff in zip(panels, TARIFFS, strict=True):
        ends = {}
        for bar in axes.patches:
            at = round(bar.get_y() + bar.get_height() / 2, 6)
            ends[at] = max(ends.get(at, 0.0), bar.get_x() + bar.get_width())
        for end, summary in zip(ends.values(), summarise(runs), strict=True):
            assert end == pytest.approx(100 - summary.bytes_saved[tariff])


def test_each_run_is_worked_out_once(runs, monkeypatch):
    import testbed.reporting.comparison as comparison

    fresh = replace(runs[0])
    counted = []
    monkeypatch.setattr(comparison, "in_order", lambda rows: counted.append(1) or ())
    for _ in range(3):
        comparison.costs(fresh)
    assert len(counted) == 1


class Row(LedgerRow):
    """A row that can be told to be gone; the real one has slots."""


class Stream:
    """A ledger that is read anew each time, and counts how many of its rows are held."""

    def __init__(self, rows):
        self.rows, self.held, self.most = rows, 0, 0

    def __iter__(self):
        for row in self.rows:
            fresh = Row(**asdict(row))
            self.held += 1
            self.most = max(self.most, self.held)
            weakref.finalize(fresh, self.let_go)
            yield fresh

    def let_go(self):
        self.held -= 1


@pytest.mark.parametrize("method", ["fsosa", "retrain"])
def test_a_long_ledger_is_never_held_whole(runs, method):
    run = by_method(runs)[method][0]
    ledger = Stream(run.ledger)
    streamed = replace(run, ledger=ledger)
    assert costs(streamed) == costs(run)
    assert breakdown(streamed) == breakdown(run)
    assert summarise([streamed]) == summarise([run])
    longest = max(Counter(row.request for row in run.ledger).values())
    assert len(run.ledger) > 3 * longest
    # Those of a request, until those of the next one are there.
    assert 0 < ledger.most <= 2 * longest + 2
