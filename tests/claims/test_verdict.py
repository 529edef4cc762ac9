"""Bands, verdicts and the table."""

import csv
from dataclasses import replace
from io import StringIO

import pytest
from cards import card
from extents import check_data, check_texts

from testbed.claims.figure import draw
from testbed.claims.figure import write as write_figure
from testbed.claims.record import Known
from testbed.claims.table import shown, tally, to_csv, to_markdown
from testbed.claims.verdict import MET, MISSED, NOT_RUN, Row, band, expected, gap, judge
from testbed.config.cards import FigureConfig

INFINITE = float("inf")
ROW = Row(
    "cheap", "time saved", "digits", "25, within 1", "%", 25.04, 24.0, 26.0, 3,
    "paper, serialised", "broadcast 50", "small", MET, 0.0, "",
)  # fmt: skip


def figure(**changes: object) -> FigureConfig:
    return FigureConfig.model_validate({"name": "f", "measure": "saved", **changes})


@pytest.mark.parametrize(
    ("changes", "low", "high", "said"),
    [
        ({"at": 25.0}, 25, 25, "25"),
        ({"at": 25.0, "within": 0.5}, 24.5, 25.5, "25, within 0.5"),
        ({"between": [21.97, 25.76]}, 21.97, 25.76, "21.97 to 25.76"),
        ({"between": [22, 26], "within": 1}, 21, 27, "22 to 26, within 1"),
        ({"at_least": 0}, 0, INFINITE, "at least 0"),
        ({"at_most": 1, "within": 0.25}, -INFINITE, 1.25, "at most 1, within 0.25"),
    ],
)
def test_a_band_is_what_the_paper_says_and_the_tolerance(changes, low, high, said):
    one = figure(**changes)
    assert band(one) == (low, high)
    assert expected(one) == said
    assert judge(one, max(low, -1e9)) == judge(one, min(high, 1e9)) == MET
    if high < INFINITE:
        assert (judge(one, high + 1e-9), gap(one, high + 2)) == (MISSED, 2)
    if low > -INFINITE:
        assert (judge(one, low - 1e-9), gap(one, low - 2)) == (MISSED, -2)


def test_what_is_no_number_meets_nothing():
    assert judge(figure(at=0.0), float("nan")) == MISSED
    assert judge(figure(at_least=0.0), float("nan")) == MISSED


def test_values_are_shown_with_their_interval_and_unit():
    assert shown(ROW) == "25.0 [24.0, 26.0] %"
    assert shown(replace(ROW, low=25.04, high=25.04)) == "25.0 %"
    assert shown(replace(ROW, value=0.002, low=0.002, high=0.002, unit="")) == "0.002"
    assert shown(replace(ROW, value=0.0, low=-0.354, high=0.0091)) == "0 [-0.35, 0.009] %"
    assert shown(replace(ROW, value=1e-15, low=0.0, high=0.0, unit="")) == "0.00"
    assert shown(replace(ROW, value=1234.5, low=1000.0, high=2000.0)) == "1234 [1000, 2000] %"
    assert shown(replace(ROW, value=None, low=None, high=None)) == "–"


def test_verdicts_are_counted_by_scale():
    rows = [ROW, replace(ROW, verdict=MISSED), replace(ROW, scale="paper", verdict=NOT_RUN)]
    assert tally(rows) == "small: 1 met, 1 missed. paper: 1 not run at this scale."


def test_a_csv_file_has_all_rows_and_digits():
    (read,) = csv.DictReader(StringIO(to_csv([replace(ROW, value=1 / 3)])))
    assert float(read["value"]) == 1 / 3
    assert (read["verdict"], read["scale"], read["claim"]) == ("met", "small", "cheap")
    assert to_csv([ROW]).count("\n") == 2


def test_the_page_says_everything_once(tmp_path):
    one = card(tmp_path)
    apart = [
        replace(ROW, setting=name, value=value, verdict=MISSED, gap=away, why="dear radios")
        for name, value, away in (("digits", 30.0, 4.0), ("mnist", 31.5, 5.5))
    ]
    missing = replace(
        ROW, setting="svhn", value=None, low=None, high=None, n=0, basis="", beside="",
        verdict=NOT_RUN, gap=None, why="svhn is not at hand",
    )  # fmt: skip
    page = to_markdown([one], {("cheap", "small"): Known((ROW, *apart, missing), 90.0)})
    assert page.startswith("# Claims\n\nsmall: 1 met, 2 missed, 1 not run at this scale.\n")
    assert "Edits are cheap. *(section I)*" in page
    line = "| time saved: digits | 25, within 1 % | 25.0 [24.0, 26.0] % | 3 | "
    assert f"{line}paper, serialised (broadcast 50) | small | **met** |" in page
    assert "* time saved, 4.00 to 5.50 % above the band: dear radios\n" in page
    assert page.count("dear radios") == 1
    assert "* svhn is not at hand\n" in page
    assert "| – | – | – | small | not run at this scale |" in page
    assert "* It took 90.0 s at small." in page


def test_a_claim_that_was_not_tried_is_not_on_the_page(tmp_path):
    assert "cheap" not in to_markdown([card(tmp_path)], {})


def test_bands_and_values_are_drawn(tmp_path):
    figures = [
        {"name": name, "measure": "saved", "options": {"of": "time"}, "unit": unit, **said}
        for name, unit, said in (
            ("time saved", "%", {"at": 25, "within": 1}),
            ("exact", "points", {"at": 0}),
            ("open", "%", {"at_least": 0}),
        )
    ]
    one = card(tmp_path, figures=figures)
    rows = [
        ROW,
        replace(ROW, setting="mnist", value=40.0, low=38.0, high=45.0, verdict=MISSED, gap=14.0),
        replace(ROW, setting="svhn", value=None, low=None, high=None, verdict=NOT_RUN, gap=None),
        replace(ROW, figure="exact", unit="points", value=0.0, low=-1.0, high=2.0),
        replace(ROW, figure="open", value=99.0, low=98.0, high=99.5),
    ]
    figure_ = draw([one], rows)
    percent, points = figure_.axes
    names = [label.get_text() for label in percent.get_yticklabels()]
    assert names == [
        "cheap: time saved, digits (small)", "cheap: time saved, mnist (small)",
    ]  # fmt: skip
    assert [bar.get_x() for bar in percent.patches] == [24, 24]
    assert [bar.get_width() for bar in percent.patches] == [2, 2]
    assert percent.get_xlim()[0] < 24
    assert percent.get_xlim()[1] > 45
    assert [label.get_text() for label in points.get_yticklabels()] == [
        "cheap: exact, digits (small)"
    ]
    check_texts(figure_)
    check_data(figure_)
    assert [path.name for path in write_figure([one], rows, tmp_path)] == [
        "reproduction.pdf", "reproduction.png",
    ]  # fmt: skip
    assert draw([one], rows[2:3]) is None
    assert write_figure([one], rows[4:], tmp_path) == ()
