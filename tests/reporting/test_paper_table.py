"""Tables for papers: digits, bold, LaTeX and CSV."""

import csv
import re
from io import StringIO

import numpy as np
import pytest

from testbed.ledger import TARIFFS, totals
from testbed.reporting.comparison import by_method, column
from testbed.reporting.intervals import Interval
from testbed.reporting.paper.table import tabulate
from testbed.reporting.paper.writing import number, to_csv, to_latex, to_markdown
from testbed.reporting.settings import read
from testbed.reporting.table import summarise


def interval(middle, half=0.0):
    return Interval(np.array(middle), np.array(middle - half), np.array(middle + half), 3)


@pytest.mark.parametrize(
    ("middle", "half", "text"),
    [
        (61.2345, 4.321, "61 ± 4"),
        (61.2345, 0.4321, "61.2 ± 0.4"),
        (61.2345, 1.4321, "61.2 ± 1.4"),
        (61.2345, 0.0123, "61.23 ± 0.01"),  # no more than four digits
        (61.2345, 0.00123, "61.2"),
        (512.3, 38.2, "510 ± 40"),
        (512.3, 18.2, "512 ± 18"),
        (0.0, 0.31, "0.0 ± 0.3"),
        (-0.01, 0.3, "0.0 ± 0.3"),
        (-40.2, 19.7, "-40 ± 20"),
        (14.1234, 0.0, "14.1"),
        (1191.2, 0.0, "1190"),
        (0.0, 0.0, "0"),
        (99.6, 0.96, "99.6 ± 1.0"),
    ],
)
def test_a_mean_has_the_digits_its_interval_leaves(middle, half, text):
    assert number(interval(middle, half)) == text


def test_other_units_and_missing_values():
    assert number(interval(2_500_000.0, 400_000.0), 1e6) == "2.5 ± 0.4"
    assert number(None) == "–"


def test_lines_are_methods_by_setting(swept):
    table = tabulate(swept)
    assert list(table.settings()) == [
        f"ρ = {rho}, departure gap {gap} s" for rho in (0.3, 0.5) for gap in (1.8, 3.6)
    ]
    for lines in table.settings().values():
        assert [line.method for line in lines] == ["fsosa", "retrain", "finetune"]
        assert {line.n for line in lines} == {2}


def test_the_numbers_are_those_of_the_other_table(runs):
    lines = {line.method: line.values for line in tabulate(runs).lines}
    for summary in summarise(runs):
        values = lines[summary.method]
        assert values["quality"].mean == pytest.approx(100 * summary.quality)
        assert values["time_s"].mean == pytest.approx(summary.seconds)
        assert values["edits_percent"].mean == pytest.approx(
            100 * summary.triggered / summary.handled
        )
        for name in TARIFFS:
            assert values[f"bytes_{name}"].mean == pytest.approx(summary.bytes[name])
            saved = values[f"bytes_{name}_saved_percent"]
            if summary.method == "retrain":
                assert saved is None
            else:
                assert saved.mean == pytest.approx(summary.bytes_saved[name])


def test_the_difference_is_paired_over_all_requests(runs):
    methods = by_method(runs)
    gaps = [
        100 * np.mean(column(own, "accuracy") - column(other, "accuracy"))
        for own, other in zip(methods["fsosa"], methods["retrain"], strict=True)
    ]
    (line,) = [line for line in tabulate(runs).lines if line.method == "fsosa"]
    found = line.values["difference"]
    assert found.mean == pytest.approx(np.mean(gaps))
    assert (found.low, found.high) == (pytest.approx(min(gaps)), pytest.approx(max(gaps)))


def test_the_best_of_a_setting_is_bold_and_so_is_its_equal(runs):
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in to_markdown(tabulate(runs)).splitlines()
        if line.startswith("|")
    ]
    heads, _, *body = rows
    time = heads.index("time (min)")
    fewest = min(range(3), key=lambda row: float(re.sub(r"\*| ±.*", "", body[row][time])))
    assert [row[time].startswith("**") for row in body].index(True) == fewest
    # Neither edits nor differences are a contest.
    for name in ("edits (%)", "to Retrain (points)"):
        assert not any("**" in row[heads.index(name)] for row in body)
    assert "n = 2 seeds ± half of the 95 % bootstrap interval" in to_markdown(tabulate(runs))


def test_latex_has_booktabs_rules_and_as_many_cells_as_columns(swept):
    text = to_latex(tabulate(swept))
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 4, 1]
    assert text.count("{") == text.count("}")
    assert text.count("$") % 2 == 0
    for begun in re.findall(r"\\begin\{([a-z*]+)\}", text):
        assert text.count(rf"\begin{{{begun}}}") == text.count(rf"\end{{{begun}}}")
    layout = re.search(r"\\begin\{tabular\}\{(l r*|l[r]+)\}", text)[1]
    body = [line for line in text.splitlines() if line.startswith(("F-SOSA", "Retrain", "Fine"))]
    assert len(body) == 12
    for line in body:
        assert line.count(" & ") == len(layout) - 1
        assert line.endswith(r" \\")
    assert r"\multicolumn{12}{l}{\emph{$\rho$ = 0.3, departure gap 1.8 s}} \\" in text
    assert r"$\mathbf{" in text
    assert not re.search(r"(?<!\\)[%&]", re.sub(r" & |^%.*$", "", text, flags=re.MULTILINE))


def test_names_cannot_break_latex(tmp_path, make_run):
    for number_ in (1, 2):
        make_run(
            tmp_path / str(number_), "fsosa", requests=1,
            mobility={"scenario": f"a_b&c%{number_}"},
        )  # fmt: skip
    text = to_latex(tabulate(read(tmp_path)))
    assert r"a\_b\&c\%1" in text


def test_csv_has_full_precision_and_half_widths(by_rho):
    lines = list(csv.DictReader(StringIO(to_csv(tabulate(by_rho)))))
    assert len(lines) == 6
    assert list(lines[0])[:4] == ["editing.rho", "method", "n", "quality"]
    for line in lines:
        own = [
            run for run in by_rho
            if run.method == line["method"] and f"rho={line['editing.rho']}" in str(run.folder)
        ]  # fmt: skip
        seconds = [totals(run.ledger).seconds for run in own]
        assert float(line["time_s"]) == pytest.approx(np.mean(seconds), rel=1e-12)
        assert float(line["time_s_half"]) == pytest.approx((max(seconds) - min(seconds)) / 2)
        assert (line["bytes_paper_saved_percent"] == "") == (line["method"] == "retrain")


def test_without_retrain_and_without_training_columns_are_left_out(untrained):
    table = tabulate([run for run in untrained if run.method == "fsosa"])
    assert [one.key for one in table.columns] == [
        "edits_percent", "time_s", *(f"bytes_{name}" for name in TARIFFS),
    ]  # fmt: skip
    for word in ("Retrain", "Saved"):
        assert word not in table.note


def test_one_seed_has_no_interval(runs):
    table = tabulate([run for run in runs if run.seed == 0])
    assert table.note.startswith("n = 1 seed. ")
    assert "±" not in to_markdown(table)
    assert r"\pm" not in to_latex(table)
