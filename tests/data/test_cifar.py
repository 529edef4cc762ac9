"""CIFAR-10 from batches written as the authors describe them, and every broken batch named."""

import pickle
import struct

import numpy as np
import pytest
from data_files import (
    BATCHES,
    cifar_batch,
    faults,
    load,
    refusal,
    write_cifar_binary,
    write_cifar_python,
)

from testbed.data.kinds import OBJECTS


@pytest.fixture(params=["python", "binary"])
def folder(request, tmp_path):
    (write_cifar_python if request.param == "python" else write_cifar_binary)(tmp_path)
    return tmp_path


def test_pictures_labels_and_classes(folder):
    data = load("cifar10", folder)
    assert data.x_train.shape == (20, 3, 32, 32)
    assert data.x_test.shape == (4, 3, 32, 32)
    assert data.x_train.flags.c_contiguous
    assert data.classes == OBJECTS
    # The second picture of the third batch: its red plane is the first 1024 bytes.
    x, y = cifar_batch(2)
    assert np.array_equal(data.x_train[9], (x[1] / np.float32(255)).reshape(3, 32, 32))
    assert data.x_train[9, 0, 0, 1] == x[1, 1] / np.float32(255)
    assert data.x_train[9, 1, 31, 31] == x[1, 2047] / np.float32(255)
    assert data.y_train[8:12].tolist() == y == [2, 3, 4, 5]
    assert data.y_test.tolist() == [5, 6, 7, 8]
    assert data.writers_train is None


def test_both_versions_are_the_same_data(tmp_path):
    marks = set()
    for name, write in (("p", write_cifar_python), ("b", write_cifar_binary)):
        (tmp_path / name).mkdir()
        write(tmp_path / name)
        marks.add(load("cifar10", tmp_path / name).fingerprint)
    assert len(marks) == 1


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol_and_key_type(tmp_path, protocol):
    write_cifar_python(tmp_path)
    before = load("cifar10", tmp_path).fingerprint
    x, y = cifar_batch(0)
    for batch in ({"data": x, "labels": y}, {b"data": x, b"labels": np.array(y)}):
        (tmp_path / BATCHES[0]).write_bytes(pickle.dumps(batch, protocol=protocol))
        assert load("cifar10", tmp_path).fingerprint == before


def test_a_batch_as_python_2_wrote_it(tmp_path):
    # The bytes of cPickle, protocol 2: byte strings are U (short) and T (long).
    write_cifar_python(tmp_path)
    before = load("cifar10", tmp_path).fingerprint
    x, y = cifar_batch(0)
    content = (
        b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x15training batch 1 of 5q\x03U\x06labelsq\x04]"
        b"q\x05("
        + b"".join(b"K" + bytes([label]) for label in y)
        + b"eU\x04dataq\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08"
        b"K\x00\x85U\x01b\x87Rq\x09(K\x01K\x04M\x00\x0c\x86cnumpy\ndtype\nq\x0aU\x02u1K\x00K\x01\x87"
        b"Rq\x0b(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
        + struct.pack("<i", x.size) + x.tobytes() + b"tbu."
    )  # fmt: skip
    (tmp_path / BATCHES[0]).write_bytes(content)
    assert load("cifar10", tmp_path).fingerprint == before


@pytest.mark.parametrize("name", BATCHES)
def test_a_missing_batch_is_named(folder, name):
    (path,) = folder.glob(f"{name}*")
    path.unlink()
    assert refusal("cifar10", folder).startswith(f"{folder}: no {path.name}; the folder must hold")


def test_a_truncated_record_is_counted(tmp_path):
    write_cifar_binary(tmp_path)
    path = tmp_path / "data_batch_4.bin"
    path.write_bytes(path.read_bytes()[:-1])
    assert refusal("cifar10", tmp_path) == (
        f"{path}: truncated, 12291 bytes are 3 records of 3073 and 3072 bytes more; copy it again"
    )


def test_every_broken_batch_has_a_line(tmp_path):
    write_cifar_binary(tmp_path)
    for name, label in (("data_batch_1.bin", b"\x0a"), ("test_batch.bin", b"\xff")):
        path = tmp_path / name
        path.write_bytes(label + path.read_bytes()[1:])
    (tmp_path / "data_batch_2.bin").write_bytes(b"")
    assert faults("cifar10", tmp_path) == (
        f"{tmp_path}/data_batch_1.bin: label 10 of sample 0 is not in 0..9",
        f"{tmp_path}/data_batch_2.bin: no labels",
        f"{tmp_path}/test_batch.bin: label 255 of sample 0 is not in 0..9",
    )


X, Y = cifar_batch(0)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ([X, Y], ": a list, expected a dict; not a CIFAR-10 batch"),
        ({"data": X, "fine_labels": Y}, ": no 'labels' but data, fine_labels; not a CIFAR-10"),
        ({}, ": no 'data' but nothing; not a CIFAR-10 batch"),
        ({"data": X[:, :3], "labels": Y}, ": data: shape (4, 3) of uint8, expected (n, 3072) of"),
        ({"data": X.astype(float), "labels": Y}, ": data: shape (4, 3072) of float64"),
        ({"data": [1], "labels": Y}, ": data: list, expected (n, 3072)"),
        ({"data": X, "labels": Y[:3]}, ": labels: 3 labels for 4 pictures"),
        ({"data": X, "labels": [0, 1, 10, 3]}, ": labels: label 10 of sample 2 is not in 0..9"),
        ({"data": X, "labels": [0, -1, -2, 3]}, "label -1 of sample 1 is not in 0..9 (2 such"),
        ({"data": X, "labels": [0, 1, 2.5, 3]}, ": labels: shape (4,) of object, expected (n,)"),
        ({"data": X, "labels": [0, 1, 10**30, 3]}, ": labels: shape (4,) of object"),
        ({"data": X, "labels": "0123"}, ": labels: shape () of object"),
    ],
)
def test_pickles_of_something_else(tmp_path, content, reason):
    write_cifar_python(tmp_path)
    path = tmp_path / BATCHES[0]
    path.write_bytes(pickle.dumps(content, protocol=2))
    line = refusal("cifar10", tmp_path)
    assert line.startswith(f"{path}: ")
    assert reason in line
