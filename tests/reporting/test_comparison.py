import json

import numpy as np
import pytest

from testbed.errors import ResultsError
from testbed.reporting.comparison import by_method, column, cumulative, curve, load, requests


def test_runs_are_grouped_in_display_order(runs):
    groups = by_method(runs)
    assert list(groups) == ["fsosa", "retrain", "finetune"]
    assert [run.seed for run in groups["retrain"]] == [0, 1]


def test_a_single_run_folder_is_a_comparison_too(experiment):
    (run,) = load(experiment / "fsosa-0a1b2c3d" / "seed=1")
    assert (run.method, run.seed, requests(run)) == ("fsosa", 1, 31)


def test_runs_of_different_settings_are_refused(tmp_path, make_run):
    make_run(tmp_path / "a", "fsosa", requests=3)
    make_run(tmp_path / "b", "retrain", requests=3, editing={"rho": 0.3})
    with pytest.raises(ResultsError, match=r"different experiments \(editing\.rho: 0\.5 there"):
        load(tmp_path)


def test_the_same_run_twice_is_refused(tmp_path, make_run):
    for name in ("a", "b"):
        make_run(tmp_path / name, "fsosa", requests=3, name=name)
    with pytest.raises(
        ResultsError, match=r"fsosa with seed 0 twice, in .*name the folder of one"
    ):
        load(tmp_path)


def test_name_seeds_methods_and_execution_may_differ(tmp_path, make_run):
    make_run(tmp_path, "fsosa", requests=3, seeds=(0,), editing={"methods": ["fsosa"]})
    make_run(tmp_path, "retrain", requests=3, name="other", execution={"kind": "serial"})
    assert len(load(tmp_path)) == 2


def test_a_folder_without_runs_is_an_error(tmp_path):
    with pytest.raises(ResultsError, match="holds no finished run"):
        load(tmp_path)


def test_a_manifest_without_configuration_is_an_error(tmp_path, make_run):
    path = make_run(tmp_path, "fsosa", requests=3) / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["config"]
    path.write_text(json.dumps(manifest))
    with pytest.raises(ResultsError, match=r"\(no config\); remove that folder"):
        load(tmp_path)


def test_a_configuration_without_a_section_is_an_error(tmp_path, make_run):
    path = make_run(tmp_path, "fsosa", requests=3) / "manifest.json"
    manifest = json.loads(path.read_text())
    for editing in ("text", None, ["rho"]):
        manifest["config"]["editing"] = editing
        path.write_text(json.dumps(manifest))
        with pytest.raises(ResultsError, match="config has no section editing"):
            load(tmp_path)


def test_columns_are_ordered_by_request(runs):
    assert column(runs[0], "request").tolist() == list(range(32))


def test_cumulative_counts_the_initial_training_as_nothing(runs):
    handled = cumulative(runs[0], lambda cost: 1.0)
    assert handled.tolist() == list(range(32))


def test_a_batch_steps_on_its_last_request(batched):
    handled = cumulative(batched[0], lambda cost: 1.0)
    # Batches end with requests 3, 6, ..., 30 and 31.
    assert handled[:8].tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
    assert handled[-3:].tolist() == [9, 10, 11]


def test_curves_cover_the_shortest_run():
    values = curve([np.array([1.0, 2.0, 9.0]), np.array([3.0, 6.0])])
    assert values.requests.tolist() == [0, 1]
    values = values.values
    assert values.mean.tolist() == [2, 4]
    assert values.low.tolist() == [1, 2]
    assert values.high.tolist() == [3, 6]
