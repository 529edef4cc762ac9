"""Tables that grow and are read in pieces, against pandas."""

import csv
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import ResultsError
from testbed.experiments import tables
from testbed.experiments.tables import Stored, Table


@dataclass(frozen=True)
class Row:
    """One column of each type."""

    number: int
    share: float
    text: str
    word: Literal["yes", "no"]
    flag: bool
    maybe: float | None


ROWS = st.builds(
    Row,
    st.integers(-(2**63), 2**63 - 1),
    st.one_of(st.floats(allow_infinity=False, allow_nan=False), st.just(math.nan)),
    st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=9),
    st.sampled_from(["yes", "no"]),
    st.booleans(),
    st.one_of(st.none(), st.floats(0, 1)),
)


def write(folder: Path, rows: list[Row], **keys: Any) -> Path:
    with Table(folder, "t", Row, **keys) as table:
        for row in rows:
            table.add([row])
    return folder / "t.parquet"


def same(one: Row, other: Row) -> bool:
    pairs = zip(vars(one).values(), vars(other).values(), strict=True)
    return all(a == b or (a != a and b != b) for a, b in pairs)


@settings(deadline=None, max_examples=50)
@given(rows=st.lists(ROWS, max_size=7), group=st.integers(1, 4))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], group: int
) -> None:
    folder = tmp_path_factory.mktemp("t")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "_GROUP", group)
        path = write(folder, rows, safe=False)
        stored = Stored(path, Row)
        assert len(stored) == len(rows)
        for _ in range(2):  # each iteration reads anew
            again = list(stored)
            assert len(again) == len(rows)
            assert all(map(same, again, rows))
        frames = list(stored.frames())
    assert [index for frame in frames for index in frame.index] == list(range(len(rows)))
    assert all(len(frame) <= group for frame in frames)
    with path.with_suffix(".csv").open(encoding="utf-8", newline="") as text:
        head, *lines = csv.reader(text)
    assert head == list(Row.__dataclass_fields__)
    assert [line[2] for line in lines] == [row.text for row in rows]
    assert [line[5] for line in lines] == ["" if r.maybe is None else repr(r.maybe) for r in rows]


ROW = Row(1, 0.5, "a", "yes", True, None)
PLAIN = [
    ROW,
    Row(-7, 1e-07, "b,c", "no", False, 2.0),
    Row(2**60, 0.1 + 0.2, 'quoted "so"', "yes", True, 1e22),
    Row(0, math.nan, "", "no", True, None),
]


def test_the_text_is_what_pandas_would_write(tmp_path: Path) -> None:
    path = write(tmp_path, PLAIN)
    frame = pd.read_parquet(path)
    assert frame.to_csv(index=False, lineterminator="\n") == path.with_suffix(".csv").read_text()
    assert [str(dtype) for dtype in frame.dtypes] == [
        "int64", "float64", "str", "str", "bool", "float64",
    ]  # fmt: skip


def test_a_table_without_rows_has_its_columns(tmp_path: Path) -> None:
    path = write(tmp_path, [])
    assert path.with_suffix(".csv").read_text() == "number,share,text,word,flag,maybe\n"
    assert list(pd.read_parquet(path).columns) == list(Row.__dataclass_fields__)
    assert list(Stored(path, Row)) == []


def test_rows_are_written_in_groups_and_bytes_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_GROUP", 3)
    contents = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        path = write(tmp_path / name, PLAIN * 2)
        contents.append((path.read_bytes(), path.with_suffix(".csv").read_bytes()))
    assert contents[0] == contents[1]
    file = pyarrow.parquet.ParquetFile(path)
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [3, 3, 2]
    file.close()


@pytest.mark.parametrize("safe", [True, False])
def test_files_are_waited_for_if_they_must_be_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, safe: bool
) -> None:
    waited: list[int] = []
    monkeypatch.setattr(os, "fsync", waited.append)
    write(tmp_path, PLAIN, safe=safe)
    assert len(waited) == (2 if safe else 0)


def test_what_cannot_be_written_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"cannot write .*t\.parquet: No such file"):
        Table(tmp_path / "absent", "t", Row)


def test_a_full_disk_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").symlink_to("/dev/full")
    table = Table(tmp_path, "t", Row)
    table.add(PLAIN)
    with pytest.raises(ResultsError, match="No space left on device; choose a writable folder"):
        table.close()
    assert table._text.closed
    assert table._binary.closed


def test_an_error_in_the_block_leaves_no_file_open(tmp_path: Path) -> None:
    table = Table(tmp_path, "t", Row)

    def fail() -> None:
        with table:
            table.add(PLAIN)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert table._text.closed
    assert table._binary.closed


@pytest.mark.parametrize("cut", [0, 3, 400, -1])
def test_a_damaged_file_is_refused(tmp_path: Path, cut: int) -> None:
    path = write(tmp_path, PLAIN)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ResultsError, match=r"t\.parquet: damaged run"):
        list(Stored(path, Row))
    path.unlink()
    with pytest.raises(ResultsError, match=r"t\.parquet: damaged run"):
        list(Stored(path, Row).frames())
