"""FEMNIST from shards as LEAF writes them: whose pictures, in which order."""

import json
from pathlib import Path

import numpy as np
import pytest
from data_files import faults, leaf_shard, load, refusal, write_leaf

FIRST = "train/all_data_2_niid_0_keep_0_train_9.json"


@pytest.fixture
def folder(tmp_path):
    write_leaf(tmp_path)
    return tmp_path


def change(path: Path, **keys: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


def test_writers_keep_the_order_of_shards_and_users(folder):
    data = load("femnist", folder)
    # Shard 2 comes before shard 10, user w9 before w1.
    assert data.writers == ("w9", "w1", "w5")
    assert data.writers_train.tolist() == [0, 0, 1, 2, 2, 2]
    assert data.writers_train.dtype == np.int64
    assert data.y_train.tolist() == [0, 35, 61, 1, 2, 3]
    assert data.y_test.tolist() == [5, 6, 7, 8]
    assert [data.classes[label] for label in (0, 9, 10, 35, 36, 61)] == list("09AZaz")
    assert len(data.classes) == 62


def test_grey_values_are_those_of_the_file(folder):
    data = load("femnist", folder)
    assert data.x_train.shape == (6, 1, 28, 28)
    assert data.x_train[:, 0, 13, 27].tolist() == [
        np.float32(grey) / np.float32(255) for grey in (10, 20, 30, 40, 50, 60)
    ]
    assert data.x_test[:, 0, 0, 0].tolist() == [
        np.float32(grey) / np.float32(255) for grey in (70, 80, 90, 91)
    ]


def test_rows_of_pixels_are_rows_of_the_picture(folder):
    path = folder / FIRST
    shard = json.loads(path.read_text())
    shard["user_data"]["w1"]["x"] = [[0.0] * 28 + [1.0] * 756]
    path.write_text(json.dumps(shard))
    picture = load("femnist", folder).x_train[2, 0]
    assert picture[0].tolist() == [0.0] * 28
    assert (picture[1:] == 1).all()


def test_a_user_without_pictures_is_no_writer(folder):
    path = folder / FIRST
    path.write_text(json.dumps(leaf_shard({"w9": [(1, 0)], "empty": [], "w1": [(2, 1)]})))
    assert load("femnist", folder).writers == ("w9", "w1", "w5")


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_part_without_shards(folder, part):
    for path in (folder / part).iterdir():
        path.unlink()
    assert refusal("femnist", folder).startswith(f"{folder}: no JSON file in {part}/")


def test_truncated_shards_are_all_named(folder):
    broken = [folder / FIRST, folder / "test/all_data_10_niid_0_keep_0_test_9.json"]
    for path in broken:
        path.write_text(path.read_text()[:-40])
    lines = faults("femnist", folder)
    assert len(lines) == 2
    for line, path in zip(lines, broken, strict=True):
        assert line.startswith(f"{path}: truncated or not JSON: ")
        assert line.endswith("copy it again")


@pytest.mark.parametrize("content", [b"", b"[", b"\xff\xfe\x00", b"[" * 100_000])
def test_files_that_are_no_json(folder, content):
    (folder / FIRST).write_bytes(content)
    assert refusal("femnist", folder).startswith(f"{folder / FIRST}: truncated or not JSON")


SAMPLE = {"x": [[0.5] * 784], "y": [1]}


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"users": ["w9"]}, "1 users, 2 num_samples and 2 entries of user_data do not name"),
        ({"users": ["w9", "w9"]}, "do not name the same users once each"),
        ({"num_samples": [2]}, "2 users, 1 num_samples and 2 entries"),
        ({"num_samples": [2, 5]}, "user 'w1': 1 pictures and 1 labels where num_samples promises"),
        ({"users": 3}, "users and num_samples must be lists"),
        ({"user_data": {"w9": SAMPLE, "w1": {"x": [[0.5] * 784]}}, "num_samples": [1, 1]}, "no x"),
        ({"user_data": {"w9": SAMPLE, "w1": {"x": [[0.5] * 9], "y": [1]}}, "num_samples": [1, 1]},
         "user 'w1': x is not one list of 784 numbers per picture"),
        ({"user_data": {"w9": SAMPLE, "w1": {"x": ["img.jpg"], "y": [1]}}, "num_samples": [1, 1]},
         "user 'w1': x is not one list of 784"),
        ({"user_data": {"w9": SAMPLE, "w1": {"x": [[2.0] * 784], "y": [1]}},
          "num_samples": [1, 1]}, "user 'w1': a grey value is not in 0..1"),
        ({"user_data": {"w9": SAMPLE, "w1": {"x": [[float("nan")] * 784], "y": [1]}},
          "num_samples": [1, 1]}, "user 'w1': a grey value is not in 0..1"),
        ({"user_data": {"w9": SAMPLE, "w1": SAMPLE | {"y": [62]}}, "num_samples": [1, 1]},
         "user 'w1': y: label 62 of sample 0 is not in 0..61"),
        ({"user_data": {"w9": SAMPLE, "w1": SAMPLE | {"y": ["a"]}}, "num_samples": [1, 1]},
         "user 'w1': y: shape (1,) of <U1, expected (n,) of integers"),
    ],
)  # fmt: skip
def test_shards_that_contradict_themselves(folder, keys, reason):
    change(folder / FIRST, **keys)
    line = refusal("femnist", folder)
    assert line.startswith(f"{folder / FIRST}: ")
    assert reason in line


def test_a_shard_of_something_else(folder):
    (folder / FIRST).write_text("{}")
    assert refusal("femnist", folder) == (
        f"{folder / FIRST}: not a LEAF shard, it must have the keys users, num_samples, user_data"
    )


def test_a_user_of_two_shards(folder):
    path = folder / "train/all_data_10_niid_0_keep_0_train_9.json"
    path.write_text(json.dumps(leaf_shard({"w9": [(1, 1)]})))
    assert refusal("femnist", folder) == f"{path}: user 'w9' is also in an earlier shard"


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"users": [1, 2]}, "users must be strings"),
        ({"users": ["w9", "w2"]}, "user_data do not name the same users once each; look at user"),
        ({"users": ["w9", "w9"]}, "look at user 'w1'"),
    ],
)
def test_users_that_are_not_those_of_the_data(folder, keys, reason):
    change(folder / FIRST, **keys)
    assert reason in refusal("femnist", folder)


@pytest.mark.parametrize(
    ("labels", "reason"),
    [({"0": 1}, "x and y must be lists"), (3, "x and y must be lists"), ("1", "x and y must")],
)
def test_labels_that_are_no_list(folder, labels, reason):
    path = folder / FIRST
    shard = json.loads(path.read_text())
    shard["user_data"]["w1"]["y"] = labels
    path.write_text(json.dumps(shard))
    assert f"user 'w1': {reason}" in refusal("femnist", folder)


def test_numbers_beyond_any_float(folder):
    path = folder / FIRST
    shard = json.loads(path.read_text())
    shard["user_data"]["w1"]["x"] = [[10**401] * 784]
    path.write_text(json.dumps(shard))
    assert "x is not one list of 784 numbers" in refusal("femnist", folder)


def test_advice_for_programmers_is_left_out(folder):
    path = folder / FIRST
    path.write_text(
        path.read_text().replace('"num_samples": [', f'"num_samples": [{"9" * 5000}, ')
    )
    told = refusal("femnist", folder)
    assert "not JSON" in told
    assert "sys." not in told
