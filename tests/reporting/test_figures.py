import re
import shutil
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from extents import check_texts

from testbed.errors import ResultsError
from testbed.reporting.comparison import by_method, load
from testbed.reporting.figures import (
    cumulative_bytes,
    cumulative_time,
    draw,
    figures,
    population,
    quality,
)
from testbed.reporting.style import COLUMN, PAGE, looks, new_figure, render, styled

NAMES = ("accuracy", "time", "bytes", "population")
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def copy(experiment, tmp_path):
    """A comparison that may be written to."""
    return shutil.copytree(experiment, tmp_path / "copy")


def test_draw_writes_every_figure_twice(copy):
    paths = draw(copy)
    assert [path.name for path in paths] == [
        f"{name}.{kind}" for name in NAMES for kind in ("pdf", "png")
    ]
    assert sorted(path.name for path in (copy / "figures").iterdir()) == sorted(
        path.name for path in paths
    )
    assert all(path.parent == copy / "figures" for path in paths)
    for path in paths:
        assert path.read_bytes().startswith(PNG if path.suffix == ".png" else b"%PDF")


def test_files_tell_neither_date_nor_software(runs):
    figure = quality(runs)
    pdf, png = render(figure, "pdf"), render(figure, "png")
    assert b"CreationDate" not in pdf
    assert b"Matplotlib" not in pdf + png
    assert b"/Type3" not in pdf
    assert b"/FontFile2" in pdf  # TrueType, embedded


def test_a_single_run_is_drawn_in_its_own_folder(tmp_path, make_run):
    folder = make_run(tmp_path, "fsosa", requests=1)
    assert len(draw(folder)) == 8
    assert (folder / "figures" / "time.pdf").is_file()
    # The pictures do not disturb the next reading.
    assert len(load(tmp_path)) == 1


def test_no_runs_no_figures(tmp_path):
    with pytest.raises(ResultsError, match="holds no finished run"):
        draw(tmp_path)
    assert not (tmp_path / "figures").exists()


def test_the_users_own_settings_do_not_matter(runs):
    plain = render(cumulative_time(runs), "png")
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "black"}):
        assert render(cumulative_time(runs), "png") == plain


def test_drawing_leaves_the_users_settings_alone(runs):
    with matplotlib.rc_context({"font.size": 20}):
        quality(runs)
        assert matplotlib.rcParams["font.size"] == 20


def test_a_new_process_draws_the_same_bytes_without_pyplot(copy):
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from testbed.reporting.figures import draw\n"
        "draw(Path(sys.argv[1]))\n"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    before = [path.read_bytes() for path in draw(copy)]
    command = [sys.executable, "-W", "error", "-c", code, str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    after = [copy / "figures" / f"{name}.{kind}" for name in NAMES for kind in ("pdf", "png")]
    assert [path.read_bytes() for path in after] == before


@pytest.mark.parametrize(
    ("name", "width"),
    [("accuracy", COLUMN), ("time", COLUMN), ("bytes", PAGE), ("population", PAGE)],
)
def test_figures_have_the_width_they_are_printed_at(runs, name, width):
    figure = figures(runs)[name](runs)
    assert figure.get_size_inches()[0] == width
    sizes = {text.get_fontsize() for text in figure.findobj(matplotlib.text.Text)}
    assert sizes == {8}


@pytest.mark.parametrize("count", [1, 5, 31, 1000])
@pytest.mark.parametrize("name", NAMES)
def test_nothing_overlaps_and_ticks_are_few(tmp_path_factory, make_run, name, count):
    root = tmp_path_factory.getbasetemp() / f"requests-{count}"
    if not root.exists():
        for method in ("fsosa", "finetune"):
            make_run(root, method, requests=count)
    figure = figures(load(root))[name](load(root))
    check_texts(figure)
    for axes in figure.axes:
        low, high = axes.get_xlim()
        assert 1 <= sum(low <= tick <= high for tick in axes.get_xticks()) <= 9


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("accuracy", r"request.*test accuracy \(%\)"),
        ("time", r"request.*cumulative time \(min\)"),
        ("bytes", r"cumulative serialised\nbytes \(MB\)"),
        ("population", r"clients.*simulated time \(min\); F-SOSA-U/I, seed 0"),
    ],
)
def test_axes_name_their_quantities(runs, name, pattern):
    texts = " ".join(
        axes.get_xlabel() + axes.get_ylabel() for axes in figures(runs)[name](runs).axes
    )
    assert re.search(pattern, texts)


def test_accuracy_is_the_mean_over_seeds_in_percent(runs):
    (axes,) = quality(runs).axes
    group = by_method(runs)["fsosa"]
    expected = 100 * np.mean([run.metrics["accuracy"] for run in group], axis=0)
    drawn = axes.lines[0].get_ydata()
    assert drawn[:-1] == pytest.approx(expected)
    assert drawn[-1] == drawn[-2]  # the last step has a length


def test_several_seeds_have_a_band_and_one_has_none(runs):
    assert len(quality(runs).axes[0].collections) == 3
    assert not quality(by_method(runs)["fsosa"][:1]).axes[0].collections


def test_the_band_reaches_from_least_to_largest(runs):
    group = by_method(runs)["fsosa"]
    (band,) = quality(group).axes[0].collections
    heights = band.get_paths()[0].vertices[:, 1]
    values = 100 * np.array([run.metrics["accuracy"] for run in group])
    assert heights.min() == pytest.approx(values.min())
    assert heights.max() == pytest.approx(values.max())


def test_accuracy_never_shows_less_than_a_point(tmp_path, make_run):
    make_run(tmp_path, "fsosa", requests=1)
    low, high = quality(load(tmp_path)).axes[0].get_ylim()
    assert high - low >= 1 - 1e-9


def test_no_quality_below_zero_is_on_the_axis(tmp_path, make_run):
    make_run(tmp_path, "fsosa", requests=3)
    (run,) = load(tmp_path)
    run.metrics["accuracy"] = 0.0
    axes = quality([run]).axes[0]
    low, high = axes.get_ylim()
    assert -0.1 < low < 0  # the line at 0 is seen
    assert high - low == pytest.approx(1)
    assert high > 0.9


def test_costs_start_at_zero(runs):
    for axes in (*cumulative_time(runs).axes, *cumulative_bytes(runs).axes):
        assert axes.get_ylim()[0] == 0
        assert all(line.get_ydata()[0] == 0 for line in axes.lines)
        assert all(line.get_drawstyle() == "steps-post" for line in axes.lines)


def test_tariffs_share_one_scale(runs):
    panels = cumulative_bytes(runs).axes
    assert [axes.get_title() for axes in panels] == [
        "tariff: incremental",
        "tariff: broadcast",
        "tariff: paper",
    ]
    assert len({axes.get_ylim() for axes in panels}) == 1


def test_population_counts_joins_and_leaves(runs):
    figure = population(runs)
    upper, strip = figure.axes
    metrics = by_method(runs)["fsosa"][0].metrics
    members = upper.lines[0].get_ydata()
    # One by one, M after each request is also what the coordinator noted.
    assert members[:-1].tolist() == metrics["population"].tolist()
    assert set(upper.lines[1].get_ydata()) == {10}
    joins, leaves, edits = (marks.get_positions() for marks in strip.collections)
    assert len(joins) == (metrics["kind"] == "join").sum()
    assert len(leaves) == (metrics["kind"] == "leave").sum()
    assert len(edits) == metrics["triggered"][1:].sum()
    assert np.array(edits) * 60 == pytest.approx(metrics["t_end"][1:][metrics["triggered"][1:]])


def test_a_batch_has_one_edit_but_all_its_joins_and_leaves(batched):
    upper, strip = population(batched).axes
    metrics = by_method(batched)["fsosa"][0].metrics
    joins, leaves, edits = (marks.get_positions() for marks in strip.collections)
    assert len(joins) + len(leaves) == 31
    handled = metrics.drop_duplicates("t_end").iloc[1:]
    assert len(edits) == handled["triggered"].sum()
    assert upper.lines[0].get_ydata()[-1] == metrics["population"].iloc[-1]


def test_a_method_without_subset_shows_none(runs):
    upper, _ = population(by_method(runs)["finetune"]).axes
    assert [line.get_label() for line in upper.lines] == ["population M"]


def test_methods_keep_their_look_whoever_else_is_there():
    alone, together = looks(["retrain"]), looks(["zeta", "retrain", "fsosa", "alpha"])
    assert alone["retrain"] == together["retrain"]
    assert list(together) == ["fsosa", "retrain", "alpha", "zeta"]


def test_many_methods_differ_without_colour():
    many = looks(["fsosa", "retrain", "finetune", "a", "b", "c", "d"])
    assert len({str(look.dashes) for look in many.values()}) == 7
    assert len({look.marker for look in many.values()}) == 7
    assert len({look.color for look in many.values()}) == 7


def test_text_is_never_set_by_latex():
    with styled():
        assert not matplotlib.rcParams["text.usetex"]
        assert matplotlib.rcParams["pdf.fonttype"] == 42
        assert new_figure(2, 1).get_layout_engine() is not None
