"""What a folder is taken for, and what is said when it is nothing or too much."""

import errno
import pickle
from pathlib import Path

import numpy as np
import pytest
from data_files import (
    faults,
    load,
    random_bytes,
    refusal,
    write_cifar_binary,
    write_cifar_python,
    write_idx,
    write_leaf,
    write_picture,
    write_svhn,
)

from testbed.data.faults import FaultsError, faults_of, gather
from testbed.data.recognise import recognise
from testbed.errors import DataError


def write_pictures(folder):
    for number in range(4):
        write_picture(folder / "ab"[number % 2] / f"{number}.png", random_bytes(3, 3, seed=number))


def write_bundle(folder):
    np.savez(
        folder / "some.npz", x_train=random_bytes(2, 4, 4), y_train=np.arange(2),
        x_test=random_bytes(2, 4, 4), y_test=np.arange(2),
    )  # fmt: skip


WRITERS = {
    "idx files": (write_idx, "mnist"),
    "CIFAR-10 batches of Python": (write_cifar_python, "cifar10"),
    "CIFAR-10 binary batches": (write_cifar_binary, "cifar10"),
    "SVHN, cropped digits": (write_svhn, "svhn"),
    "LEAF FEMNIST shards": (write_leaf, "femnist"),
    "a folder of pictures": (write_pictures, "folder"),
    ".npz bundle": (write_bundle, "npz"),
}


@pytest.mark.parametrize("title", WRITERS)
def test_each_format_is_recognised_and_read(tmp_path, title):
    write, name = WRITERS[title]
    write(tmp_path)
    for given in (None, name):
        found = recognise(tmp_path, given)
        assert (found.format.title, found.name) == (title, name)
    assert len(found.read().train.labels) == len(
        load(name, tmp_path, test_share=0.01).y_train
    ) or (found.read().test is None)


@pytest.mark.parametrize("title", [title for title in WRITERS if title != ".npz bundle"])
def test_a_name_that_does_not_fit(tmp_path, title):
    write, name = WRITERS[title]
    write(tmp_path)
    other = "svhn" if name != "svhn" else "cifar10"
    line = refusal(other, tmp_path)
    assert line.startswith(f"{tmp_path}: holds {title}, not {other}; set data.name to {name}")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("idx files", "CIFAR-10 binary batches"),
        ("CIFAR-10 batches of Python", "CIFAR-10 binary batches"),
        ("SVHN, cropped digits", "LEAF FEMNIST shards"),
        ("CIFAR-10 batches of Python", "a folder of pictures"),
    ],
)
def test_two_data_sets_in_a_folder_are_both_named(tmp_path, first, second):
    for title in (first, second):
        WRITERS[title][0](tmp_path)
    for name in (None, WRITERS[first][1]):
        with pytest.raises(DataError) as caught:
            recognise(tmp_path, name)
        assert str(caught.value) == (
            f"{tmp_path}: a folder with 2 data sets, {first} and {second}; move one away"
        )


def test_a_bundle_beside_its_own_files(tmp_path):
    write_idx(tmp_path)
    write_bundle(tmp_path)
    (tmp_path / "some.npz").rename(tmp_path / "mnist.npz")
    assert refusal("mnist", tmp_path) == (
        f"{tmp_path}: a folder with 2 data sets, idx files and mnist.npz; move one away"
    )
    # A bundle of another name is another data set's, and the name says which is meant.
    (tmp_path / "mnist.npz").rename(tmp_path / "other.npz")
    assert len(load("mnist", tmp_path).y_train) == 20


def test_of_several_bundles_one_must_be_named(tmp_path):
    write_bundle(tmp_path)
    (tmp_path / "femnist.npz").write_bytes((tmp_path / "some.npz").read_bytes())
    assert refusal("npz", tmp_path) == (
        f"{tmp_path}: a folder with 2 data sets, femnist.npz and some.npz; name one file"
    )
    assert recognise(tmp_path, "femnist").path == tmp_path / "femnist.npz"


def test_plain_and_compressed_copies_are_one_data_set(tmp_path):
    write_idx(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(b"not even looked at")
    assert len(load("mnist", tmp_path).y_train) == 20


@pytest.mark.parametrize("name", ["cifar10", "svhn", "femnist", "npz", "folder"])
def test_a_path_must_be_named(name):
    line = refusal(name, None)
    assert line.startswith(f"{name}: it does not come with the testbed; set data.path to a")


def test_nothing_in_a_folder(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    assert refusal("svhn", tmp_path) == (
        f"{tmp_path}: no data set that is known; the folder must hold train_32x32.mat and "
        "test_32x32.mat"
    )
    with pytest.raises(
        DataError, match=r"no data set that is known; the folder must hold an \.npz"
    ):
        recognise(tmp_path)


def test_one_folder_too_high(tmp_path):
    inner = tmp_path / "cifar-10-batches-py"
    inner.mkdir()
    write_cifar_python(inner)
    assert refusal("cifar10", tmp_path) == (
        f"{tmp_path}: no data set, but {inner} holds CIFAR-10 batches of Python; name that folder"
    )


def test_a_file_that_is_no_bundle(tmp_path):
    path = tmp_path / "cifar-10-python.tar.gz"
    path.write_bytes(b"\x1f\x8b")
    assert refusal("cifar10", path).startswith(
        f"{path}: not an .npz bundle; set data.path to one or to a folder with data_batch_1"
    )
    with pytest.raises(DataError, match=r"not an \.npz bundle; name one, or a folder"):
        recognise(path)
    with pytest.raises(DataError, match="there is no "):
        recognise(tmp_path / "none")


def test_a_bundle_is_no_folder_of_pictures(tmp_path):
    write_bundle(tmp_path)
    line = refusal("folder", tmp_path / "some.npz")
    assert "holds .npz bundle, not folder; set data.name to npz or" in line


@pytest.mark.parametrize("title", ["a folder of pictures", "LEAF FEMNIST shards"])
def test_a_folder_that_cannot_be_looked_into(tmp_path, monkeypatch, title):
    # Root, as whom tests may run, may look anywhere: so the system's answer is given here.
    write, name = WRITERS[title]
    write(tmp_path)
    found = recognise(tmp_path, name)
    glob, iterdir = Path.glob, Path.iterdir

    def closed(method):
        def look(path, *arguments):
            if path != tmp_path:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return method(path, *arguments)

        return look

    monkeypatch.setattr(Path, "glob", closed(glob))
    monkeypatch.setattr(Path, "iterdir", closed(iterdir))
    for look in (found.read, lambda: recognise(tmp_path, name)):
        with pytest.raises(DataError, match=rf"^cannot read {tmp_path}/\w+: Permission denied$"):
            look()


# Several faults -----------------------------------------------------------------------


def test_faults_are_gathered():
    def fail(*lines):
        raise FaultsError(lines) if len(lines) > 1 else DataError(*lines)

    assert gather([lambda: 1, lambda: 2]) == [1, 2]
    with pytest.raises(DataError) as one:
        gather([lambda: 1, lambda: fail("a")])
    assert type(one.value) is DataError
    assert faults_of(one.value) == ("a",)
    with pytest.raises(FaultsError) as three:
        gather([lambda: fail("a", "b"), lambda: 1, lambda: fail("c")])
    assert faults_of(three.value) == ("a", "b", "c")
    assert str(three.value) == "a; 2 more faults: see `testbed data check`"
    # As it comes out of a worker process.
    again = pickle.loads(pickle.dumps(three.value))
    assert (str(again), again.lines) == (str(three.value), three.value.lines)


def test_a_run_is_told_of_the_first_and_how_many_more(tmp_path):
    write_cifar_binary(tmp_path)
    for name in ("data_batch_1.bin", "data_batch_2.bin"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(DataError) as caught:
        load("cifar10", tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/data_batch_1.bin: truncated")
    assert str(caught.value).endswith("; 1 more fault: see `testbed data check`")
    assert len(faults("cifar10", tmp_path)) == 2
