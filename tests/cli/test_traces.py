"""``testbed scenario record`` and ``import``, and what they say of broken files."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.mobility import read_trace

Call = Callable[..., tuple[int, list[str], list[str]]]

FCD = """<?xml version="1.0"?>
<fcd-export>
    <timestep time="0.00"/>
    <timestep time="1.00"><vehicle id="a" x="0" y="0"/></timestep>
    <timestep time="2.00"><vehicle id="a" x="30" y="0"/><vehicle id="b" x="9" y="0"/></timestep>
    <timestep time="3.00"><vehicle id="b" x="3" y="4"/></timestep>
</fcd-export>
"""
HEAD = "timestep_time;vehicle_id;vehicle_x;vehicle_y\n"
NETWORK = [(1, "a", "join"), (2, "b", "join"), (3, "a", "leave")]


def rows(path: Path) -> list[tuple[float, str, str]]:
    return [(e.time, e.vehicle, e.kind) for e in read_trace(path)[0].events]


def test_record_then_replay_from_the_command_line(call: Call, place: Path) -> None:
    code, out, err = call(
        *("scenario", "record", "city_grid", "--out", "city.parquet", "--seed", 4, "--end", 40),
        *("--warmup", 10, "--membership", "rsu", "--set", "mobility.rsu.minimum_stay=3"),
    )
    assert (code, err) == (0, [])
    assert out[0] == "city.parquet"
    assert "  seed: 4" in out
    trace, header = read_trace(place / "city.parquet")
    assert trace.end == header["end"] == 40
    assert header["departed"] == 20
    assert header["rsu_minimum_stay"] == 3
    assert {place.rsu for place in trace.places} == {"rsu"}
    assert trace.events[0].time == 3


def test_import_by_hand(call: Call, place: Path) -> None:
    (place / "f.xml").write_text(FCD)
    code, out, err = call("scenario", "import", "f.xml", "--out", "t.csv", "--warmup", 2)
    assert (code, out[0], err) == (0, "t.csv", [])
    assert rows(place / "t.csv") == NETWORK
    trace, header = read_trace(place / "t.csv")
    assert trace.end == 4
    assert (header["warmup"], header["imported"], header["timesteps"]) == (2, "f.xml", 4)
    assert (
        call(
            *("scenario", "import", "f.xml", "--out", "u.csv", "--membership", "rsu"),
            *("--x", 0, "--y", 0, "--radius", 8),
        )[0]
        == 0
    )
    assert (place / "u.csv").read_text().split("time,")[1].splitlines()[1:] == [
        "1.0,a,join,,",
        "1.0,a,at,rsu,0.0",
        "2.0,a,leave,,",
        "3.0,b,join,,",
        "3.0,b,at,rsu,5.0",
    ]


def test_a_vehicle_out_of_sight_stays_and_is_counted(call: Call, place: Path) -> None:
    (place / "f.csv").write_text(HEAD + "0;a;0;0\n1;;;\n2;a;0;0\n3;;;\n")
    code, out, _ = call("scenario", "import", "f.csv", "--out", "t.csv")
    assert code == 0
    assert "  reappearances: 1" in out
    assert rows(place / "t.csv") == [(0, "a", "join"), (3, "a", "leave")]


def test_a_gap_is_bridged_when_asked_and_counted(call: Call, place: Path) -> None:
    (place / "f.csv").write_text(HEAD + "0;a;0;0\n1;a;1;0\n9;a;2;0\n10;;;\n")
    code, _, err = call("scenario", "import", "f.csv", "--out", "t.csv")
    assert code == 2
    assert err == [
        "error: f.csv line 4: time 9 follows 1 where steps are 1 s; timesteps are missing: "
        "record it again, or pass --bridge-gaps"
    ]
    where = ("--membership", "rsu", "--x", 0, "--y", 0, "--radius", 8)
    code, out, _ = call("scenario", "import", "f.csv", "--out", "t.csv", "--bridge-gaps", *where)
    assert code == 0
    assert "  gaps_bridged: 1" in out
    assert rows(place / "t.csv") == [(0, "a", "join"), (10, "a", "leave")]


def test_a_list_is_put_in_order_and_its_repairs_are_counted(call: Call, place: Path) -> None:
    (place / "l.csv").write_text("vehicle;kind;time\na;leave;5\na;join;2\nb;join;5\na;join;2\n")
    code, out, _ = call("scenario", "import", "l.csv", "--out", "t.csv")
    assert code == 0
    assert rows(place / "t.csv") == [(2, "a", "join"), (5, "a", "leave"), (5, "b", "join")]
    assert {"  duplicates_dropped: 1", "  rows_out_of_order: 1", "  source: list"} <= set(out)


GOOD = HEAD + "0;a;0;0\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("f.csv", "", "f.csv is empty"),
        ("f.csv", HEAD, "f.csv has no timesteps"),
        ("f.csv", HEAD.replace(";", ","), "f.csv line 1 has no column 'timestep_time'"),
        ("f.csv", "timestep_time;id;x;y\n", "f.csv line 1 has no column 'vehicle_id'"),
        ("f.csv", GOOD + "1;a;0", "f.csv line 3 has no end of line: the file was cut off"),
        ("f.csv", GOOD + "1;a;0\n", "f.csv line 3 has 3 fields where line 1 names 4"),
        ("f.csv", GOOD + "0;a;0;0\n", "f.csv line 3: vehicle 'a' is there twice at 0 s"),
        ("f.csv", HEAD + "1;a;0;0\n0;b;0;0\n", "f.csv line 3: time 0 comes after 1; sort"),
        ("f.csv", GOOD + "1;a;nan;0\n", "f.csv line 3: x 'nan' is not a number"),
        ("f.csv", GOOD + "one;a;0;0\n", "f.csv line 3: time 'one' is not a number"),
        ("f.csv", GOOD + "1;\x07;0;0\n", "f.csv line 3: the vehicle's name '\\x07' has control"),
        ("f.csv", b"\xff\xfe\0\0", "f.csv is not a text file in UTF-8"),
        ("f.xml", "", "f.xml is empty; write it again"),
        ("f.xml", FCD[:-20], "f.xml line 6: the file is cut off"),
        ("f.xml", FCD.replace("fcd-export>", "routes>"), "f.xml line 2: <routes> is not SUMO's"),
        ("f.xml", FCD.replace('x="9" ', ""), "f.xml line 5: <vehicle> has no x"),
        ("f.xml", FCD.replace('x="9"', 'x="NaN"'), "f.xml line 5: x 'NaN' is not a number"),
        ("f.xml", FCD.replace('id="b"', 'id="a"'), "f.xml line 5: vehicle 'a' is there twice"),
        ("f.xml", FCD.replace("2.00", "0.50"), "f.xml line 5: time 0.5 comes after 1"),
        ("f.xml", FCD.replace("3.00", "30"), "f.xml line 6: time 30 follows 2 where steps are 1"),
        ("f.xml", FCD.replace("</timestep>", "</step>"), "f.xml line 4: not well-formed XML"),
        (
            "f.xml",
            FCD.replace("<fcd", '<!DOCTYPE f [<!ENTITY e SYSTEM "file:///etc/passwd">]><fcd'),
            "f.xml line 2: a document type is not read",
        ),
        ("f.xml.gz", gzip.compress(FCD.encode())[:-30], "f.xml.gz was cut off or damaged"),
        ("f.xml.gz", FCD, "f.xml.gz does not hold what a *.gz file begins with"),
        ("f.parquet", GOOD, "f.parquet does not hold what a *.parquet file begins with"),
        ("f.parquet", b"PAR1" + bytes(99), "f.parquet is not a whole Parquet file"),
        ("f.csv", FCD, "f.csv holds what a *.xml file begins with; rename it"),
        ("f.xml", gzip.compress(FCD.encode()), "f.xml holds what a *.gz file begins with"),
        ("f.dat", GOOD, "f.dat is not called .xml, .xml.gz, .csv or .parquet"),
        ("l.csv", "time,vehicle,kind\n", "l.csv has no events"),
        ("l.csv", "time,vehicle,kind\n1,a,join\n2,a,le", "l.csv line 3 has no end of line"),
        ("l.csv", "time,vehicle,kind\n1,a\n", "l.csv line 2 has 2 fields"),
        ("l.csv", "time,vehicle,kind\n1,a,go\n", "l.csv line 2: kind 'go' is neither"),
        ("l.csv", "time,vehicle,kind\n1,,join\n", "l.csv line 2: the vehicle has no name"),
        ("l.csv", "time,vehicle,kind\nnan,a,join\n", "l.csv line 2: time 'nan' is not a number"),
        ("l.csv", "time,vehicle,kind\n9,a,join\n2,a,leave\n", "l.csv line 3: 'a' leaves but"),
        ("l.csv", "time,vehicle,kind\n1,a,join\n2,a,join\n", "l.csv line 3: 'a' joins but"),
        (
            "l.csv",
            "time,vehicle,kind,color\n1,a,join,red\n",
            "or a list with 'time,vehicle,kind' alone",
        ),
        ("l.csv", "# end: 9\ntime,vehicle,kind\n1,a,join\n", "l.csv is a trace already; replay"),
    ],
)
def test_a_broken_file_is_named_in_one_line(
    call: Call, place: Path, name: str, content: str | bytes, message: str
) -> None:
    path = place / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    code, out, err = call("scenario", "import", name, "--out", "t.csv")
    assert (code, out, len(err)) == (2, [], 1), err
    assert message in err[0]
    assert not (place / "t.csv").exists()


def test_vehicles_that_are_numbered_in_parquet(call: Call, place: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    stamps, numbers = [0.0, 1.0, 1.0, 2.0], [0, 0, 7, 7]
    columns = {"timestep_time": stamps, "vehicle_id": numbers, "vehicle_x": stamps}
    table = pyarrow.table({**columns, "vehicle_y": stamps})
    pyarrow.parquet.write_table(table, place / "f.parquet")
    assert call("scenario", "import", "f.parquet", "--out", "t.csv")[0] == 0
    assert rows(place / "t.csv") == [(0, "0", "join"), (1, "7", "join"), (2, "0", "leave")]


def test_options_that_do_not_fit(call: Call, place: Path) -> None:
    (place / "f.csv").write_text(GOOD)
    assert call("scenario", "import", "f.csv", "--out", "t.txt")[2] == [
        "error: --out t.txt should be called *.csv or *.parquet"
    ]
    assert (
        "cannot read gone.xml: No such file"
        in (call("scenario", "import", "gone.xml", "--out", "t.csv")[2][0])
    )
    code, _, err = call("scenario", "import", "f.csv", "--out", "t.csv", "--membership", "rsu")
    assert code == 2
    assert "'f.csv' has no roadside unit of its own; set mobility.rsu.x" in err[0]
