"""Long CSV traces, which Arrow reads: the same rows, and the same words about broken ones."""

import time
from pathlib import Path

import numpy as np
import pytest

from testbed.config.schema import MobilityConfig
from testbed.errors import TraceError
from testbed.mobility import (
    MobilityEvent,
    Place,
    Places,
    Recorder,
    Recording,
    Step,
    open_source,
    read_trace,
    trace,
    write_trace,
)

PLAIN = "time,vehicle,kind\n"
LOCATED = "time,vehicle,kind,rsu,distance\n"
ROWS = [
    LOCATED + "1,b,join,,\n1,a,join,,\n1,a,at,east,0.1\n1,b,at,west,7\n2.5,a,leave,,\n"
    "2.5,b,at,west,8\n",
    "# end: 9\n# step_length: 1\n" + LOCATED + "0,\u00e9,join,r,\n0,\u00e9,at,r,1e2\n",
    PLAIN + "0.1,a,join\n0.30000000000000004,a,leave\n1e3,a,join\n",
    PLAIN + " 1,a,join\n2 ,a,leave\n",
    PLAIN + "+1,a,join\n",
    PLAIN + "1_0,a,join\n",
    PLAIN + '1,"a,b",join\n2,"a,b",leave\n',
    PLAIN + "1,'a',join\n",
    PLAIN + "1,a,join\r\n2,a,leave\r\n",
    PLAIN + "1,null,join\n2,NA,join\n",
    PLAIN + "1,true,join\n2,0,join\n",
    PLAIN,
]
BROKEN = [
    PLAIN + ",a,join\n",
    PLAIN + "soon,a,join\n",
    PLAIN + "nan,a,join\n",
    PLAIN + "1,a,join\ninf,a,leave\n",
    PLAIN + "0x1,a,join\n",
    PLAIN + "1,a,at\n",
    PLAIN + "1,a,stop\n",
    PLAIN + "1,,join\n",
    PLAIN + "1,a\n",
    PLAIN + "1,a,join,east\n",
    PLAIN + "1,a,join\n\n2,a,leave\n",
    PLAIN + "1;a;join\n",
    PLAIN + "1,a,join\n2,a,le",
    PLAIN + '1,"a,join\n',
    PLAIN + "2,a,join\n1,a,leave\n",
    PLAIN + "1,a,join\n1,a,join\n",
    PLAIN + "1,a,leave\n",
    PLAIN + "1,a\tb,join\n",
    LOCATED + "1,a,join,,\n1,a,at,r,\n",
    LOCATED + "1,a,join,,\n1,a,at,r,nan\n",
    LOCATED + "1,a,join,,\n1,a,at,r,near\n",
    LOCATED + "1,a,join,,nan\n",
    LOCATED + "1,a,join,,\n1,a,at,r,inf\n",
    LOCATED + "1,a,join,,\n1,a,at,r,-1\n",
    LOCATED + "1,a,join,,\n1,a,at,r,1\n1,a,at,r,1\n",
]


def told(path: Path) -> object:
    """Return what reading a file gives, or says."""
    try:
        return read_trace(path)
    except TraceError as error:
        return str(error)


@pytest.mark.parametrize("text", ROWS + BROKEN)
def test_both_readers_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    line_by_line = told(path)
    monkeypatch.setattr(trace, "_LONG", 0)
    at_once = told(path)
    assert at_once == line_by_line
    assert isinstance(at_once, str) == (text in BROKEN)


def test_the_quick_reader_reads_what_is_recorded(tmp_path: Path) -> None:
    """Without leaving it to the other one."""
    content = ROWS[0]
    columns = trace._at_once(content, [LOCATED.rstrip()], LOCATED.rstrip().split(","))
    assert columns is not None
    assert columns.vehicles == ("b", "a")
    assert columns.metres.tolist()[2:4] == [0.1, 7.0]


def test_a_dense_hour_starts_in_a_second(tmp_path: Path) -> None:
    """830 000 rows; usually 0.2 s of processor time, the bound is for a busy machine."""
    members = [f"v{number:03}" for number in range(230)]
    recorder = Recorder()
    for second in range(3600):
        events = [MobilityEvent(0.0, name, "join") for name in members if second == 0]
        metres = np.full(len(members), second / 100)
        places = Places(members, np.zeros(len(members), np.int64), metres, ("rsu",))
        recorder.add(Step(float(second), tuple(events), places))
    path = tmp_path / "hour.csv"
    write_trace(path, Recording(recorder.columns(), 3600.0), {"step_length": 1.0})
    began = time.process_time()
    with open_source(MobilityConfig(source="trace", trace=path), seed=0) as source:
        first, second_step = (next(iter(source.steps())) for _ in range(2))
    assert time.process_time() - began < 1
    assert first.distances == dict.fromkeys(members, Place("rsu", 0.0))
    assert second_step.distances["v229"] == Place("rsu", 0.01)
