from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traffic import refuses_in_one_line

from testbed.config.schema import MobilityConfig
from testbed.errors import ConfigError, TraceError
from testbed.mobility import MobilityEvent, Trace, open_source, read_trace, write_trace

JOIN_A = MobilityEvent(0.1 + 0.2, "a", "join")
EVENTS = (
    JOIN_A,
    MobilityEvent(7.0, 'b,"odd" ü', "join"),
    MobilityEvent(7.0, "c", "join"),
    MobilityEvent(9.5, "a", "leave"),
)
TRACE = Trace(EVENTS, 60.0)
PROVENANCE = {"scenario": "city", "seed": 3, "density": 2.0, "rsu_x": None, "warmup": 5.0}


def replay(path: Path, **keys: float) -> MobilityConfig:
    return MobilityConfig(source="trace", trace=path, **keys)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_round_trip_is_exact_and_bytes_are_the_same_each_time(tmp_path: Path, name: str) -> None:
    path, again = tmp_path / name, tmp_path / f"again-{name}"
    write_trace(path, TRACE, PROVENANCE)
    write_trace(again, TRACE, dict(reversed(PROVENANCE.items())))
    assert read_trace(path) == (TRACE, {**PROVENANCE, "end": 60.0})
    assert path.read_bytes() == again.read_bytes()


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=20, unique=True),
    st.sampled_from([".csv", ".parquet"]),
)
def test_times_round_trip(
    tmp_path_factory: pytest.TempPathFactory, times: list[float], suffix: str
) -> None:
    events = tuple(MobilityEvent(t, f"v{i}", "join") for i, t in enumerate(sorted(times)))
    path = tmp_path_factory.mktemp("trace") / f"t{suffix}"
    write_trace(path, Trace(events, 1e6), {})
    assert read_trace(path)[0].events == events


def test_the_csv_file_as_it_is_documented(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write_trace(path, Trace((JOIN_A,), 60.0), {"scenario": "city"})
    assert path.read_text() == (
        '# end: 60.0\n# scenario: "city"\ntime,vehicle,kind\n0.30000000000000004,a,join\n'
    )


def test_a_plain_file_ends_at_its_last_event(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("time,vehicle,kind\n1,a,join\n4.5,a,leave\n")
    trace, header = read_trace(path)
    assert trace == Trace((MobilityEvent(1, "a", "join"), MobilityEvent(4.5, "a", "leave")), 4.5)
    assert header == {}


def test_windows_line_ends_and_byte_order_mark_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbf# end: 9\r\ntime,vehicle,kind\r\n1,a,join\r\n")
    assert read_trace(path)[0] == Trace((MobilityEvent(1, "a", "join"),), 9)


HEAD = "time,vehicle,kind\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"line 1 should be 'time,vehicle,kind'.*not ''"),
        ("# end: 5\n", r"line 2 should be 'time,vehicle,kind'"),
        ("# end: 5", r"line 1 should be 'time,vehicle,kind'"),
        ("time,car,kind\n1,a,join\n", r"line 1 should be .* not 'time,car,kind'"),
        ("time,vehicle,kind,speed\n", r"line 1 should be .* not 'time,vehicle,kind,speed'"),
        ("time;vehicle;kind\n1;a;join\n", r"line 1 should be .*separated by commas"),
        (HEAD + "1,a,join\n2,a,lea", r"line 3 has no end of line: the file was cut off"),
        (HEAD + "1,a,join\n2,a\n", r"line 3 has 2 fields"),
        (HEAD + "1,a,join\n\n2,a,leave\n", r"line 3 has 0 fields"),
        (HEAD + "one,a,join\n", r"line 2: time 'one' is not a number"),
        (HEAD + "nan,a,join\n", r"line 2: time 'nan' is not a number"),
        (HEAD + "inf,a,join\n", r"line 2: time 'inf' is not a number"),
        (HEAD + "1,a,enter\n", r"line 2: kind 'enter' is neither 'join' nor 'leave'"),
        (HEAD + "1,,join\n", r"line 2: the vehicle has no name"),
        (HEAD + "-0.5,a,join\n", r"line 2: time -0.5 is before 0; .*'# begin: SECONDS'"),
        ("# begin: -2\n" + HEAD + "-3,a,join\n", r"line 3: time -3 is before -2"),
        ("# begin: 5\n" + HEAD + "-3,a,join\n", r"line 3: time -3 is before 0"),
        (HEAD + "1,a,join\n1,b\0,join\n", r"line 3: the vehicle's name 'b\\x00' has control"),
        (HEAD + "1,b\x1b[2J,join\n", r"line 2: the vehicle's name .* has control"),
        (HEAD + "1,a,join\n1," + "b" * 200_000 + ",join\n", r"line 3: field larger than"),
        (HEAD + "2,a,join\n1,b,join\n", r"line 3: time 1 comes after 2; sort"),
        ("# end: 9\n" + HEAD + "1,a,leave\n", r"line 3: 'a' leaves but never joined"),
        (HEAD + "1,a,join\n2,a,join\n", r"line 3: 'a' joins but is a member"),
        ("# end: 1\n" + HEAD + "2,a,join\n", r"the header's end 1 .* at 2"),
        ("# end: soon\n" + HEAD, r"the header's end 'soon'"),
    ],
)
def test_a_malformed_file_is_refused_by_name_and_line(
    tmp_path: Path, text: str, message: str
) -> None:
    refuses_in_one_line(tmp_path, text, f"bad.csv.*{message}")


def test_a_clock_that_starts_below_zero_says_so(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    trace = Trace((MobilityEvent(-1.5, "a", "join"),), 9.0)
    write_trace(path, trace, {"begin": -2.0})
    assert read_trace(path)[0] == trace
    for name in ("u.csv", "u.parquet"):
        with pytest.raises(TraceError, match=r"event 1: time -1.5 is before 0"):
            write_trace(tmp_path / name, trace, {})
    named = Trace((MobilityEvent(1.5, "a\nb", "join"),), 9.0)
    with pytest.raises(TraceError, match=r"event 1: the vehicle's name 'a\\nb' has control"):
        write_trace(tmp_path / "u.csv", named, {})
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.csv"]


def test_a_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"cannot read .*gone.csv: No such file"):
        read_trace(tmp_path / "gone.csv")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match=r"b.csv is not a text file"):
        read_trace(tmp_path / "b.csv")


def test_malformed_parquet_is_refused(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "t.parquet"
    write_trace(path, TRACE, PROVENANCE)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TraceError, match=r"t.parquet is not a whole Parquet file"):
        read_trace(path)
    pyarrow.parquet.write_table(pyarrow.table({"time": [1.0], "who": ["a"]}), path)
    with pytest.raises(TraceError, match=r"t.parquet has the columns 'time,who'"):
        read_trace(path)
    columns = {"time": [2.0, 1.0], "vehicle": ["a", "b"], "kind": ["join", "join"]}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    with pytest.raises(TraceError, match=r"t.parquet row 2: time 1 comes after 2"):
        read_trace(path)


def test_an_impossible_history_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="'a' leaves but never joined"):
        write_trace(tmp_path / "t.csv", Trace((MobilityEvent(1, "a", "leave"),), 2), {})
    assert list(tmp_path.iterdir()) == []


def test_replay_yields_one_step_for_each_time(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write_trace(path, TRACE, PROVENANCE)
    with open_source(replay(path), seed=9) as source:
        steps = list(source.steps())
        assert [step.time for step in steps] == [0.1 + 0.2, 7.0, 9.5]
        assert tuple(event for step in steps for event in step.events) == EVENTS
        assert source.counts() == {"events": 4, "events_in_trace": 4}
        assert (source.warmup, source.end) == (5.0, 60.0)
        assert source.provenance["scenario"] == "city"
        assert source.provenance["seed"] == 3
        assert list(source.steps()) == []


def test_replay_goes_on_where_it_was_left(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write_trace(path, TRACE, {})
    with open_source(replay(path), seed=0) as source:
        assert next(source.steps()).time == 0.1 + 0.2
        assert source.counts()["events"] == 1
        assert [step.time for step in source.steps()] == [7.0, 9.5]


def test_replay_takes_warmup_and_end_from_the_configuration_first(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write_trace(path, TRACE, {**PROVENANCE, "begin": 1.0})
    with open_source(replay(path, warmup=2.0, end=9.5), seed=0) as source:
        assert (source.warmup, source.end) == (3.0, 9.5)
        assert [step.time for step in source.steps()] == [0.1 + 0.2, 7.0]
    with pytest.raises(ConfigError, match=r"the warm-up ends at 101 s but .* at 60 s"):
        open_source(replay(path, warmup=100.0), seed=0)


def test_replay_refuses_a_header_that_is_no_number(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("# warmup: later\n" + HEAD + "1,a,join\n")
    with pytest.raises(TraceError, match="warmup 'later' is not a number"):
        open_source(replay(path), seed=0)


def test_the_example_of_the_documentation_is_read(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "scenarios.md").read_text()
    (tmp_path / "events.csv").write_text(text.split("```csv\n")[1].split("```")[0])
    trace, header = read_trace(tmp_path / "events.csv")
    assert [event.time for event in trace.events] == [12, 251]
    assert header == {"end": 900, "warmup": 300}
