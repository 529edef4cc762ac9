"""Where data are and how work is done: what a card leaves open."""

from pathlib import Path
from typing import get_args

import pytest
from cards import card

from testbed.claims.places import execution_of, places_of, scale_of
from testbed.claims.trial import OWN_DATA, grids_of
from testbed.config import load
from testbed.config.cards import Scale
from testbed.config.schema import DataConfig
from testbed.errors import ConfigError


def test_scales_are_those_of_a_configuration() -> None:
    assert [scale_of(name) for name in get_args(Scale)] == ["smoke", "small", "paper"]
    with pytest.raises(ConfigError, match="--scale 'Paper': no such scale; known: smoke, small"):
        scale_of("Paper")


def test_a_folder_or_a_bundle_is_the_datas_path(tmp_path: Path) -> None:
    bundle = tmp_path / "mnist.npz"
    bundle.touch()
    found = places_of([f"mnist={bundle}", f"svhn = {tmp_path}"])
    assert found == {
        "mnist": {"data": {"path": str(bundle)}},
        "svhn": {"data": {"path": str(tmp_path)}},
    }


def test_a_file_of_settings_holds_paths_relative_to_itself(tmp_path: Path) -> None:
    (tmp_path / "bdd.yaml").write_text(
        "data: {path: train, labels: train.json}\ndetection: {weights: start.safetensors}\n"
    )
    (found,) = places_of([f"bdd100k={tmp_path / 'bdd.yaml'}"]).values()
    assert found == {
        "data": {"path": str(tmp_path / "train"), "labels": str(tmp_path / "train.json")},
        "detection": {"weights": str(tmp_path / "start.safetensors")},
    }


@pytest.mark.parametrize(
    "content", ["- data", "data: [", "learning: {epochs: 1}", "fidelity: cost"]
)
def test_other_files_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "place.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"place\.yaml"):
        places_of([f"mnist={path}"])


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            "data: {name: fashion-mnist}",
            "data.name: 'fashion-mnist' is another data set than mnist",
        ),
        ("data: {path: x, alpha: 0.05}", "data.alpha: says where data are and nothing else"),
        ("data: {path: x, partition: iid}", "data.partition: says where data are"),
        ("detection: {image_size: 64}", "detection.image_size: says where data are"),
    ],
)
def test_a_place_is_no_other_claim(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "place.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        places_of([f"mnist={path}"])
    assert told in str(caught.value)
    path.write_text("data: {name: npz, path: mnist.npz}")
    assert places_of([f"mnist={path}"])["mnist"]["data"]["name"] == "npz"


def test_a_data_set_has_one_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--data mnist stands twice"):
        places_of([f"mnist={tmp_path}", f"mnist={tmp_path}"])
    with pytest.raises(ConfigError, match="--data mnist: there is no 'xxx"):
        places_of([f"mnist={'x' * 5000}"])


@pytest.mark.parametrize("given", ["", "=", "mnist", "mnist=", "=x", "MNIST=."])
def test_a_place_that_says_nothing_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match="--data"):
        places_of([given])


def test_every_data_set_can_be_placed(tmp_path: Path) -> None:
    names = get_args(DataConfig.model_fields["name"].annotation)
    assert set(places_of([f"{name}={tmp_path}" for name in names])) == set(names)
    assert set(OWN_DATA) <= set(names)


def test_clients_train_once_for_all_claims(tmp_path: Path) -> None:
    assert execution_of([], tmp_path) == {
        "kind": "processes", "store": str(tmp_path / ".store"),
    }  # fmt: skip
    found = execution_of(["execution.workers=3", "execution.store=elsewhere"], tmp_path)
    assert found == {"kind": "processes", "workers": 3, "store": "elsewhere"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("seeds=0", "a claim is tried as its card says; only execution"),
        ("execution.workers=none", "execution.workers: 'none' must be a whole number"),
        ("execution=processes", "execution"),
        ("execution.kind=cloud", "execution.kind: 'cloud' must be"),
        ("workers", "write KEY=VALUE"),
    ],
)
def test_nothing_else_can_be_set(tmp_path: Path, given: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        execution_of([given], tmp_path)


def test_layers_lie_in_order(tmp_path: Path) -> None:
    """The file, the study, the place, the scale, the data set's own settings, the execution."""
    one = card(
        tmp_path,
        study={
            "config": "study.yaml",
            "settings": {"fidelity": "cost", "learning": {"lr": 0.5, "epochs": 7, "batch": 9}},
            "grid": {"rho": [0.5]},
            "methods": ["fsosa"],
        },
        data={"mnist": {"learning": {"batch": 3}}},
        scales={"small": {"seeds": [5], "settings": {"learning": {"epochs": 4, "batch": 8}}}},
    )
    places = {"mnist": {"data": {"name": "digits"}, "learning": {"lr": 0.25, "epochs": 1}}}
    (grid,) = grids_of(one, "small", places, {"workers": 2}).values()
    assert grid is not None
    experiment = grid.points[0].experiment
    learning = experiment.learning
    assert (learning.lr, learning.epochs, learning.batch) == (0.25, 4, 3)
    assert (learning.model, learning.width) == ("mlp", 8)  # of the file
    assert (experiment.scale, experiment.seeds) == ("small", (5,))
    assert experiment.execution.workers == 2
    assert experiment.data.name == "digits"


def test_a_scale_may_have_a_file_of_its_own(tmp_path: Path) -> None:
    own = tmp_path / "other.yaml"
    own.write_text("name: other\nmobility: {source: schedule}\n")
    one = card(tmp_path, scales={"paper": {"seeds": [0], "config": "other.yaml"}})
    (grid,) = grids_of(one, "paper", {}, {}).values()
    assert grid is not None
    assert grid.points[0].experiment.name == load(own).name == "other"
    assert grids_of(one, "small", {}, {}) == {}
