"""The same number wherever it is shown: rows, totals, curves, figures, table."""

import csv
import dataclasses
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.experiments.rundir import Run
from testbed.ledger import COLUMNS, TARIFFS, LedgerRow, per_request, totals
from testbed.reporting.comparison import by_method, cumulative
from testbed.reporting.figures import cumulative_bytes, cumulative_time
from testbed.reporting.table import summarise, to_csv

LAST = 8
ROWS = st.builds(
    LedgerRow,
    **{
        **dict.fromkeys(COLUMNS, st.none()),
        "request": st.integers(0, LAST),
        "phase": st.sampled_from(["broadcast", "download", "train", "upload", "solve"]),
        "t_start": st.floats(0, 1000),
        "t_end": st.floats(1000, 2000),
        "bytes_down": st.integers(0, 10**9),
        "bytes_up": st.integers(0, 10**9),
        "subset": st.integers(0, 30),
        "triggered": st.booleans(),
    },
)


def as_run(method, seed, rows):
    metrics = pd.DataFrame(
        {"request": range(LAST + 1), "accuracy": 0.5, "converged": True, "triggered": False}
    )
    ledger = tuple(sorted(rows, key=lambda row: row.request))  # as a run writes it
    return Run(Path(), {"method": method, "seed": seed}, ledger, metrics)


@given(st.lists(ROWS, max_size=30))
def test_curves_end_at_the_totals(rows):
    run, total = as_run("fsosa", 0, rows), totals(rows)
    assert cumulative(run, lambda cost: cost.seconds)[-1] == pytest.approx(total.seconds)
    for name in TARIFFS:
        # Sums below 2**53, so exact in a float.
        assert cumulative(run, lambda c, n=name: c.bytes[n].total)[-1] == total.bytes[name].total


@given(st.lists(ROWS, max_size=30), st.lists(ROWS, max_size=30))
def test_the_table_is_the_mean_of_the_totals(first, second):
    (summary,) = summarise([as_run("fsosa", 0, first), as_run("fsosa", 1, second)])
    both = totals(first), totals(second)
    assert 2 * summary.handled == sum(total.requests for total in both)
    assert 2 * summary.triggered == sum(total.triggered for total in both)
    assert 2 * summary.seconds == pytest.approx(sum(total.seconds for total in both))
    for name in TARIFFS:
        assert 2 * summary.bytes[name] == sum(total.bytes[name].total for total in both)


@given(st.lists(ROWS, min_size=1, max_size=30), st.lists(ROWS, min_size=1, max_size=30))
def test_savings_follow_from_the_totals(own, other):
    edit, retrain = summarise([as_run("fsosa", 0, own), as_run("retrain", 0, other)])
    for name in TARIFFS:
        reference = totals(other).bytes[name].total
        if reference == 0:
            assert edit.bytes_saved[name] is None
            continue
        expected = 100 - 100 * totals(own).bytes[name].total / reference
        assert edit.bytes_saved[name] == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert retrain.bytes_saved[name] == 0


@settings(max_examples=5, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=30))
def test_the_printed_csv_carries_full_precision(rows):
    (line,) = csv.DictReader(StringIO(to_csv(summarise([as_run("fsosa", 0, rows)]))))
    assert float(line["seconds"]) == totals(rows).seconds
    assert float(line["bytes_paper"]) == totals(rows).bytes["paper"].total


UNITS = {"s": 1, "min": 60, "h": 3600, "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}


def unit_of(text):
    return UNITS[text[text.rindex("(") + 1 : text.rindex(")")]]


@pytest.mark.parametrize("which", ["runs", "batched"])
def test_lines_end_at_the_tables_numbers(which, request):
    compared = request.getfixturevalue(which)
    summaries = summarise(compared)
    (axes,) = cumulative_time(compared).axes
    for line, summary in zip(axes.lines, summaries, strict=True):
        assert line.get_label() == summary.label
        assert line.get_ydata()[-1] * unit_of(axes.get_ylabel()) == pytest.approx(summary.seconds)
    panels = cumulative_bytes(compared).axes
    size = unit_of(panels[0].get_ylabel())
    for panel, name in zip(panels, TARIFFS, strict=True):
        assert name in panel.get_title()
        for line, summary in zip(panel.lines, summaries, strict=True):
            assert line.get_ydata()[-1] * size == pytest.approx(summary.bytes[name])


def test_every_step_of_a_line_is_the_cost_of_its_request(runs):
    run = by_method(runs)["retrain"][0]
    (axes,) = cumulative_time([run]).axes
    heights = np.diff(axes.lines[0].get_ydata()[:-1]) * unit_of(axes.get_ylabel())
    costs = [cost.seconds for cost in per_request(run.ledger) if cost.request]
    assert heights == pytest.approx(costs)


def test_the_ledger_survives_its_files(runs):
    """Rows read from disk have the types they were written with, None included."""
    row = runs[0].ledger[0]
    assert all(type(value) is not float or value == value for value in dataclasses.astuple(row))
    assert (type(row.bytes_down), type(row.triggered), row.density) == (int, bool, None)
