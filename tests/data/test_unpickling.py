"""A pickle is read as data or refused, and nothing in it is ever run."""

import collections
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from data_files import BATCHES, refusal, write_cifar_python
from hypothesis import example, given, settings
from hypothesis import strategies as st

from testbed.data.unpickling import read_pickle
from testbed.errors import DataError


def stored(folder: Path, content: bytes) -> Path:
    path = folder / "file"
    path.write_bytes(content)
    return path


def told(folder: Path, content: bytes) -> str:
    path = stored(folder, content)
    with pytest.raises(DataError) as caught:
        read_pickle(path)
    line = str(caught.value)
    assert line.startswith(f"{path}: ")
    assert "\n" not in line
    return line


class Runs:
    """Calls a function with arguments when it is unpickled."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call[0], tuple(self.call[1:])


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_comes_back(tmp_path, protocol):
    value = {
        "text": "é", b"bytes": b"\x00\xff", "none": b"", "list": [1, -2, 2**70, 1.5, True, None],
        "nested": {"a": {"b": [(), (1, 2)]}},
    }  # fmt: skip
    assert read_pickle(stored(tmp_path, pickle.dumps(value, protocol))) == value


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.uint8).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(3, dtype=">i4"),
        np.array([True, False]),
        np.zeros((0, 4), np.float32),
        np.array(5, np.int16),
        np.arange(12)[::2],
    ],
    ids=str,
)
def test_arrays_come_back(tmp_path, array, protocol):
    got = read_pickle(stored(tmp_path, pickle.dumps({"a": array}, protocol)))["a"]
    assert got.dtype == array.dtype
    assert got.shape == array.shape
    assert np.array_equal(got, array)


def test_numbers_of_numpy_become_plain(tmp_path):
    got = read_pickle(stored(tmp_path, pickle.dumps([np.int64(-3), np.float32(0.5)], 2)))
    assert got == [-3, 0.5]
    assert [type(value) for value in got] == [int, float]


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Runs(os.system, "touch ran"), "posix.system"),
        (Runs(eval, "open('ran', 'w')"), "builtins.eval"),
        (Runs(exec, "open('ran', 'w')"), "builtins.exec"),
        (Runs(getattr, "a text", "upper"), "builtins.getattr"),
        (Runs(shutil.rmtree, "."), "shutil.rmtree"),
        (Runs(np.fromfile, "ran"), "numpy.fromfile"),
        (collections.OrderedDict(a=1), "collections.OrderedDict"),
        (np.load, "numpy.load"),
        (np.array([print], object), "an array of type 'O8'"),
        (np.array(["text"]), "an array of type 'U4'"),
        (np.zeros(1, [("a", "i4")]), "an array of type 'V4'"),
        (np.dtype("u1"), "a data type"),
        (Runs(bytes, 10**12), "bytes of (1000000000000,)"),
    ],
)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_what_is_more_than_data_is_refused_by_name(tmp_path, monkeypatch, value, name, protocol):
    monkeypatch.chdir(tmp_path)
    content = pickle.dumps({"data": value}, protocol)
    # Python 2 called it __builtin__, and protocol 2 still does.
    line = told(tmp_path, content).replace("__builtin__", "builtins")
    assert f"refused, the pickle asks for {name} where only arrays, lists" in line
    assert not (tmp_path / "ran").exists()


def test_a_malicious_batch_of_cifar(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_cifar_python(tmp_path)
    path = tmp_path / BATCHES[2]
    path.write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")
    line = refusal("cifar10", tmp_path)
    assert line.startswith(f"{path}: refused, the pickle asks for os.system")
    assert line.endswith("nothing of it was run, do not trust this file")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "content",
    [
        # A function reached through an attribute of an allowed name.
        b"\x80\x04\x8c\x05numpy\x8c\x0andarray.dump\x93.",
        # The state of a data type set on the stand-in itself; an array whose bytes are a list.
        b"\x80\x02cnumpy\ndtype\n}X\x01\x00\x00\x00aK\x01sb.",
        b"\x80\x02cnumpy\nndarray\n)R(K\x01K\x01\x85cnumpy\ndtype\nU\x02u1\x85R\x89]tb.",
        # Fewer bytes than the shape says.
        b"\x80\x02cnumpy\nndarray\n)R(K\x01K\x09\x85cnumpy\ndtype\nU\x02u1\x85R\x89U\x01xtb.",
        # A persistent object, an extension code.
        b"\x80\x02K\x01Q.",
        b"\x80\x02\x82\x01.",
        b"c_codecs\nencode\n(Vx\nVrot13\ntR.",
    ],
)
def test_crafted_pickles_end_in_one_line(tmp_path, content):
    told(tmp_path, content)


def test_a_memo_of_two_thousand_million_entries_takes_no_memory(tmp_path):
    (tmp_path / "memo").write_bytes(b"\x80\x02K\x01r\xff\xff\xff\x7f.")
    assert read_pickle(tmp_path / "memo") == 1


def test_truncated_and_foreign_files(tmp_path):
    content = pickle.dumps({"data": np.arange(1000)}, 2)
    assert "truncated pickle; copy it again" in told(tmp_path, content[:500])
    assert "truncated pickle" in told(tmp_path, b"")
    assert "not a readable pickle" in told(tmp_path, b"PK\x03\x04 a zip")
    with pytest.raises(DataError, match="cannot read"):
        read_pickle(tmp_path / "none")


@pytest.mark.parametrize(
    ("value", "name"),
    [({1}, "set"), (frozenset({1}), "frozenset"), (1j, "complex"), (bytearray(b"a"), "bytearray")],
)
@pytest.mark.parametrize("wrapped", [lambda v: v, lambda v: {"data": [1, v]}, lambda v: (v, 1)])
def test_what_is_no_data_is_refused_wherever_it_stands(tmp_path, value, name, wrapped):
    for protocol in (2, 4, 5):
        path = stored(tmp_path, pickle.dumps(wrapped(value), protocol))
        with pytest.raises(DataError, match=f"refused, the pickle asks for .*{name}"):
            read_pickle(path)


# An empty set in the place of the list of labels.
@example(place=260, byte=143)
@settings(max_examples=200, deadline=None)
@given(place=st.integers(0, 400), byte=st.integers(0, 255))
def test_a_damaged_byte_never_ends_in_a_traceback(tmp_path_factory, place, byte):
    content = bytearray(pickle.dumps({"data": np.arange(20, dtype=np.uint8), "labels": [1]}, 2))
    content[place % len(content)] = byte
    path = stored(tmp_path_factory.getbasetemp(), bytes(content))
    try:
        value = read_pickle(path)
    except DataError as error:
        value = str(error)
    # What is still readable is data, too; a letter of a key may have changed.
    assert isinstance(value, dict | list | str | int | float | bytes | tuple | np.ndarray | None)
