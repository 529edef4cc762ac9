"""The idx reader against bytes written by hand."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from testbed.data.idx import read_idx
from testbed.errors import DataError

# Two pictures of 2 rows and 3 columns; magic 0x00000803.
PICTURES = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3, *range(12)])
# Labels 7, 2, 1; magic 0x00000801.
LABELS = bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1])


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def refusal(path: Path, dimensions: int) -> str:
    with pytest.raises(DataError) as caught:
        read_idx(path, dimensions)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def test_pictures_and_labels(tmp_path):
    pictures = read_idx(write(tmp_path / "p", PICTURES), 3)
    assert pictures.dtype == np.uint8
    assert pictures.tolist() == [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]]]
    assert read_idx(write(tmp_path / "l", LABELS), 1).tolist() == [7, 2, 1]


def test_gzip(tmp_path):
    assert read_idx(write(tmp_path / "l.gz", gzip.compress(LABELS)), 1).tolist() == [7, 2, 1]


@pytest.mark.parametrize(
    ("content", "dimensions", "reason"),
    [
        (LABELS, 3, "11 bytes are too few for an idx file"),
        (b"", 1, "0 bytes are too few"),
        (PICTURES, 1, "magic number 2051, expected 2049"),
        (LABELS + bytes(20), 3, "magic number 2049, expected 2051"),
        (bytes([0, 0, 13, 1]) + LABELS[4:], 1, "magic number 3329, expected 2049"),  # floats
        (PICTURES[:-1], 3, "truncated, 11 bytes where the header promises 12"),
        (LABELS + b"x", 1, "too long, 4 bytes where the header promises 3"),
        # A product that would overflow 64 bits.
        (struct.pack(">4I", 2051, *[2**32 - 1] * 3), 3, f"the header promises {(2**32 - 1) ** 3}"),
    ],
)
def test_broken_files(tmp_path, content, dimensions, reason):
    assert reason in refusal(write(tmp_path / "file", content), dimensions)


def test_broken_gzip(tmp_path):
    packed = gzip.compress(PICTURES)
    assert "truncated gzip file" in refusal(write(tmp_path / "a.gz", packed[:-4]), 3)
    assert "not a valid gzip file" in refusal(write(tmp_path / "b.gz", PICTURES), 3)
    spoiled = packed[:12] + bytes([packed[12] ^ 0xFF]) + packed[13:]
    assert "gzip" in refusal(write(tmp_path / "c.gz", spoiled), 3)


def test_missing_file(tmp_path):
    assert (
        refusal(tmp_path / "no", 1) == f"cannot read {tmp_path / 'no'}: No such file or directory"
    )
