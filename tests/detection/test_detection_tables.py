"""mAP side by side: every convention, class and attribute, with what it stands on."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from detector_runs import BOXES, STEPS, Step, write_detector_run

from bdd100k_tools import CLASSES
from bdd100k_tools.evaluation import CONVENTIONS, STATEMENTS
from testbed.errors import ResultsError
from testbed.experiments.rundir import find_runs
from testbed.reporting.detection import tables, to_markdown
from testbed.reporting.figures import quality
from testbed.reporting.style import render


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two methods; two seeds of the first."""
    root = tmp_path_factory.mktemp("results")
    write_detector_run(root, "fsosa", 0)
    write_detector_run(root, "fsosa", 1, (*STEPS[:3], Step("leave", True, 0.36), STEPS[4]))
    write_detector_run(root, "retrain", 0, (*STEPS[:3], Step("leave", True, 0.345)))
    # The last request of the second run, which changed nothing, has the value of before it.
    run = root / "fsosa-0a1b2c3d" / "seed=1"
    set_metrics(run, 4, 0.36)
    return find_runs(root)


def set_metrics(folder, request, value):
    frame = pd.read_parquet(folder / "metrics.parquet")
    frame.loc[request, ["map50_95", "map50"]] = value, 2 * value
    frame.to_parquet(folder / "metrics.parquet", index=False)


def test_methods_side_by_side(runs):
    table = tables(runs)[0]
    assert table.header == ("method", "pictures", "boxes", "coco", "bdd100k", "ultralytics")
    # Seeds end at 0.32 and 0.36: mean 0.34, sample standard deviation 0.04 / sqrt(2).
    assert table.lines == (
        (
            "F-SOSA-U/I",
            "8",
            "490",
            "34.0 ± 2.8 / 68.0 ± 5.7",
            "35.0 ± 2.8 / 70.0 ± 5.7",
            "33.0 ± 2.8 / 66.0 ± 5.7",
        ),
        ("Retrain", "8", "490", "34.5 / 69.0", "35.5 / 71.0", "33.5 / 67.0"),
    )
    for convention in CONVENTIONS:
        assert f"{convention} – {STATEMENTS[convention]}." in table.note


def test_classes_and_attributes(runs):
    _, fsosa, retrain = tables(runs)
    assert fsosa.title == "F-SOSA-U/I: classes and attributes"
    assert [line[0] for line in retrain.lines] == [
        "all classes",
        *CLASSES,
        "timeofday: daytime",
        "timeofday: night",
    ]
    lines = {line[0]: line[1:] for line in retrain.lines}
    assert lines["all classes"] == ("8", "490", "34.5 / 69.0", "35.5 / 71.0", "33.5 / 67.0")
    for name in CLASSES:  # the boxes stand beside every value
        assert lines[name][:2] == ("8", str(BOXES[name]))
    assert lines["train"] == ("8", "0", "–", "–", "–")
    assert lines["timeofday: night"] == ("3", "190", "17.2 / 34.5", "–", "–")
    assert lines["timeofday: daytime"] == ("5", "300", "34.5 / 69.0", "–", "–")
    assert {line[0]: line[3] for line in fsosa.lines}["car"] == "34.0 / 68.0"


def test_markdown(runs):
    text = to_markdown(tables(runs))
    assert text.count("### ") == 3
    assert "| Retrain | 8 | 490 | 34.5 / 69.0 | 35.5 / 71.0 | 33.5 / 67.0 |\n" in text
    grids = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in grids} == {7}


def test_nothing_where_nobody_detects(runs, tmp_path):
    folder = write_detector_run(tmp_path)
    frame_without(folder)
    assert tables(find_runs(tmp_path)) == ()


def frame_without(folder):
    frame = pd.read_parquet(folder / "metrics.parquet")
    frame[["map50_95", "map50"]] = np.nan
    frame["accuracy"] = 0.5
    frame.to_parquet(folder / "metrics.parquet", index=False)


def test_a_damaged_table_is_told(tmp_path):
    folder = write_detector_run(tmp_path)
    (folder / "detection.parquet").unlink()
    with pytest.raises(ResultsError, match=r"detection\.parquet: damaged run \(missing\)"):
        tables(find_runs(tmp_path))


def test_the_figure_over_the_requests(runs):
    figure = quality(runs)
    (axes,) = figure.axes
    assert "mAP50-95" in axes.get_ylabel()
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    # The last value is held to the end of its step.
    assert lines["F-SOSA-U/I"] == pytest.approx([30, 28, 28, 34, 34, 34])
    assert lines["Retrain"] == pytest.approx([30, 28, 28, 34.5, 34.5])
    assert render(figure, "png") == render(quality(runs), "png")


def test_reports_need_no_training_library(runs):
    """Drawing from a run folder starts no torch and no ultralytics."""
    folder = runs[0].folder.parents[1]
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from testbed.experiments.rundir import find_runs\n"
        "from testbed.reporting.detection import tables\n"
        "import testbed.reporting.edit_sheet\n"
        f"assert len(tables(find_runs(Path({str(folder)!r})))) == 3\n"
        "print([name for name in ('torch', 'ultralytics') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
