import csv
import dataclasses
from io import StringIO
from statistics import mean, stdev

import pytest

from testbed.ledger import TARIFFS, totals
from testbed.reporting.comparison import by_method, load
from testbed.reporting.table import (
    basis,
    cells,
    header,
    note,
    quality_text,
    requests_text,
    summarise,
    to_csv,
    to_markdown,
)


@pytest.fixture(scope="module")
def summaries(runs):
    return summarise(runs)


def test_one_summary_per_method_in_display_order(summaries):
    assert [s.label for s in summaries] == ["F-SOSA-U/I", "Retrain", "Fine-tune"]
    assert {s.seeds for s in summaries} == {(0, 1)}


def test_accuracy_is_that_of_the_last_release(runs, summaries):
    finals = [run.metrics["accuracy"].iloc[-1] for run in by_method(runs)["fsosa"]]
    assert summaries[0].quality == pytest.approx(mean(finals))
    assert summaries[0].quality_spread == pytest.approx(stdev(finals))


def test_costs_are_the_means_of_the_totals(runs, summaries):
    both = [totals(run.ledger) for run in by_method(runs)["retrain"]]
    retrain = summaries[1]
    # Ten uploads at 4 + 9 x 0.3 + 0.2 s, a solve of 0.5 and a broadcast of 0.1: 7.5 s.
    assert retrain.seconds == pytest.approx(31 * 7.5)
    assert (retrain.requests, retrain.handled, retrain.triggered) == (31, 31, 31)
    assert retrain.bytes["paper"] == mean(total.bytes["paper"].total for total in both)


def test_savings_are_against_retrain_on_the_same_seeds(runs):
    groups = by_method(runs)
    one_seed = [*groups["fsosa"], groups["retrain"][1]]
    edit, _ = summarise(one_seed)
    own = totals(groups["fsosa"][1].ledger)
    reference = totals(groups["retrain"][1].ledger)
    assert edit.seconds_saved == pytest.approx(100 * (1 - own.seconds / reference.seconds))
    for name in TARIFFS:
        share = own.bytes[name].total / reference.bytes[name].total
        assert edit.bytes_saved[name] == pytest.approx(100 * (1 - share))


def test_without_retrain_there_are_no_savings(runs):
    (edit,) = summarise(by_method(runs)["fsosa"])
    assert edit.seconds_saved is None
    assert edit.bytes_saved == dict.fromkeys(TARIFFS)


def test_without_a_common_seed_there_are_no_savings(runs):
    groups = by_method(runs)
    edit, retrain = summarise([groups["fsosa"][0], groups["retrain"][1]])
    assert edit.seconds_saved is None
    assert retrain.seconds_saved == 0


def test_a_single_seed_has_no_spread(runs):
    (edit,) = summarise(by_method(runs)["fsosa"][:1])
    assert edit.quality_spread is None
    assert "±" not in quality_text(edit)


def test_unconverged_projections_are_flagged_once_per_release(summaries, batched):
    # Request 4 is flagged in each of two runs; in the batch of 4, 5, 6 it is one release.
    assert [s.flagged for s in summaries] == [2, 0, 0]
    assert summarise(batched)[0].flagged == 1


def test_requests_of_a_batch_are_handled_together(batched, summaries):
    edit = summarise(batched)[0]
    assert (edit.requests, edit.handled) == (31, 11)
    assert requests_text(edit) == "31 in 11 batches"
    assert requests_text(summaries[0]) == "31"


def test_cells_read_as_people_do(summaries):
    summary = dataclasses.replace(
        summaries[0],
        measure="accuracy",
        quality=0.97249,
        quality_spread=0.0026,
        triggered=14.5,
        seconds=150.0,
        seconds_saved=36.664,
        bytes={"incremental": 1e6, "broadcast": 2.5e9, "paper": 999.0},
        bytes_saved={"incremental": 98.0, "broadcast": None, "paper": 25.0},
    )
    assert dict(zip(header([summary])[:6], cells(summary), strict=False)) == {
        "method": "F-SOSA-U/I",
        "final accuracy": "97.2 ± 0.3 %",
        "requests": "31",
        "edits": "14.5",
        "time": "2.50 min",
        "saved": "36.66 %",
    }
    assert cells(summary)[6:] == (
        "1.00 MB", "98.00 %", "2.50 GB", "–", "999 B", "25.00 %", "2",
    )  # fmt: skip


def test_markdown_has_one_line_per_method_and_a_note(summaries):
    lines = to_markdown(summaries).splitlines()
    assert [line.count("|") for line in lines[:5]] == [len(header(summaries)) + 1] * 5
    assert lines[2].startswith("| F-SOSA-U/I |")
    assert lines[5] == ""
    assert lines[6] == note(summaries)


def test_the_note_states_tariffs_basis_and_seeds(summaries, batched):
    text = note(summaries)
    for part in ("seeds 0, 1", "serialised bytes", "incremental, broadcast, paper", "Retrain"):
        assert part in text
    assert basis(summarise(batched)).startswith("Seed 0. Time is simulated")


def test_csv_has_every_number_and_empty_cells_for_missing_ones(runs, summaries):
    lines = list(csv.DictReader(StringIO(to_csv(summaries))))
    assert [line["method"] for line in lines] == ["fsosa", "retrain", "finetune"]
    assert lines[0]["seeds"] == "0 1"
    assert (
        float(lines[0]["bytes_incremental_saved_percent"])
        == (summaries[0].bytes_saved["incremental"])
    )
    (alone,) = csv.DictReader(StringIO(to_csv(summarise(by_method(runs)["fsosa"][:1]))))
    assert (alone["quality_spread"], alone["seconds_saved_percent"]) == ("", "")


def test_runs_of_different_length_are_summarised_as_they_are(tmp_path, make_run):
    make_run(tmp_path, "fsosa", seed=0, requests=4)
    make_run(tmp_path, "fsosa", seed=1, requests=7)
    (summary,) = summarise(load(tmp_path))
    assert (summary.requests, summary.handled) == (5.5, 5.5)
    assert requests_text(summary) == "5.5"
