"""Bundles of arrays, of JPEG files, with and without writers; broken ones are named."""

import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from data_files import faults, jpeg, load, random_bytes, refusal
from shared_data import bundle


def plain(*shape: int) -> dict[str, np.ndarray]:
    return {
        "x_train": random_bytes(6, *shape),
        "y_train": np.array([0, 1, 2, 0, 1, 2]),
        "x_test": random_bytes(3, *shape, seed=1),
        "y_test": np.array([0, 1, 3]),
    }


def packed(size: int = 8) -> dict[str, np.ndarray]:
    """Return smooth pictures as JPEG files in a row: grey values are kept within a few."""
    arrays: dict[str, np.ndarray] = {}
    for part, count in (("train", 5), ("test", 3)):
        files = [jpeg(np.full((size, size, 3), 20 * i, np.uint8)) for i in range(count)]
        arrays[f"{part}_jpeg"] = np.frombuffer(b"".join(files), np.uint8)
        arrays[f"{part}_offsets"] = np.cumsum([0, *map(len, files)])
        arrays[f"{part}_labels"] = np.arange(count, dtype=np.uint8)
    return arrays


@pytest.fixture
def store(tmp_path):
    def write(**arrays: np.ndarray) -> Path:
        path = tmp_path / "some.npz"
        np.savez_compressed(path, **arrays)
        return path

    return write


# Plain arrays -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "expected"), [((5, 4), (1, 5, 4)), ((5, 4, 1), (1, 5, 4)), ((5, 4, 3), (3, 5, 4))]
)
def test_grey_and_colour(store, shape, expected):
    arrays = plain(*shape)
    data = load("npz", store(**arrays))
    assert data.x_train.shape == (6, *expected)
    assert data.x_train.flags.c_contiguous
    last = arrays["x_train"].reshape(6, 5, 4, -1)[3, 2, 1, -1]
    assert data.x_train[3, -1, 2, 1] == last / np.float32(255)
    # Labels reach 3 in the test part alone.
    assert data.classes == ("0", "1", "2", "3")
    assert data.writers_train is None
    assert data.writers == ()


def test_classes_can_have_names(store):
    names = np.array(["a", "b", "c", "d"])
    assert load("npz", store(**plain(4, 4), class_names=names)).classes == tuple("abcd")
    assert load("npz", store(**plain(4, 4), class_chars=names)).classes == tuple("abcd")
    line = refusal("npz", store(**plain(4, 4), class_names=names[:3]))
    assert line.endswith("y_test: label 3 of sample 2 is not in 0..2")
    for wrong in (np.arange(4), np.array(["a", "a", "b", "c"]), names[:, None]):
        line = refusal("npz", store(**plain(4, 4), class_names=wrong))
        assert line.endswith("class_names: expected one string per class, each once")


def test_other_arrays_are_not_even_read(store):
    path = store(**plain(4, 4), notes=np.array([{"an": "object"}]))
    assert len(load("npz", path).y_train) == 6


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"x_train": np.zeros((6, 16), np.uint8)}, "x_train: shape (6, 16) of uint8, expected (n"),
        ({"x_train": np.zeros((6, 3, 4, 4), np.uint8)}, "expected (n, height, width) or (n, heig"),
        ({"x_test": np.zeros((3, 0, 4), np.uint8)}, "x_test: pictures without pixels"),
        ({"x_test": np.zeros((3, 4, 5), np.uint8)}, "pictures of (1, 4, 4) to learn from and of"),
        ({"y_train": np.full(6, 1000)}, "label 1000 of sample 0 is not in 0..999 (6 such labels)"),
        ({"y_train": np.array([0, 1, 2, 3, -4, 5])}, "y_train: label -4 of sample 4"),
        ({"writer_test": np.zeros(3, int)}, "writer_test without writer_train"),
        ({"writer_train": np.zeros(4, int)}, "writer_train: shape (4,) of int64, expected (6,)"),
        ({"writer_train": np.zeros(6)}, "writer_train: shape (6,) of float64, expected"),
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit(store, change, reason):
    path = store(**(plain(4, 4) | change))
    line = refusal("npz", path)
    assert line.startswith(f"{path}: ")
    assert reason in line


def test_every_wrong_array_has_a_line(store):
    path = store(**(plain(4, 4) | {"y_train": np.zeros(2, int), "y_test": np.zeros(9, int)}))
    assert faults("npz", path) == (
        f"{path}: y_train: 2 labels for 6 pictures",
        f"{path}: y_test: 9 labels for 3 pictures",
    )


# Writers ------------------------------------------------------------------------------


def test_writers_by_number_or_name(store):
    by_name = store(
        **plain(4, 4), writer_train=np.array(list("bbaacc")), writer_test=np.array(list("abz"))
    )
    data = load("npz", by_name)
    assert data.writers == ("a", "b", "c")
    assert data.writers_train.tolist() == [1, 1, 0, 0, 2, 2]
    # With names of their own the numbers keep their order; 9 has no training picture.
    ids = np.array(["x", "y", "nobody", "z"])
    data = load(
        "npz", store(**plain(4, 4), writer_train=np.array([1, 1, 0, 0, 3, 3]), writer_ids=ids)
    )
    assert data.writers == ("x", "y", "z")
    assert data.writers_train.tolist() == [1, 1, 0, 0, 2, 2]
    line = refusal("npz", store(**plain(4, 4), writer_train=np.full(6, 4), writer_ids=ids))
    assert line.endswith("writer_train: writer 4 of sample 0 is not in 0..3 (6 such writers)")


def test_writers_are_part_of_the_fingerprint(store):
    marks = {load("npz", store(**plain(4, 4))).fingerprint}
    for writers in ([0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 0, 1]):
        path = store(**plain(4, 4), writer_train=np.array(writers))
        marks.add(load("npz", path).fingerprint)
    assert len(marks) == 3


# JPEG files in a row ------------------------------------------------------------------


def test_packed_pictures(store):
    data = load("npz", store(**packed()))
    assert data.x_train.shape == (5, 3, 8, 8)
    assert data.x_test.shape == (3, 3, 8, 8)
    expected = np.arange(5)[:, None, None, None] * 20 / 255
    assert data.x_train == pytest.approx(np.broadcast_to(expected, (5, 3, 8, 8)), abs=2 / 255)
    assert data.y_train.tolist() == [0, 1, 2, 3, 4]


def test_a_limit_unpacks_the_same_pictures(store):
    arrays = packed()
    arrays["train_labels"] = np.array([0, 0, 0, 1, 1], np.uint8)
    path = store(**arrays)
    whole, part = load("npz", path), load("npz", path, limit=3)
    rows = [picture.tobytes() for picture in whole.x_train]
    assert [rows.index(picture.tobytes()) for picture in part.x_train] == sorted(
        rows.index(picture.tobytes()) for picture in part.x_train
    )
    assert part.y_train.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"train_offsets": np.array([0, 5, 4, 6, 7, 8])}, "train_offsets: they must rise from 0"),
        ({"train_offsets": np.array([0, 5, 6, 7, 8, 10**9])}, "is the file truncated?"),
        ({"train_offsets": np.array([-1, 5, 6, 7, 8, 9])}, "train_offsets: they must rise"),
        ({"train_offsets": np.array(3)}, "train_offsets: shape () of int64, expected (n + 1,)"),
        ({"train_offsets": np.zeros(6)}, "train_offsets: shape (6,) of float64"),
        ({"train_labels": np.zeros(4, int)}, "train_labels: 4 labels for 5 pictures"),
        ({"train_jpeg": np.zeros((2, 2), np.uint8)}, "train_jpeg: uint8, expected (bytes,) of"),
        ({"train_jpeg": np.zeros(9000, np.uint8)}, "train picture 0: not a picture"),
    ],
)
def test_packed_arrays_that_do_not_fit(store, change, reason):
    path = store(**(packed() | change))
    line = refusal("npz", path)
    assert line.startswith(f"{path}: ")
    assert reason in line


def test_a_missing_packed_array(store):
    arrays = packed()
    del arrays["test_offsets"]
    path = store(**arrays)
    assert refusal("npz", path).startswith(f"{path}: test_offsets is not a file in the archive")


def test_mixed_sizes_of_packed_pictures(store):
    arrays, other = packed(), packed(16)
    start = arrays["train_offsets"][-1]
    extra = other["train_jpeg"][: other["train_offsets"][1]]
    arrays["train_jpeg"] = np.concatenate([arrays["train_jpeg"], extra])
    arrays["train_offsets"] = np.append(arrays["train_offsets"], start + len(extra))
    arrays["train_labels"] = np.append(arrays["train_labels"], 0)
    path = store(**arrays)
    assert refusal("npz", path) == (
        f"{path}: train picture 5: 16x16 pixels where the first picture has 8x8; make all one size"
    )


# Names that know what to expect -------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shape"), [("cifar10", (32, 32, 3)), ("svhn", (32, 32, 3)), ("femnist", (28, 28))]
)
def test_a_bundle_of_a_known_data_set(store, name, shape):
    path = store(**plain(*shape))
    data = load(name, path)
    assert data.x_train.shape[1:] == ((3, 32, 32) if len(shape) == 3 else (1, 28, 28))
    assert len(data.classes) == (62 if name == "femnist" else 10)
    lines = faults(name, store(**plain(8, 8)))
    assert [line.split(": ")[1] for line in lines] == ["x_train", "x_test"]
    assert f"expected (n, {', '.join(map(str, shape))}) of uint8" in lines[0]


def test_packed_pictures_of_a_known_data_set(store):
    path = store(**packed(32))
    assert load("cifar10", path).x_train.shape == (5, 3, 32, 32)
    first, _ = faults("mnist", path)
    assert first == f"{path}: train_jpeg: pictures of (32, 32, 3), expected (28, 28)"


# Real files ---------------------------------------------------------------------------


def test_the_real_femnist():
    data = load("femnist", bundle("femnist_leaf.npz"))
    assert (len(data.y_train), len(data.y_test), len(data.writers)) == (14_708, 4_088, 105)
    with np.load(bundle("femnist_leaf.npz")) as arrays:
        assert data.writers == tuple(arrays["writer_ids"][:105].tolist())
        assert np.array_equal(data.writers_train, arrays["writer_train"])
    # Ink is dark on white paper.
    assert data.x_train.mean() > 0.9


def test_the_real_svhn():
    data = load("svhn", bundle("svhn_small.npz"))
    assert (data.x_train.shape, data.x_test.shape) == ((554, 3, 32, 32), (486, 3, 32, 32))


def test_the_real_cifar10_in_part():
    data = load("cifar10", bundle("cifar10_jpeg.npz"), limit=200, test_limit=50)
    assert np.bincount(data.y_train).tolist() == [20] * 10
    assert np.bincount(data.y_test).tolist() == [5] * 10
    assert data.x_train.shape == (200, 3, 32, 32)
    assert 0.4 < data.x_train.mean() < 0.55


@pytest.mark.parametrize("shape", ["(20,8", "(1" + 30 * "0" + ", 8, 8)"])
def test_a_header_that_lies(store, shape):
    path = store(**plain(8, 8))
    content = BytesIO()
    np.lib.format.write_array(content, np.zeros((20, 8, 8), np.uint8))
    broken = content.getvalue().replace(b"(20, 8, 8)", shape.encode().ljust(10))
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x_train.npy", broken)
    assert "not a readable .npz bundle" in refusal("npz", path)


def test_a_wrong_writer_is_called_one(store):
    writers = {"writer_train": np.array([0, 1, 7, 0, 1, 0]), "writer_ids": np.array(["a", "b"])}
    assert "writer 7 of sample 2 is not in 0..1" in refusal("npz", store(**plain(8, 8), **writers))
