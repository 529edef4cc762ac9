"""A run's table of average precisions: written and read back, refused where it cannot be."""

import shutil

import numpy as np
import pandas as pd
import pytest
from detector_runs import BOXES, STEPS, Step, write_detector_run

from testbed.errors import ResultsError
from testbed.experiments.detection import COLUMNS, overall, read_detection, write_predictions
from testbed.experiments.rundir import read_run


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return write_detector_run(tmp_path_factory.mktemp("results"))


@pytest.fixture
def folder(finished, tmp_path):
    """A finished run of one's own."""
    return shutil.copytree(finished, tmp_path / "run")


def test_one_row_per_release_and_figure(finished):
    frame = read_detection(read_run(finished))
    assert tuple(frame.columns) == COLUMNS
    assert frame["request"].unique().tolist() == [0, 1, 3]  # unchanged models are not judged again
    assert len(frame) == 3 * (3 * (1 + len(BOXES)) + 2)
    assert overall(frame, "coco")["map50_95"].to_dict() == {0: 0.30, 1: 0.28, 3: 0.32}
    assert overall(frame, "bdd100k")["map50"].to_dict() == pytest.approx(
        {0: 0.62, 1: 0.58, 3: 0.66}
    )
    empty = frame[frame["category"] == "train"]
    assert len(empty) == 9
    assert empty[["map50_95", "map50"]].isna().all(axis=None)
    assert frame.drop(empty.index).notna().all(axis=None)


def test_the_csv_is_the_same_table(finished):
    both = [
        pd.read_csv(finished / "detection.csv"),
        pd.read_parquet(finished / "detection.parquet"),
    ]
    for name in COLUMNS:
        np.testing.assert_array_equal(*(table[name].to_numpy() for table in both))
    first = (finished / "detection.csv").read_text().splitlines()
    assert first[1] == "0,coco,all,all,8,490,0.3,0.6"
    assert first[7] == "0,coco,all,train,8,0,,"


def test_the_members_of_a_batch_share_a_release(tmp_path):
    steps = [STEPS[0], Step("leave", True, 0.2, batch=2), Step("join", True, 0.2, batch=2)]
    folder = write_detector_run(tmp_path, steps=tuple(steps))
    frame = pd.read_parquet(folder / "detection.parquet")
    # Judged once, with the last of them.
    frame[frame["request"] != 1].to_parquet(folder / "detection.parquet", index=False)
    read = read_detection(read_run(folder))
    assert overall(read, "coco")["map50_95"].to_dict() == {0: 0.3, 2: 0.2}


def test_a_run_of_classifiers_has_no_table(folder):
    run = read_run(folder)
    run.metrics["map50_95"] = np.nan
    for name in ("detection.csv", "detection.parquet"):
        (folder / name).unlink()
    assert read_detection(run) is None


def told(folder):
    with pytest.raises(ResultsError) as caught:
        read_detection(read_run(folder))
    message = str(caught.value)
    assert message.startswith(f"{folder / 'detection.parquet'}: damaged run (")
    assert message.endswith("); remove that folder and run the same command again")
    assert "\n" not in message
    return message


def test_a_missing_table(folder):
    (folder / "detection.parquet").unlink()
    assert "missing" in told(folder)


def test_a_table_that_was_cut_off(folder):
    path = folder / "detection.parquet"
    path.write_bytes(path.read_bytes()[:100])
    told(folder)


@pytest.mark.parametrize(
    ("column", "row", "value", "what"),
    [
        ("convention", 0, "voc", "convention cannot be voc in row 0"),
        ("category", 2, "tram", "category cannot be tram in row 2"),
        ("category", 2, "pedestrian", "group cannot be all in row 2"),  # a second time
        ("pictures", 3, 0, "pictures cannot be 0 in row 3"),
        ("n", 3, -1, "n cannot be -1 in row 3"),
        ("map50_95", 4, 1.5, "map50_95 cannot be 1.5 in row 4"),
        ("map50_95", 4, np.nan, "map50_95 cannot be nan in row 4"),
        ("map50", 6, 0.5, "map50 cannot be 0.5 in row 6"),  # there is no train
        ("map50_95", 0, 0.25, "its mAP50-95 are not those of the metrics"),
        ("request", slice(None), 1, "group cannot be all in row 35"),
        ("n", slice(None), 1.0, "n has the type float64"),
        ("convention", slice(None), 7, "convention has the type int64"),
    ],
)
def test_damaged_tables(folder, column, row, value, what):
    frame = pd.read_parquet(folder / "detection.parquet")
    if row == slice(None):
        frame[column] = value
    else:
        frame.loc[row, column] = value
    frame.to_parquet(folder / "detection.parquet", index=False)
    assert what in told(folder)


@pytest.mark.parametrize(
    ("keep", "what"),
    [
        (lambda f: f["request"] > 0, "requests are not those"),
        (lambda f: f["request"] < 3, "requests are not those"),
        (lambda f: (f["convention"] != "bdd100k") | (f["request"] != 1), "no mAP by bdd100k"),
        (lambda f: f["n"] < 0, "requests are not those"),
    ],
)
def test_missing_rows(folder, keep, what):
    frame = pd.read_parquet(folder / "detection.parquet")
    frame[keep(frame)].to_parquet(folder / "detection.parquet", index=False)
    assert what in told(folder)


def test_other_columns(folder):
    frame = pd.read_parquet(folder / "detection.parquet").drop(columns="n")
    frame.to_parquet(folder / "detection.parquet", index=False)
    assert "columns are request, convention" in told(folder)


def test_a_release_that_was_not(folder):
    """Request 2 changed nothing."""
    frame = pd.read_parquet(folder / "detection.parquet")
    frame.loc[frame["request"] == 1, "request"] = 2
    frame.to_parquet(folder / "detection.parquet", index=False)
    assert "requests are not those" in told(folder)


def test_predictions_cannot_be_written(tmp_path):
    (tmp_path / "predictions").write_text("in the way")
    with pytest.raises(ResultsError, match="cannot write"):
        write_predictions(tmp_path, [], [])
