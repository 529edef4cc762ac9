"""Figures of sweeps over two keys: every panel legible, every name inside, nothing cut off."""

from dataclasses import replace
from math import nan

import pytest
from extents import check_data, check_texts, texts

from testbed.errors import ResultsError
from testbed.reporting.paper.catalogue import FIGURES
from testbed.reporting.settings import read
from testbed.reporting.style import COLUMN, PAGE

ONE = ("accuracy", "time", "bytes", "difference", "waiting", "communication", "population")
NARROW = ("savings-rho", "savings-density", "tradeoff", "traffic", "bytes")  # refuse a column


@pytest.mark.parametrize("width", [COLUMN, PAGE])
@pytest.mark.parametrize(
    "name",
    [
        *("accuracy", "time", "bytes", "waiting", "communication"),
        *("savings-rho", "savings-density", "tradeoff", "trigger", "traffic"),
    ],
)
def test_six_settings_of_two_keys_are_legible(grid, name, width):
    if width == COLUMN and name in NARROW:
        with pytest.raises(ResultsError, match=r"no room for . settings; .*--width double"):
            FIGURES[name](grid, width)
        return
    figure = FIGURES[name](grid, width)
    check_texts(figure)
    check_data(figure)
    assert figure.get_size_inches().tolist() <= [width, 9]
    assert min(inches(figure, "height")) >= 0.7
    assert min(inches(figure, "width")) >= 0.4
    named = {" ".join(text.get_text().split()) for text in texts(figure)}
    if name not in ("savings-rho", "savings-density", "tradeoff", "trigger", "traffic"):
        assert {
            f"ρ = {rho}, departure gap {gap} s" for rho in (0.3, 0.5, 0.7) for gap in (3.6, 7.2)
        } <= named


@pytest.mark.parametrize("width", [COLUMN, PAGE])
@pytest.mark.parametrize("name", ONE)
def test_one_of_the_six_is_legible_trained_or_not(grid, name, width):
    one = tuple(run for run in grid if "rho=0.5,density=3.6" in str(run.folder))
    untrained = [replace(run, metrics=run.metrics.assign(accuracy=nan, loss=nan)) for run in one]
    assert len(one) == 10
    for runs in (one, untrained) if name != "accuracy" else (one,):
        figure = FIGURES[name](runs, width)
        check_texts(figure)
        if name != "population":  # whose events are taller than their strip
            check_data(figure)


def inches(figure, side):
    """Return how many inches the panels are wide, or high."""
    whole = dict(zip(("width", "height"), figure.get_size_inches(), strict=True))[side]
    return [getattr(axes.get_position(), side) * whole for axes in figure.axes]


def test_waiting_shows_every_wait_or_says_how_many_it_does_not(grid, tmp_path, make_run):
    figure = FIGURES["waiting"](grid, COLUMN)
    slowest = max(float((run.metrics["t_end"] - run.metrics["t"]).max()) for run in grid)
    assert max(axes.get_xlim()[1] for axes in figure.axes) >= slowest
    assert not any("later" in text.get_text() for text in texts(figure))
    make_run(tmp_path, "fsosa", requests=400)
    (run,) = read(tmp_path)
    metrics = run.metrics.copy()
    late = metrics.index[metrics["kind"] == "join"][:1]
    metrics.loc[late, "t_end"] += 1e5
    figure = FIGURES["waiting"]([replace(run, metrics=metrics)], COLUMN)
    check_texts(figure)
    assert [axes.get_title().partition("\n")[2] for axes in figure.axes] == ["", "3 of them later"]


def test_settings_with_names_that_are_too_long_are_refused(tmp_path, make_run):
    """As those of sweeps that lie side by side and have little in common."""
    for number, change in enumerate(
        (
            {},
            {"learning": {"epochs": 7}},
            {"learning": {"lr": 0.3}},
            {"learning": {"momentum": 0.1}},
            {"editing": {"rho": 0.4}},
            {"fusion": {"rtol": 0.1}},
        )
    ):
        for method in ("fsosa", "retrain"):
            make_run(tmp_path / str(number), method, requests=2, **change)
    runs, refused = read(tmp_path), {}
    for name in ("accuracy", "time", "bytes", "waiting", "communication"):
        for width in (COLUMN, PAGE):
            try:
                check_texts(FIGURES[name](runs, width))
            except ResultsError as error:
                refused[name, width] = str(error)
    assert {name for name, _ in refused} >= {"accuracy", "time", "bytes", "waiting"}
    assert refused["waiting", COLUMN] == (
        "waiting has no room for 6 settings with names as long as theirs (keys that differ: 5); "
        "choose some, as with --where learning.momentum=0.9"
    )


def test_no_figure_of_bars_is_taller_than_a_page(tmp_path, make_run):
    for number in range(18):
        for method in ("fsosa", "retrain"):
            make_run(tmp_path / str(number), method, requests=1, learning={"epochs": number + 1})
    runs = read(tmp_path)
    few = [run for run in runs if run.manifest["config"]["learning"]["epochs"] <= 17]
    assert 8.5 < FIGURES["communication"](few, PAGE).get_figheight() <= 9
    with pytest.raises(ResultsError, match="communication has no room for 18 settings; choose"):
        FIGURES["communication"](runs, PAGE)
