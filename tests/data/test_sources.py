"""Every data set through its real files where present, and every broken file named."""

import gzip
import struct
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from shared_data import bundle

from testbed.config.schema import DataConfig
from testbed.data import load_dataset, origin
from testbed.data.dataset import fingerprint
from testbed.data.sources import DEBIAN_FASHION, GARMENTS
from testbed.errors import DataError

NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "x_train": rng.integers(0, 256, (12, 28, 28), np.uint8),
        "y_train": np.arange(12, dtype=np.uint8) % 10,
        "x_test": rng.integers(0, 256, (5, 28, 28), np.uint8),
        "y_test": np.arange(5, dtype=np.uint8),
    }


@pytest.fixture
def folder(tmp_path):
    for name, array in zip(NAMES, arrays().values(), strict=True):
        (tmp_path / name).write_bytes(idx(array))
    return tmp_path


def refusal(path: Path | None, name: str = "mnist") -> str:
    with pytest.raises(DataError) as caught:
        load_dataset(DataConfig(name=name, path=path))
    message = str(caught.value)
    assert "\n" not in message
    return message


# Digits -------------------------------------------------------------------------------


def test_digits_holds_every_sample_once():
    from sklearn.datasets import load_digits

    data = load_dataset(DataConfig())
    assert (data.name, data.classes) == ("digits", tuple("0123456789"))
    assert data.x_train.shape == (1438, 1, 8, 8)
    assert data.x_test.shape == (359, 1, 8, 8)
    assert data.x_train.dtype == np.float32
    assert data.y_train.dtype == np.int64
    assert (data.x_train.min(), data.x_train.max()) == (0.0, 1.0)
    ours = {
        (picture.tobytes(), int(label))
        for x, y in ((data.x_train, data.y_train), (data.x_test, data.y_test))
        for picture, label in zip(x, y, strict=True)
    }
    official = load_digits()
    theirs = {
        ((picture / 16).astype(np.float32).tobytes(), int(label))
        for picture, label in zip(official.images, official.target, strict=True)
    }
    assert ours == theirs
    assert len(ours) == 1797


@pytest.mark.parametrize("share", [0.0001, 0.2, 0.5, 0.9999])
def test_digits_split_is_stratified(share):
    data = load_dataset(DataConfig(test_share=share))
    train, test = np.bincount(data.y_train), np.bincount(data.y_test, minlength=10)
    total = train + test
    expected = np.clip(np.round(share * total), 1, total - 1)
    assert test.tolist() == expected.tolist()


def test_digits_is_pinned():
    # Runs of every seed, on every machine, are tested on the same pictures.
    assert load_dataset(DataConfig()).fingerprint == "1dc451fe9913c307"


def test_importing_the_room_is_cheap():
    code = (
        "import sys, testbed.data; "
        "print([m for m in ('torch', 'sklearn', 'pandas', 'scipy') if m in sys.modules])"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == "[]"


# The MNIST family from written files --------------------------------------------------


def test_idx_files_become_grey_values(folder):
    data = load_dataset(DataConfig(name="mnist", path=folder))
    raw = arrays()
    assert data.x_train.shape == (12, 1, 28, 28)
    assert data.x_test.dtype == np.float32
    assert np.array_equal(
        data.x_train[:, 0], (raw["x_train"] / np.float32(255)).astype(np.float32)
    )
    assert np.array_equal(data.y_test, raw["y_test"])
    assert data.y_train.dtype == np.int64


def test_gz_and_bundle_are_the_same_data(folder, tmp_path_factory):
    plain = load_dataset(DataConfig(name="mnist", path=folder)).fingerprint
    for name in NAMES:
        content = (folder / name).read_bytes()
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        (folder / name).unlink()
    assert load_dataset(DataConfig(name="mnist", path=folder)).fingerprint == plain
    other = tmp_path_factory.mktemp("bundle")
    np.savez_compressed(other / "mnist.npz", **arrays())
    for path in (other, other / "mnist.npz"):
        assert load_dataset(DataConfig(name="mnist", path=path)).fingerprint == plain


def test_fashion_has_its_own_classes(folder):
    data = load_dataset(DataConfig(name="fashion-mnist", path=folder))
    assert data.classes == GARMENTS
    assert (data.classes[0], data.classes[9], len(set(data.classes))) == (
        "t-shirt/top",
        "ankle boot",
        10,
    )


def test_fields_cannot_be_replaced(folder):
    data = load_dataset(DataConfig(name="mnist", path=folder))
    for field in fields(data):
        with pytest.raises(AttributeError):
            setattr(data, field.name, None)


# Broken files -------------------------------------------------------------------------


def test_a_folder_must_be_named_for_mnist():
    message = refusal(None)
    assert message.startswith(
        "mnist: it does not come with the testbed; set data.path to a folder with"
    )
    assert all(name in message for name in NAMES)


def test_a_missing_folder_is_named(tmp_path):
    assert refusal(tmp_path / "no").startswith(
        f"mnist: there is no {tmp_path / 'no'}; set data.path"
    )


def test_fashion_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setattr("testbed.data.sources.DEBIAN_FASHION", tmp_path / "none")
    assert refusal(None, "fashion-mnist").startswith(
        f"fashion-mnist: there is no {tmp_path / 'none'}; "
        "run 'apt-get install dataset-fashion-mnist' or set data.path to a folder with"
    )


def test_fashion_is_found_where_debian_puts_it(monkeypatch, folder):
    monkeypatch.setattr("testbed.data.sources.DEBIAN_FASHION", folder)
    assert len(load_dataset(DataConfig(name="fashion-mnist")).y_train) == 12


def test_the_environment_is_not_read(monkeypatch, folder):
    monkeypatch.setenv("TESTBED_DATA", str(folder))
    assert "mnist: it does not come with the testbed" in refusal(None)


@pytest.mark.parametrize("name", NAMES)
def test_one_missing_file_is_named(folder, name):
    (folder / name).unlink()
    assert refusal(folder).startswith(f"{folder}: no {name}; the folder must hold")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        (NAMES[1], idx(np.arange(10, dtype=np.uint8)), "10 labels for 12 pictures"),
        (NAMES[1], idx(np.full(12, 10, np.uint8)), "label 10 of sample 0 is not in 0..9"),
        (NAMES[3], idx(np.array([0, 1, 99, 3, 4], np.uint8)), "label 99 of sample 2"),
        (NAMES[0], idx(np.zeros((12, 8, 8), np.uint8)), "shape (12, 8, 8) of uint8, expected"),
        (NAMES[0], idx(np.zeros(12, np.uint8)), "magic number 2049, expected 2051"),
        (NAMES[2], idx(np.zeros((5, 28, 28), np.uint8))[:-1], "truncated"),
    ],
)
def test_a_broken_file_is_named_with_the_reason(folder, name, content, reason):
    (folder / name).write_bytes(content)
    message = refusal(folder)
    assert message.startswith(str(folder / name))
    assert reason in message


def test_no_pictures_at_all(folder):
    (folder / NAMES[2]).write_bytes(idx(np.zeros((0, 28, 28), np.uint8)))
    (folder / NAMES[3]).write_bytes(idx(np.zeros(0, np.uint8)))
    assert refusal(folder) == f"{folder / NAMES[3]}: no labels"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"x_train": np.zeros((12, 784), np.uint8)}, ": x_train: shape (12, 784) of uint8"),
        ({"x_test": np.zeros((5, 28, 28))}, ": x_test: shape (5, 28, 28) of float64"),
        ({"y_train": np.zeros(12)}, ": y_train: shape (12,) of float64, expected (n,) of int"),
        ({"y_train": -np.ones(12, int)}, ": y_train: label -1 of sample 0 is not in 0..9"),
        ({"y_test": np.zeros(4, int)}, ": y_test: 4 labels for 5 pictures"),
        ({"x_test": np.array([None])}, ": not a readable .npz bundle: an array of Python obj"),
    ],
)
def test_broken_bundles(tmp_path, change, reason):
    path = tmp_path / "mnist.npz"
    np.savez(path, **(arrays() | change))
    assert refusal(path).startswith(f"{path}{reason}")


def test_a_bundle_without_an_array(tmp_path):
    path = tmp_path / "mnist.npz"
    np.savez(path, x_train=arrays()["x_train"])
    assert refusal(path) == (
        f"{path}: y_train is not a file in the archive; "
        "it must hold x_train, y_train, x_test, y_test"
    )


@pytest.mark.parametrize("content", [b"", b"P", b"words", b"\x93NUMPY", b"\x80\x04K\x01."])
def test_files_that_are_no_bundle(tmp_path, content):
    path = tmp_path / "mnist.npz"
    path.write_bytes(content)
    message = refusal(path)
    assert message.startswith(f"{path}: not an .npz bundle; set data.path to one or to a folder")
    assert "pickle" not in message


def test_a_broken_zip(tmp_path):
    path = tmp_path / "mnist.npz"
    path.write_bytes(b"PK\x03\x04 not a zip")
    assert refusal(path).startswith(f"{path}: not a readable .npz bundle: ")


def test_spoiled_and_truncated_bundles(tmp_path):
    path = tmp_path / "mnist.npz"
    np.savez_compressed(path, **arrays())
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert "not a readable .npz bundle" in refusal(path)
    path.write_bytes(content[:2000] + bytes(64) + content[2064:])
    assert "not a readable .npz bundle" in refusal(path)


def test_an_array_that_is_no_bundle(tmp_path):
    path = tmp_path / "mnist.npz"
    with path.open("wb") as stream:
        np.save(stream, np.zeros(3))
    assert "not an .npz bundle" in refusal(path)


# Fingerprints and origins -------------------------------------------------------------


def test_the_fingerprint_sees_content_shape_and_type():
    base = np.arange(6, dtype=np.int64)
    others = [base.reshape(2, 3), base.astype(np.int32), base[::-1], base.astype(np.float64)]
    marks = {fingerprint(array) for array in (base, *others)}
    assert len(marks) == 5
    assert all(len(mark) == 16 and int(mark, 16) >= 0 for mark in marks)
    assert fingerprint(base) == fingerprint(base.astype(">i8"))
    assert fingerprint(base, base) != fingerprint(base)
    # A view that is not contiguous has the fingerprint of its content.
    assert fingerprint(np.arange(12)[::2]) == fingerprint(np.arange(0, 12, 2))


def test_origins(folder):
    assert origin(DataConfig()) == "package scikit-learn"
    assert origin(DataConfig(name="mnist")) == ""
    assert origin(DataConfig(name="mnist", path=folder)) == str(folder)
    assert origin(DataConfig(name="fashion-mnist")) == str(DEBIAN_FASHION)


# Real files ---------------------------------------------------------------------------


def test_the_real_mnist():
    data = load_dataset(DataConfig(name="mnist", path=bundle("mnist.npz")))
    # Facts of the official files: 5923 zeros to learn from, the first test picture is a 7.
    assert (len(data.y_train), len(data.y_test)) == (60_000, 10_000)
    assert np.bincount(data.y_train).tolist() == [
        5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949,
    ]  # fmt: skip
    assert data.y_test[:5].tolist() == [7, 2, 1, 0, 4]
    assert data.x_train.mean() == pytest.approx(0.1307, abs=5e-5)
    assert data.x_train.max() == 1.0


@pytest.mark.skipif(not DEBIAN_FASHION.is_dir(), reason="dataset-fashion-mnist is not installed")
def test_the_real_fashion_mnist():
    data = load_dataset(DataConfig(name="fashion-mnist"))
    assert np.bincount(data.y_train).tolist() == [6000] * 10
    assert np.bincount(data.y_test).tolist() == [1000] * 10
    assert data.x_train.mean() == pytest.approx(0.2860, abs=5e-5)
