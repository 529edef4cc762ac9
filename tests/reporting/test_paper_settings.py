"""Which keys vary over some runs, found from their manifests."""

import json

import pytest
from extents import texts

from testbed.errors import ResultsError
from testbed.reporting.paper.catalogue import FIGURES
from testbed.reporting.paper.table import tabulate
from testbed.reporting.settings import changing, grouped, one_setting, read, text, varying


def test_the_grid_is_found_without_the_sweeps_own_file(swept):
    assert varying(swept) == ("editing.rho", "mobility.density")
    assert list(grouped(swept, varying(swept))) == [
        (0.3, 1.8), (0.3, 3.6), (0.5, 1.8), (0.5, 3.6),
    ]  # fmt: skip
    assert all(len(group) == 6 for group in grouped(swept, varying(swept)).values())


def test_one_experiment_has_one_setting(runs):
    assert varying(runs) == ()
    assert list(grouped(runs, ())) == [()]
    one_setting(runs, "anything")


def test_name_seeds_methods_and_execution_are_no_settings(tmp_path, make_run):
    make_run(tmp_path / "a", "fsosa", requests=2, seeds=(0,), editing={"methods": ["fsosa"]})
    make_run(tmp_path / "b", "retrain", requests=2, name="other", execution={"workers": 2})
    assert varying(read(tmp_path)) == ()


def test_a_key_that_follows_from_others_is_left_out(tmp_path, make_run):
    for number, (name, model) in enumerate([("mnist", "cnn"), ("svhn", "lenet")]):
        make_run(
            tmp_path / name, "fsosa", requests=2,
            data={"name": name, "path": f"there/{number}"}, learning={"model": model},
        )  # fmt: skip
    runs = read(tmp_path)
    assert changing(runs) == ("data.name", "data.path", "learning.model")
    assert varying(runs) == ("data.name",)
    # Unless the caller knows better.
    assert varying(runs, first=["learning.model"]) == ("learning.model",)


def test_numbers_are_in_order_of_size_and_words_of_the_alphabet(tmp_path, make_run):
    for alpha in (10.0, 0.5, 2.0):
        for name in ("svhn", "mnist"):
            make_run(
                tmp_path / f"{alpha}{name}", "fsosa", requests=1,
                data={"alpha": alpha, "name": name, "path": "x"},
            )  # fmt: skip
    runs = read(tmp_path)
    assert list(grouped(runs, ["data.alpha"])) == [(0.5,), (2.0,), (10.0,)]
    assert list(grouped(runs, ["data.name"])) == [("mnist",), ("svhn",)]


def test_settings_are_named_as_a_paper_would():
    assert text(["editing.rho", "clients.initial"], (0.5, 20)) == "ρ = 0.5, M0 = 20"
    assert text(["mobility.density"], (None,)) == "departure gap unset s"
    assert text(["learning.lr"], (0.01,)) == "learning.lr = 0.01"
    assert text([], ()) == ""


@pytest.mark.parametrize(
    ("name", "path", "shown"),
    [
        ("npz", "there/svhn_small.npz", "svhn_small"),
        ("mnist", "there/mnist.npz", "mnist"),
        ("mnist", "there/other", "mnist, other"),
        ("fashion-mnist", None, "fashion-mnist"),
    ],
)
def test_data_are_named_without_their_folder(name, path, shown):
    keys = ["data.name", "data.path", "editing.rho"]
    assert text(keys, (name, path, 0.5)) == f"{shown}, ρ = 0.5"
    assert text(["data.path"], (path,)) == (shown.rpartition(", ")[2] if path else "unset")


def test_bundles_are_told_apart_by_their_files(tmp_path, make_run):
    for file, partition in (("a", "dirichlet"), ("b", "dirichlet"), ("c", "writers")):
        make_run(
            tmp_path / file, "fsosa", requests=1,
            data={"name": "npz", "path": f"there/{file}.npz", "partition": partition},
        )  # fmt: skip
    assert varying(read(tmp_path)) == ("data.path",)


def test_a_bundle_has_the_name_of_its_file_beside_other_data(tmp_path, make_run):
    make_run(tmp_path / "digits", "fsosa", requests=1)
    make_run(tmp_path / "npz", "fsosa", requests=1, data={"name": "npz", "path": "there/svhn.npz"})
    runs = read(tmp_path)
    assert varying(runs) == ("data.name",)
    assert [
        text(("data.name",), key, of[0]) for key, of in grouped(runs, ("data.name",)).items()
    ] == [
        "digits",
        "svhn",
    ]
    assert list(tabulate(runs).settings()) == ["digits", "svhn"]
    shown = {text.get_text() for text in texts(FIGURES["waiting"](runs, 3.5))}
    assert {"digits", "svhn"} <= shown


@pytest.mark.parametrize(
    ("where", "count"),
    [
        (["rho=0.5"], 12),
        (["editing.rho=0.5", "density=1.8"], 6),
        (["mobility.density=3.6"], 12),
        (["data.name=digits"], 24),
    ],
)
def test_runs_are_chosen_by_the_names_of_the_command_line(sweep, where, count):
    assert len(read(sweep, where)) == count


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("rho", "write KEY=VALUE; what differs here: rho, density"),
        ("tempo=3", "what differs here: rho, density"),
        ("rho=0.9", "no run has that; rho is 0.3, 0.5 here"),
        ("density=[", "no run has that; density is 1.8, 3.6 here"),
    ],
)
def test_a_mistake_in_a_condition_is_one_line(sweep, where, told):
    with pytest.raises(ResultsError) as caught:
        read(sweep, [where])
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_same_run_twice_is_refused(tmp_path, make_run):
    for name in ("a", "b"):
        make_run(tmp_path / name, "fsosa", requests=1)
    with pytest.raises(ResultsError, match=r"holds fsosa with seed 0 twice, in .*a/fsosa"):
        read(tmp_path)


def test_results_of_mixed_schema_versions_name_the_folder(tmp_path, make_run):
    make_run(tmp_path / "new", "fsosa", requests=1)
    old = make_run(tmp_path / "old", "fsosa", requests=1, editing={"rho": 0.3})
    manifest = json.loads((old / "manifest.json").read_text())
    (old / "manifest.json").write_text(json.dumps({**manifest, "schema": 1}))
    with pytest.raises(ResultsError) as caught:
        read(tmp_path)
    assert str(caught.value).startswith(f"{old}/manifest.json: schema version 1, this testbed")
    assert "\n" not in str(caught.value)


def test_a_drawing_of_one_setting_says_how_to_choose_it(swept):
    with pytest.raises(ResultsError) as caught:
        one_setting(swept, "population")
    assert str(caught.value) == (
        "population shows one setting and these runs have 4; choose one with "
        "--where rho=0.3 --where density=1.8, or name its folder"
    )
