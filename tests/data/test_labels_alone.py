"""A data set without its pictures: the same labels, and nothing unpacked."""

import numpy as np
import pytest
from data_files import load, random_bytes, refusal, write_idx, write_picture

from testbed.config.schema import DataConfig
from testbed.data import Dataset, load_labels
from testbed.errors import DataError


def alone(name: str, path, **keys) -> Dataset:
    return load_labels(DataConfig.model_validate({"name": name, "path": path, **keys}))


def agree(labels: Dataset, whole: Dataset) -> None:
    """Check that nothing but the pictures differs."""
    for name in ("name", "classes", "writers"):
        assert getattr(labels, name) == getattr(whole, name)
    for name in ("y_train", "y_test", "writers_train"):
        assert np.array_equal(getattr(labels, name), getattr(whole, name))
    for name in ("x_train", "x_test"):
        black, real = getattr(labels, name), getattr(whole, name)
        assert (black.shape, black.dtype) == (real.shape, real.dtype)
        assert black.strides == (0,) * 4  # one number stands for all
        assert not black.any()


@pytest.mark.parametrize("keys", [{}, {"limit": 13, "test_limit": 10}])
def test_the_labels_are_those_of_the_whole(tmp_path, keys):
    write_idx(tmp_path)
    agree(alone("mnist", tmp_path, **keys), load("mnist", tmp_path, **keys))


def test_digits_are_split_alike():
    keys = {"test_share": 0.4, "limit": 500}
    agree(alone("digits", None, **keys), load("digits", None, **keys))


def test_writers_are_drawn_alike(tmp_path):
    labels = np.repeat([0, 1, 2], [15, 10, 5])
    np.savez(
        tmp_path / "b.npz",
        x_train=random_bytes(30, 4, 4),
        y_train=labels,
        x_test=random_bytes(30, 4, 4, seed=1),
        y_test=labels,
        writer_train=np.arange(30) % 10,
        writer_test=np.arange(30) % 15,
    )
    keys = {"users": 0.5, "limit": 9}
    agree(alone("npz", tmp_path / "b.npz", **keys), load("npz", tmp_path / "b.npz", **keys))


def test_no_picture_is_unpacked(tmp_path):
    """Pictures that are broken behind their first bytes are none the worse."""
    for part in ("train", "test"):
        for name in ("cat", "dog"):
            for number in range(3):
                path = tmp_path / part / name / f"{number}.png"
                write_picture(path, random_bytes(40, 30, 3, seed=number))
                path.write_bytes(path.read_bytes()[:200])
    labels = alone("folder", tmp_path)
    assert labels.x_train.shape == (6, 3, 40, 30)
    assert labels.y_train.tolist() == [0, 0, 0, 1, 1, 1]
    with pytest.raises(DataError):
        load("folder", tmp_path)


def test_the_fingerprint_names_the_labels(tmp_path):
    write_idx(tmp_path)
    first, again = (alone("mnist", tmp_path) for _ in range(2))
    assert first.fingerprint == again.fingerprint != load("mnist", tmp_path).fingerprint
    assert alone("mnist", tmp_path, limit=13).fingerprint != first.fingerprint


def test_what_is_missing_is_told_in_the_same_words(tmp_path):
    with pytest.raises(DataError) as caught:
        alone("mnist", tmp_path)
    assert str(caught.value) == refusal("mnist", tmp_path)
