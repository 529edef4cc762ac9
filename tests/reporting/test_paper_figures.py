"""Every figure at both widths: legible, complete, the same bytes again, or a reason."""

import subprocess
import sys
from dataclasses import replace

import pytest
from extents import check_data, check_texts, texts

from testbed.errors import ResultsError
from testbed.reporting.paper.catalogue import EDIT_SHEET, FIGURES, NAMES, draw_all, draw_one
from testbed.reporting.settings import read
from testbed.reporting.style import COLUMN, PAGE, render

ONE = ("accuracy", "time", "bytes", "difference", "waiting", "communication", "population")
RHO = ("savings-rho", "tradeoff", "trigger")
DENSITY = ("savings-density", "traffic")
CUT = ("population",)  # on purpose: events are taller than their strip


@pytest.fixture(scope="module")
def by_clients(tmp_path_factory, make_run):
    root = tmp_path_factory.mktemp("clients")
    for count in (20, 50, 100, 200, 500):
        for method in ("fsosa", "retrain"):
            make_run(
                root / str(count), method, requests=4,
                clients={"initial": count, "pool": 600}, population_initial=count,
            )  # fmt: skip
    return read(root)


@pytest.fixture(scope="module")
def by_alpha(tmp_path_factory, make_run):
    root = tmp_path_factory.mktemp("alpha")
    for alpha in (0.1, 0.5, 0.8):
        make_run(root / str(alpha), "fsosa", requests=2, data={"alpha": alpha})
    return read(root)


@pytest.fixture
def held(request):
    """Return a function from a figure's name to runs that hold what it needs."""

    def of(name):
        fixture = {
            **dict.fromkeys(ONE, "runs"),
            **dict.fromkeys(RHO, "by_rho"),
            **dict.fromkeys(DENSITY, "swept"),
            "clients": "by_clients",
            "heterogeneity": "by_alpha",
        }[name]
        return request.getfixturevalue(fixture)

    return of


DRAWN = [name for name in FIGURES if name != "map"]


@pytest.mark.parametrize("width", [COLUMN, PAGE])
@pytest.mark.parametrize("name", DRAWN)
def test_words_are_inside_and_never_overlap(held, name, width):
    runs = held(name)
    if (name, width) in [("savings-density", COLUMN), ("traffic", COLUMN)]:
        with pytest.raises(ResultsError, match=r"no room for 2 settings; .*--width double"):
            FIGURES[name](runs, width)
        return
    figure = FIGURES[name](runs, width)
    assert figure.get_size_inches()[0] == width
    assert figure.get_size_inches()[1] <= 9
    check_texts(figure)
    if name not in CUT:
        check_data(figure)
    assert {text.get_fontsize() for text in texts(figure)} <= {7, 8}


@pytest.mark.parametrize("width", [COLUMN, PAGE])
@pytest.mark.parametrize("name", ["accuracy", "time", "savings-rho", "waiting", "communication"])
def test_a_grid_of_settings_is_drawn_in_panels(swept, name, width):
    if (name, width) == ("savings-rho", COLUMN):
        return
    figure = FIGURES[name](swept, width)
    check_texts(figure)
    check_data(figure)
    words = " ".join(text.get_text() for text in texts(figure))
    assert "3.6 s" in words


def test_a_grid_is_as_wide_as_a_page_unless_told_otherwise(swept, runs):
    assert FIGURES["time"](swept).get_figwidth() == PAGE
    assert FIGURES["time"](runs).get_figwidth() == COLUMN


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("accuracy", ("request", "test accuracy (%)", "n = 2 seeds", "95 %")),
        ("time", ("request", "cumulative time (min)")),
        ("bytes", ("cumulative serialised\nbytes (MB)", "tariff: paper")),
        ("difference", ("accuracy, points", "time, min", "bytes (paper), MB")),
        ("waiting", ("time to forget (s)", "time to include (s)", "share answered (%)")),
        ("communication", ("bytes (% of Retrain)", "broadcast", "model", "Fisher")),
        ("savings-rho", ("saved against Retrain (%)", "sampling ratio ρ", "bytes (broadcast)")),
        ("savings-density", ("saved against Retrain (%)", "joins and leaves per minute")),
        ("tradeoff", ("final accuracy (%)", "time, s", "bytes (incremental), MB")),
        ("trigger", ("subset changed (%)", "sampling ratio ρ", "bound", "measured")),
        ("clients", ("clients at the start", "per request (s)", "per request (MB)")),
        ("traffic", ("joins and leaves per minute", "mean (s)", "per request (MB)")),
        ("heterogeneity", ("Dirichlet α", "final accuracy (%)", "n = 1 seed")),
    ],
)
def test_axes_name_quantity_and_unit_and_n_is_shown(held, name, words):
    shown = [text.get_text() for text in texts(FIGURES[name](held(name), PAGE))]
    for word in words:
        assert any(word in text for text in shown), (word, shown)
    assert any("n = " in text or "leaves" in text for text in shown), shown


@pytest.mark.parametrize("name", ["accuracy", "tradeoff", "communication"])
def test_files_embed_their_fonts_and_tell_no_date(held, name):
    pdf = render(FIGURES[name](held(name)), "pdf")
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf
    assert b"CreationDate" not in pdf


def test_methods_are_told_apart_without_colour(runs):
    from testbed.reporting.style import looks

    six = looks(["fsosa", "retrain", "finetune", "federaser", "fedrr", "fats-cu"])
    for part in ("color", "dashes", "marker"):
        assert len({str(getattr(look, part)) for look in six.values()}) == 6
    fusions = looks(["fsosa", "retrain", "fedavg", "fisher-merging", "fedfisher", "regmean",
                     "fedlpa", "ma-echo", "otfusion", "pfnm", "dense"])  # fmt: skip
    assert len(set(fusions.values())) == 11
    mixed = looks(["federaser", "fedavg"])
    assert mixed["federaser"] != mixed["fedavg"]


CODE = """
import sys
from pathlib import Path
from testbed.reporting.paper.catalogue import draw_one
from testbed.reporting.settings import read
runs = read(Path(sys.argv[1]), ["density=3.6"])
for name in sys.argv[3:]:
    draw_one(runs, name, Path(sys.argv[2]))
heavy = {"torch", "libsumo", "matplotlib.pyplot", "ultralytics", "sklearn", "ray"}
print(sorted(heavy & set(sys.modules)))
"""


def test_a_new_process_draws_the_same_bytes_without_torch(sweep, by_rho, tmp_path):
    names = ("savings-rho", "trigger", "communication")
    command = [sys.executable, "-W", "error", "-c", CODE, sweep, tmp_path / "there", *names]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    for name in names:
        for path in draw_one(by_rho, name, tmp_path / "here"):
            assert path.read_bytes() == (tmp_path / "there" / path.name).read_bytes(), path.name


def test_everything_that_can_be_drawn_is_and_the_rest_says_why(runs, tmp_path):
    drawn = {one.name: one for one in draw_all(runs, tmp_path)}
    assert tuple(drawn) == NAMES
    assert {name for name, one in drawn.items() if one.files} == set(ONE)
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {f"{name}.{kind}" for name in ONE for kind in ("pdf", "png")}
    for one in drawn.values():
        assert bool(one.files) != bool(one.reason)
        assert "\n" not in one.reason


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("savings-rho", "--grid rho=0.1,0.3,0.5,0.7"),
        ("tradeoff", "several values of editing.rho"),
        ("trigger", "--grid rho="),
        ("savings-density", "--grid density=7.2,3.6,1.8"),
        ("traffic", "mobility.density or mobility.scale"),
        ("clients", "configs/sweeps/clients.yaml --grid mobility.schedule.vehicles=20,50"),
        ("heterogeneity", "--grid alpha=0.1,0.5,0.8"),
        ("map", "measure accuracy, not mAP50-95"),
        (EDIT_SHEET, "data.name=bdd100k"),
        ("piechart", "no figure 'piechart'; known: accuracy, map, time"),
    ],
)
def test_a_missing_sweep_is_named_in_one_line(runs, tmp_path, name, told):
    with pytest.raises(ResultsError) as caught:
        draw_one(runs, name, tmp_path)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["savings-rho", "difference", "communication"])
def test_comparisons_need_retrain(by_rho, tmp_path, name):
    own = [run for run in by_rho if run.method == "fsosa"]
    with pytest.raises(
        ResultsError, match=r"with Retrain on the same seeds.*--methods fsosa,retr"
    ):
        draw_one(own, name, tmp_path)


@pytest.mark.parametrize("name", ["accuracy", "map", "tradeoff", "heterogeneity"])
def test_without_training_there_is_no_quality(untrained, name):
    with pytest.raises(ResultsError, match="trained nothing"):
        FIGURES[name](untrained, PAGE)


@pytest.mark.parametrize("name", ["time", "savings-rho", "trigger", "waiting", "communication"])
def test_without_training_all_costs_are_there(untrained, name):
    assert FIGURES[name](untrained, PAGE).axes


def test_runs_that_saw_no_request_have_no_waiting_times(tmp_path, make_run):
    make_run(tmp_path, "fsosa", requests=0)
    with pytest.raises(ResultsError, match="waiting needs requests"):
        draw_one(read(tmp_path), "waiting", tmp_path / "figures")


def test_too_many_settings_say_how_to_choose(tmp_path, make_run):
    for number in range(7):
        make_run(tmp_path / str(number), "fsosa", requests=1, learning={"epochs": number + 1})
    runs = read(tmp_path)
    with pytest.raises(ResultsError) as caught:
        draw_one(runs, "bytes", tmp_path / "figures")
    assert str(caught.value) == (
        "bytes has no room for 7 settings; choose some, as with --where learning.epochs=1"
    )
    assert draw_one(runs, "time", tmp_path / "figures")


def test_a_detectors_sheet_needs_its_predictions(tmp_path, make_run):
    """As of a run in which no request changed the detector."""
    make_run(tmp_path, "fsosa", requests=2)
    (run,) = read(tmp_path)
    metrics = run.metrics.assign(accuracy=float("nan"), map50_95=0.2)
    detector = replace(run, metrics=metrics)
    assert draw_one([detector], "map", tmp_path / "figures")
    with pytest.raises(ResultsError, match="so there is no edit to show"):
        draw_one([detector], EDIT_SHEET, tmp_path / "figures")
