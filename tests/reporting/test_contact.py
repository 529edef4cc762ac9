import csv
from io import StringIO

import pytest

from testbed.errors import ResultsError
from testbed.experiments.rundir import read_manifest, write_manifest
from testbed.reporting.comparison import by_method, load
from testbed.reporting.contact import HEADER, NOTE, cells, summarise_contact, to_markdown
from testbed.reporting.html import to_html
from testbed.reporting.table import summarise, to_csv


@pytest.fixture(scope="module")
def table(runs):
    return summarise_contact(runs)


def test_figures_are_means_over_the_seeds_and_largest_are_largest(table):
    first = table[0]
    assert [one.method for one in table] == ["fsosa", "retrain", "finetune"]
    assert first.forget == {"p10": 0.5, "p50": 1.5, "p90": 90.0}
    assert first.include == dict.fromkeys(("p10", "p50", "p90"))
    assert (first.asked, first.delivered) == (40, 36.5)
    assert (first.queue_max, first.queue_mean) == (5, 0.5)


def test_a_line_reads_as_people_do(table):
    assert dict(zip(HEADER, cells(table[0]), strict=True)) == {
        "method": "F-SOSA-U/I",
        "time to forget": "0.50 s / 1.50 s / 90.0 s",
        "time to include": "– / – / –",
        "contact long enough": "91.2 %",
        "wasted time": "12.5 s",
        "wasted bytes": "3.00 MB",
        "queue": "5 (0.50)",
        "batch": "1 (1.00)",
    }


def test_markdown_and_report_show_the_same_cells(runs, table):
    text, page = to_markdown(table), to_html(runs)
    lines = text.splitlines()
    assert [line.count("|") for line in lines[:5]] == [len(HEADER) + 1] * 5
    assert lines[6] == NOTE
    for one in table:
        for cell in cells(one):
            assert f"| {cell} |" in text
            assert f"<td>{cell}</td>" in page


def test_csv_has_them_behind_the_summary_with_empty_cells_for_missing_ones(runs, table):
    line, *_ = csv.DictReader(StringIO(to_csv(summarise(runs), table)))
    assert float(line["forget_p50_s"]) == 1.5
    assert line["include_p90_s"] == ""
    assert float(line["wasted_bytes"]) == 3e6
    assert float(line["delivered"]) == 36.5
    assert line["method"] == "fsosa"
    assert list(line)[-1] == "batch_max"


def test_a_percentile_is_the_mean_over_the_seeds_that_have_it(tmp_path, make_run):
    for seed in (0, 1):
        folder = make_run(tmp_path, "fsosa", seed)
        manifest = read_manifest(folder)
        if seed == 0:
            manifest["contact"]["forget"] = {"count": 0, "p10": None, "p50": None, "p90": None}
        write_manifest(folder, manifest)
    (one,) = summarise_contact(load(tmp_path))
    assert one.forget == {"p10": 0.5, "p50": 2.0, "p90": 90.0}


def test_a_run_without_such_figures_is_told(tmp_path, make_run):
    folder = make_run(tmp_path, "fsosa")
    (run,) = load(folder)
    del run.manifest["contact"]["asked"]
    with pytest.raises(ResultsError, match=r"no contact\.asked; remove that folder"):
        summarise_contact([run])


def test_a_batch_of_three_is_shown(batched):
    (edit, *_) = summarise_contact(by_method(batched)["fsosa"])
    assert cells(edit)[-1] == "3 (3.00)"
