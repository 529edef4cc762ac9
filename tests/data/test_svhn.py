"""Street View House Numbers from files that SciPy writes."""

import numpy as np
import pytest
from data_files import faults, load, random_bytes, refusal, write_svhn


def test_axes_and_the_label_of_zero(tmp_path):
    write_svhn(tmp_path)
    data = load("svhn", tmp_path)
    assert data.x_train.shape == (11, 3, 32, 32)
    assert data.x_test.shape == (6, 3, 32, 32)
    x = random_bytes(32, 32, 3, 11, seed=11)
    # Row 5, column 7, blue of the fourth picture.
    assert data.x_train[3, 2, 5, 7] == x[5, 7, 2, 3] / np.float32(255)
    assert data.x_train.flags.c_contiguous
    # The files hold 1, 2, ..., 10, 1: ten stands for the digit 0.
    assert data.y_train.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert data.classes == tuple("0123456789")


def test_the_extra_file_is_left_alone(tmp_path):
    write_svhn(tmp_path)
    (tmp_path / "extra_32x32.mat").write_bytes(b"not read")
    assert len(load("svhn", tmp_path).y_train) == 11


@pytest.mark.parametrize("name", ["train_32x32.mat", "test_32x32.mat"])
def test_a_missing_file_is_named(tmp_path, name):
    write_svhn(tmp_path)
    (tmp_path / name).unlink()
    assert refusal("svhn", tmp_path).startswith(f"{tmp_path}: no {name}; the folder must hold")


X = random_bytes(32, 32, 3, 11)
Y = np.ones((11, 1), np.uint8)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"y": Y * 0}, ": y: label 0 of sample 0 is not in 1..10 (11 such labels)"),
        ({"y": Y * 11}, ": y: label 11 of sample 0"),
        ({"y": Y[:4]}, ": y: 4 labels for 11 pictures"),
        ({"y": Y.astype(float)}, ": y: shape (11,) of float64, expected (n,) of integers"),
        ({"X": X[:28]}, ": X: shape (28, 32, 3, 11) of uint8, expected (32, 32, 3, n)"),
        ({"X": X.astype(float)}, ": X: shape (32, 32, 3, 11) of float64"),
        ({"X": X[..., 0]}, ": X: shape (32, 32, 3) of uint8"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path, change, reason):
    write_svhn(tmp_path, **change)
    line = refusal("svhn", tmp_path)
    assert line.startswith(f"{tmp_path / 'train_32x32.mat'}{reason}")


def test_files_of_something_else(tmp_path):
    from scipy.io import savemat

    write_svhn(tmp_path)
    savemat(tmp_path / "train_32x32.mat", {"digitStruct": np.zeros(3)})
    (tmp_path / "test_32x32.mat").write_bytes(b"text, no matrix" * 20)
    first, second = faults("svhn", tmp_path)
    assert first == f"{tmp_path}/train_32x32.mat: no variable X; not a file of cropped digits"
    assert second.startswith(f"{tmp_path}/test_32x32.mat: ")


@pytest.mark.parametrize("keep", [0, 100, 200, 5000])
def test_truncated_files(tmp_path, keep):
    write_svhn(tmp_path)
    path = tmp_path / "train_32x32.mat"
    path.write_bytes(path.read_bytes()[:keep])
    line = refusal("svhn", tmp_path)
    assert line.startswith(f"{path}: not a readable MATLAB file: ")
    assert line.endswith("copy it again")


def test_matlab_7_3(tmp_path):
    write_svhn(tmp_path)
    path = tmp_path / "train_32x32.mat"
    head = b"MATLAB 7.3 MAT-file".ljust(116) + bytes(8) + b"\x00\x02IM"
    path.write_bytes(head + b"\x89HDF\r\n\x1a\n" + bytes(500))
    assert refusal("svhn", tmp_path) == (
        f"{path}: a MATLAB file of version 7.3; save it as version 7"
    )
