"""Traces that say where their members are."""

import time
from pathlib import Path

import pytest
from traffic import refuses_in_one_line

from testbed.config.schema import MobilityConfig
from testbed.errors import TraceError
from testbed.mobility import (
    MobilityEvent,
    Place,
    Sighting,
    Step,
    Trace,
    open_source,
    read_trace,
    write_trace,
)

TRACE = Trace(
    (
        MobilityEvent(0.5, "b", "join", "east"),
        MobilityEvent(2.0, "b", "leave", "east"),
        MobilityEvent(2.0, "a", "join", "east"),
    ),
    4.0,
    (
        Sighting(0.5, "b", "east", 12.34),
        Sighting(1.0, "b", "east", 0.0),
        Sighting(2.0, "a", "east", 99.99),
    ),
)
STEPS = [
    Step(0.5, TRACE.events[:1], {"b": Place("east", 12.34)}),
    Step(1.0, (), {"b": Place("east", 0.0)}),
    Step(2.0, TRACE.events[1:], {"a": Place("east", 99.99)}),
]
HEAD = "time,vehicle,kind,rsu,distance\n"


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_round_trip_and_replay(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_trace(path, TRACE, {"warmup": 1.0, "seed": None})
    assert read_trace(path) == (TRACE, {"warmup": 1.0, "seed": None, "end": 4.0})
    config = MobilityConfig(source="trace", trace=path)
    with open_source(config, seed=0) as source:
        assert list(source.steps()) == STEPS
        assert source.counts() == {"events": 3, "events_in_trace": 3}
    with open_source(MobilityConfig(source="trace", trace=path, end=2.0), seed=0) as source:
        assert next(source.steps()) == STEPS[0]
        assert list(source.steps()) == STEPS[1:2]


def test_the_csv_file_as_it_is_documented(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write_trace(path, TRACE, {})
    assert path.read_text() == (
        "# end: 4.0\n" + HEAD + "0.5,b,join,east,\n0.5,b,at,east,12.34\n1.0,b,at,east,0.0\n"
        "2.0,b,leave,east,\n2.0,a,join,east,\n2.0,a,at,east,99.99\n"
    )


JOIN = HEAD + "1,a,join,,\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (JOIN + "1,a,at,r,\n", r"line 3: an 'at' row needs a distance in metres"),
        (JOIN + "1,a,at,r,-1\n", r"line 3: an 'at' row needs a distance in metres"),
        (JOIN + "1,a,at,r,near\n", r"line 3: distance 'near' is not a number of metres"),
        (JOIN + "1,a,at,r,nan\n", r"line 3: distance 'nan' is not a number of metres"),
        (HEAD + "1,a,join,,5\n", r"line 2: a join or a leave has no distance"),
        (JOIN + "1,b,at,r,5\n", r"line 3: 'b' has an 'at' row but is no member"),
        (JOIN + "1,a,at,r,5\n1,a,at,r,5\n", r"line 4: 'a' is seen twice at 1 s"),
        (JOIN + "1,a,at,r,5\n1,b,join,,\n", r"line 4: joins and leaves come before the 'at'"),
        (JOIN + "1,a,at,r,5\n2,b,join,,\n2,b,at,r,5\n", r"line 4: of 2 members at 2 s only 1"),
        (JOIN + "1,a,at,r,5\n0,a,at,r,5\n", r"line 4: time 0 comes after 1"),
        (JOIN + "1,a,at,r\n", r"line 3 has 4 fields"),
        (
            "# step_length: 1\n" + JOIN + "1,a,at,r,5\n3,a,at,r,5\n",
            r"line 5: 'at' rows are missing between 1 and 3 s",
        ),
    ],
)
def test_impossible_places_are_refused_by_line(tmp_path: Path, text: str, message: str) -> None:
    refuses_in_one_line(tmp_path, text, f"bad.csv {message}")


def test_whole_numbers_in_parquet_are_numbers(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "t.parquet"
    columns = {"time": [1, 2], "vehicle": ["a", "a"], "kind": ["join", "leave"]}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    assert [event.time for event in read_trace(path)[0].events] == [1.0, 2.0]
    columns["time"] = ["soon", "later"]
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    with pytest.raises(TraceError, match=r"t.parquet: the column 'time' holds string, not double"):
        read_trace(path)
    columns = {"time": [1.0, 2.0], "vehicle": ["a", "a"], "kind": ["join", "stop"]}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    with pytest.raises(TraceError, match=r"t.parquet row 2: kind 'stop' is neither"):
        read_trace(path)


def test_an_hour_of_fifty_members_starts_in_seconds(tmp_path: Path) -> None:
    """Usually within 0.2 s; the bound leaves room for a busy machine."""
    members = [f"v{number:02}" for number in range(50)]
    trace = Trace(
        tuple(MobilityEvent(0.0, name, "join") for name in members),
        3600.0,
        tuple(Sighting(float(t), name, "rsu", t / 100) for t in range(3600) for name in members),
    )
    path = tmp_path / "hour.parquet"
    write_trace(path, trace, {"step_length": 1.0})
    began = time.perf_counter()
    with open_source(MobilityConfig(source="trace", trace=path), seed=0) as source:
        first = next(source.steps())
    assert time.perf_counter() - began < 3
    assert first.distances == dict.fromkeys(members, Place("rsu", 0.0))


@pytest.mark.parametrize("header", [b"{", b"[1]", b"\xff"])
def test_a_damaged_parquet_header_is_refused(tmp_path: Path, header: bytes) -> None:
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "t.parquet"
    columns = {"time": [1.0], "vehicle": ["a"], "kind": ["join"]}
    table = pyarrow.table(columns).replace_schema_metadata({b"testbed.trace": header})
    pyarrow.parquet.write_table(table, path)
    with pytest.raises(TraceError, match=r"t.parquet: its header is not a JSON object"):
        read_trace(path)
