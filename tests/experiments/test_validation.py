"""Results that were tampered with are told in one line, never computed from."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from specs import folder

from testbed.errors import ResultsError
from testbed.experiments.rundir import read_run
from testbed.experiments.validation import FILES, check_ledger, check_metrics


@pytest.fixture
def place(live: Path, tmp_path: Path) -> Path:
    """A finished run of one's own."""
    return shutil.copytree(folder(live, "fsosa"), tmp_path / "run")


def told(place: Path) -> str:
    with pytest.raises(ResultsError) as caught:
        read_run(place)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith("); remove that folder and run the same command again")
    return message


def change(place: Path, table: str, edit: Callable[[pd.DataFrame], Any]) -> None:
    """Replace a table by what `edit` returns, or by the frame it changed."""
    path = place / f"{table}.parquet"
    frame = pd.read_parquet(path)
    edited = edit(frame)
    (frame if edited is None else edited).to_parquet(path, index=False)


def put(column: str, row: int, value: Any) -> Callable[[pd.DataFrame], None]:
    def edit(frame: pd.DataFrame) -> None:
        frame.loc[row, column] = value

    return edit


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("warnings", None, "warnings is None, no list"),
        ("warnings", [1], "warnings are not all text"),
        ("notes", None, "notes is None, no list"),
        ("notes", ["a", 1], "notes are not all text"),
        ("seed", "a", "seed is 'a', no int"),
        ("seed", True, "seed is True, no int"),
        ("seed", 7, "ledger.parquet: damaged run (seed cannot be 0 in row 0"),
        ("method", "retrain", "ledger.parquet: damaged run (run cannot be fsosa-"),
        ("status", "x", "status is 'x', not 'finished'"),
        ("config", [], "config is [], no dict"),
        ("mobility", "text", "mobility is 'text', no dict"),
        ("population_initial", 1.5, "population_initial is 1.5, no int"),
    ],
)
def test_manifests(place: Path, key: str, value: Any, what: str) -> None:
    path = place / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, key: value}))
    assert what in told(place)
    del manifest[key]
    path.write_text(json.dumps(manifest))
    assert f"manifest.json: damaged run (no {key})" in told(place)


@pytest.mark.parametrize("name", FILES)
def test_missing_files(place: Path, name: str) -> None:
    (place / name).unlink()
    assert f"{place / name}: damaged run (missing)" in told(place)


def test_one_table_in_the_place_of_the_other(place: Path) -> None:
    shutil.copy(place / "ledger.parquet", place / "metrics.parquet")
    assert "metrics.parquet: damaged run (other columns than expected: accuracy, " in told(place)


METRICS = [
    (lambda f: f.drop(columns="t_end"), "other columns than expected: t_end"),
    (lambda f: f[[*f.columns[::-1]]], "other columns than expected: their order"),
    (lambda f: f.iloc[:0], "no rows"),
    (lambda f: f.iloc[1:], "request cannot be 1 in row 0"),
    (lambda f: f.drop(index=2), "request cannot be 3 in row 2"),
    (lambda f: f.iloc[[0, 2, 1, 3, 4]], "request cannot be 2 in row 1"),
    (lambda f: f.assign(accuracy="high"), "accuracy has the type str"),
    (lambda f: f.assign(request=f.request + 0.5), "request has the type float64"),
    (lambda f: f.assign(triggered=1), "triggered has the type int64"),
    (lambda f: f.assign(kind=[1, *f.kind[1:]]).astype({"kind": str}), "kind cannot be 1 in row 0"),
    (put("accuracy", 3, np.nan), "accuracy cannot be nan in row 3"),
    (put("accuracy", 3, 1.01), "accuracy cannot be 1.01 in row 3"),
    (put("accuracy", 3, -0.5), "accuracy cannot be -0.5 in row 3"),
    (put("kind", 0, "join"), "kind cannot be join in row 0"),
    (put("kind", 1, "init"), "kind cannot be init in row 1"),
    (put("t", 4, 0.0), "t cannot be 0.0 in row 4"),
    (put("t", 4, np.nan), "t cannot be nan in row 4"),
    (put("t_end", 2, 1.0), "t_end cannot be 1.0 in row 2"),
    (put("t_end", 2, np.inf), "t_end cannot be inf in row 2"),
    (put("population", 1, 0), "population cannot be 0 in row 1"),
    (put("subset", 1, 99), "subset cannot be 99 in row 1"),
    (put("partition", 1, -2), "partition cannot be -2 in row 1"),
]


@pytest.mark.parametrize(("edit", "what"), METRICS, ids=[what for _, what in METRICS])
def test_metrics(place: Path, edit: Callable[[pd.DataFrame], Any], what: str) -> None:
    change(place, "metrics", edit)
    assert f"{place / 'metrics.parquet'}: damaged run ({what}" in told(place)


LEDGER = [
    (lambda f: f.iloc[:0], "no rows"),
    (lambda f: f.drop(columns="phase"), "other columns than expected: phase"),
    (lambda f: f[f.request < 4], "covers requests 0 to 3, not 0 to 4"),
    (lambda f: f[f.request > 0], "covers requests 1 to 4, not 0 to 4"),
    (lambda f: f.iloc[[-1, *range(len(f) - 1)]], "request cannot be 0 in row 1"),
    (lambda f: f.assign(density="dense"), "density has the type str"),
    (put("phase", 1, "zzz"), "phase cannot be zzz in row 1"),
    (put("kind", 1, "zzz"), "kind cannot be zzz in row 1"),
    (put("kind", 1, "join"), "kind cannot be join in row 1"),
    (put("bytes_up", 1, -5), "bytes_up cannot be -5 in row 1"),
    (put("bytes_down", 1, -5), "bytes_down cannot be -5 in row 1"),
    (put("network_s", 1, np.nan), "network_s cannot be nan in row 1"),
    (put("t_end", 1, 1.0), "t_end cannot be 1.0 in row 1"),
    (put("seed", 1, 3), "seed cannot be 3 in row 1"),
    (put("method", 1, "retrain"), "method cannot be retrain in row 1"),
    (put("run", 1, "fsosa-00000000"), "run cannot be fsosa-00000000 in row 1"),
    (put("result", 1, "zzz"), "result cannot be zzz in row 1"),
    (put("result", 0, "unusable"), "result cannot be unusable in row 0"),
    (put("result", 0, "unconverged"), "result cannot be unconverged in row 0"),
    (put("result", 12, "lost"), "result cannot be lost in row 12"),  # a solve
    (lambda f: f.drop(columns="result"), "other columns than expected: result"),
]


@pytest.mark.parametrize(("edit", "what"), LEDGER, ids=[what for _, what in LEDGER])
def test_ledgers(place: Path, edit: Callable[[pd.DataFrame], Any], what: str) -> None:
    change(place, "ledger", edit)
    assert f"{place / 'ledger.parquet'}: damaged run ({what}" in told(place)


def test_damaged_bytes_are_read_or_told(place: Path) -> None:
    """Whatever a flipped byte does to a reader, it is no traceback."""
    path = place / "metrics.parquet"
    whole = path.read_bytes()
    messages = []
    for position in range(0, len(whole), len(whole) // 60):
        path.write_bytes(
            whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :]
        )
        try:
            read_run(place)
        except ResultsError as error:
            messages.append(str(error))
    assert len(messages) > 10
    assert not any("\n" in message for message in messages)


def test_a_thousand_requests_are_checked_in_milliseconds(place: Path) -> None:
    run = read_run(place)
    metrics = pd.concat([run.metrics.iloc[[0]], *[run.metrics.iloc[1:]] * 250])
    metrics = metrics.assign(request=range(1001), t=np.arange(1001.0))
    ledger = pd.read_parquet(place / "ledger.parquet")
    first, rest = ledger[ledger.request == 0], ledger[ledger.request == 4]
    later = [rest.assign(request=number) for number in range(1, 1001)]
    ledger = pd.concat([first, *later], ignore_index=True)
    begin = time.perf_counter()
    check_metrics(place, metrics)
    check_ledger(place, [ledger], run.manifest, last=1000)
    assert time.perf_counter() - begin < 0.2
